//! Limits of one key of the data channel: how much it may protect, and when new keys are due.

/// Packet number at which new keys are due.
pub(super) const PACKET_ID_WARNING: u32 = 0xFF00_0000;
/// Maximum of packets and blocks under one AES-GCM key: at 2^-57, `q + s <= p^(1/2) * 2^(129/2) - 1` of the CFRG's
/// AEAD limits.
pub(super) const GCM_LIMIT: u64 = (1 << 36) - 1;
/// Number of forged packets after which a key opens no more packets.
pub(super) const FAILURES_LIMIT: u64 = 1 << 36;
/// Number of forged packets after which new keys are due.
pub(super) const FAILURES_WARNING: u64 = 1 << 35;
