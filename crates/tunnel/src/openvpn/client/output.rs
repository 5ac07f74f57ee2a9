//! The values that a client returns to its caller: the next action, events, the content of a packet, and counters.

/// The caller's next action.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the packet in the buffer.
    Send,
    /// An event.
    Event(Event),
    /// Wait for a packet, or until this time, ns.
    Wait(Option<u64>),
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server answered the first reset.
    Answered,
    /// The TLS handshake is done.
    TlsDone,
    /// Both shares of the keys are known.
    KeysDone,
    /// The options have arrived; data can be sent.
    Up,
    /// Both shares of new keys are known, and this end uses them. The server may still refuse them, for example
    /// because the user's token has expired: `RenegotiationAccepted` or `RenegotiationRefused` follows unless the
    /// server stays silent.
    Renegotiated,
    /// The server has accepted the newest keys: it uses them, or has sent options after them.
    RenegotiationAccepted,
    /// The server refused the client in a renegotiation, before or after the keys were known; `Failed` follows.
    RenegotiationRefused,
    /// The server changed options of a running tunnel.
    Updated,
    /// A renegotiation over UDP failed. The previous keys remain in use while they are valid, and a separate session
    /// negotiates new ones; `Renegotiated` follows when it succeeds, and `Updated` if its options differ.
    RenegotiationFailed,
    /// The server asks for more time, or for a second factor, which this client cannot give.
    Pending {
        /// How long the client waits, ns.
        until_ns: u64,
    },
    /// The server asks the client to reconnect.
    Restart(String),
    /// A change of options cannot be applied, for this reason. OpenVPN then restarts and reconnects.
    UpdateRejected(String),
    /// The server has disconnected.
    PeerLeft,
    /// The session is over.
    Failed(Failure),
}

/// Why a client could not connect or lost its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stable name of the counter.
    pub name: &'static str,
    /// Further details; may be empty.
    pub detail: String,
}

/// The content of a received packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'p> {
    /// An IP packet from the tunnel.
    Payload(&'p mut [u8]),
    /// A control packet: `poll` may have output.
    Control,
    /// Nothing to do: a keepalive, a duplicate, or an invalid packet. It is counted.
    Nothing,
}

/// The error of sending data before the tunnel is up, or after its keys are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tunnel is not up")]
pub struct NotUp;

/// Counters of received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Opened data packets, including keepalives.
    pub opened: u64,
    /// Data packets that are repeated, or too late to be checked for that.
    pub replayed: u64,
    /// Packets that could not be authenticated, or that belong to no session here.
    pub rejected: u64,
    /// Received keepalives.
    pub pings: u64,
}
