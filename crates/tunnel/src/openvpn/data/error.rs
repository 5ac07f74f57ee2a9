//! Why the data channel refuses a packet.

/// Why a packet was not sealed or opened, or a channel not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// Not a data packet, or one of another key.
    #[error("not a packet of this key")]
    Foreign,
    /// The packet is truncated.
    #[error("the packet is truncated")]
    Short,
    /// The authentication failed: damaged, forged, or sealed with another key.
    #[error("the packet's authentication failed")]
    Forged,
    /// The number was received before, or is too old to be checked.
    #[error("the packet is a replay, or too late")]
    Replayed,
    /// No key of the packet's epoch is stored.
    #[error("the packet's epoch is not near the current one")]
    UnknownEpoch,
    /// The payload's framing is not the negotiated one, or the compressed data is invalid or too large.
    #[error("the payload does not have the negotiated framing")]
    Framing,
    /// An empty payload, or one that does not fit a packet.
    #[error("a payload of {0} bytes does not fit a packet")]
    Size(usize),
    /// The packet numbers are used up, or the key has seen too many forged packets.
    #[error("the key is used up")]
    Exhausted,
    /// The packet format of 2.7 with a cipher that does not authenticate packets.
    #[error("the epoch format needs an AEAD")]
    NoAead,
    /// The cryptographic library returned an error.
    #[error("the cryptographic library returned an error")]
    Library,
}
