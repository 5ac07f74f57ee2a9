//! How much one key of the data channel may protect, and when new keys are due.

/// Number from which new keys are due.
pub(super) const PACKET_ID_WARNING: u32 = 0xFF00_0000;
/// Packets and blocks that one AES-GCM key may protect: at 2^-57, `q + s <= p^(1/2) * 2^(129/2) - 1` of the CFRG's AEAD limits.
pub(super) const GCM_LIMIT: u64 = (1 << 36) - 1;
/// Forged packets after which a key opens nothing more.
pub(super) const FAILURES_LIMIT: u64 = 1 << 36;
/// Forged packets after which new keys are due.
pub(super) const FAILURES_WARNING: u64 = 1 << 35;
