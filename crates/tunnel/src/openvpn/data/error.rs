//! Why the data channel refuses a packet.

/// Why a packet was not sealed or opened, or a channel not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// Not a data packet, or one of another key.
    #[error("not a packet of this key")]
    Foreign,
    /// Something that every packet has is missing.
    #[error("the packet is cut off")]
    Short,
    /// It does not prove itself: damaged, forged, or sealed with another key.
    #[error("the packet does not prove itself")]
    Forged,
    /// Its number has come before, or is too far back to know.
    #[error("the packet is a replay, or too late")]
    Replayed,
    /// Its epoch is none whose key is kept.
    #[error("the packet's epoch is not near")]
    UnknownEpoch,
    /// The payload's framing is not the one agreed on, or what was compressed is broken or too large.
    #[error("the payload is not framed as agreed")]
    Framing,
    /// A payload of no bytes, or of more than fit a packet.
    #[error("a payload of {0} bytes does not fit a packet")]
    Size(usize),
    /// Numbers have run out, or the key has seen too many forged packets.
    #[error("the key has been used up")]
    Exhausted,
    /// The packet format of 2.7 with a cipher that does not prove packets.
    #[error("the epoch format needs an AEAD")]
    NoAead,
    /// The cryptographic library refused.
    #[error("the cryptographic library refused")]
    Library,
}
