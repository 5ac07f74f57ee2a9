//! Why a control packet's protection cannot be removed.

use crate::openvpn::packet::PacketError;

/// Why a packet's protection cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// Not a control packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The packet was not created with these keys, or was changed in transit.
    #[error("the packet is not from an end that has the key")]
    Unauthentic,
    /// The packet was received before, or is too old to be checked.
    #[error("the packet was received before")]
    Replayed,
    /// A wrapped key is missing, invalid, from another server, or does not match this session.
    #[error("the packet's wrapped key does not belong to this server")]
    BadWrappedKey,
    /// A packet that needs the client's key, which is not known yet.
    #[error("the packet was received before the client's key")]
    NoClientKey,
}

impl WrapError {
    pub(super) const TOO_SHORT: Self = Self::Packet(PacketError::TooShort);
}
