//! Why a control packet's protection cannot be taken off.

use crate::openvpn::packet::PacketError;

/// Why a packet's protection cannot be taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrapError {
    /// It is no control packet at all.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// Nobody with these keys made it, or it was changed on its way.
    #[error("the packet is not from an end that has the key")]
    Unauthentic,
    /// It came before, or is too old to tell.
    #[error("the packet came before")]
    Replayed,
    /// A wrapped key is missing, broken, of another server, or not what this session speaks of.
    #[error("the packet's wrapped key is none of this server")]
    BadWrappedKey,
    /// A packet that needs the client's key, which has not come.
    #[error("the packet came before the client's key")]
    NoClientKey,
}

impl WrapError {
    pub(super) const TOO_SHORT: Self = Self::Packet(PacketError::TooShort);
}
