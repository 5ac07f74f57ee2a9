//! The values that a client returns to its caller: the next action, and events.

use crate::protocol::Failure;

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
