//! What a client tells its caller: what to do next, what has happened, what a packet was, and what it has counted.

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send what is in the buffer: one packet.
    Send,
    /// Something has happened.
    Event(Event),
    /// Nothing until a packet comes, or this time, ns.
    Wait(Option<u64>),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first reset was answered.
    Answered,
    /// TLS's handshake is done.
    TlsDone,
    /// Both shares of the keys are known.
    KeysDone,
    /// The options have come; data can be sent.
    Up,
    /// Both shares of new keys are known, and they are in use here. The server may still refuse them, as it does a user whose
    /// token has run out: `RenegotiationAccepted` or `RenegotiationRefused` tells, unless the server stays silent.
    Renegotiated,
    /// The server uses the newest keys, or has sent options after them: it has accepted them.
    RenegotiationAccepted,
    /// The server has refused the client in a renegotiation, before the keys were there or after; `Failed` follows.
    RenegotiationRefused,
    /// The server has changed options of a tunnel that is up.
    Updated,
    /// A renegotiation over datagrams came to nothing. The keys before it go on while they are good, and new ones are asked for
    /// by a session of its own; with those it says `Renegotiated`, and `Updated` where other options came with them.
    RenegotiationFailed,
    /// The server asks for more time, or for a second factor that nobody here can give.
    Pending {
        /// How long it is waited for, ns.
        until_ns: u64,
    },
    /// The server wants the client to connect again.
    Restart(String),
    /// A change of options cannot be applied, for this reason. OpenVPN restarts then, and connects again.
    UpdateRejected(String),
    /// The server has left.
    PeerLeft,
    /// It is over.
    Failed(Failure),
}

/// Why a client could not connect, or not stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable name to count by.
    pub name: &'static str,
    /// What is known beyond the name; may be empty.
    pub detail: String,
}

/// What a received packet was.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'p> {
    /// An IP packet from inside of the tunnel.
    Payload(&'p mut [u8]),
    /// Of the control channel: `poll` may have something.
    Control,
    /// Nothing to act on: a keepalive, a packet that came twice, noise. Counted.
    Nothing,
}

/// Data cannot be sent: the tunnel is not up, or its keys are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tunnel is not up")]
pub struct NotUp;

/// What has come and gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets that were opened, keepalives included.
    pub opened: u64,
    /// Data packets that came again, or too late to tell.
    pub replayed: u64,
    /// Packets that could not be authenticated, or belong to nobody here.
    pub rejected: u64,
    /// Keepalives that came.
    pub pings: u64,
}
