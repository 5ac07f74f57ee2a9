//! The session that a client begins beside keys that it could not renew. Owns its state; `failed_renewal` decides when it begins
//! and how it ends.

use crate::openvpn::message::push::Pushed;
use crate::protocol::Failure;

/// The second session of a tunnel.
pub(super) struct FallbackSession {
    /// The failure that is reported when the old keys expire.
    pub cause: Failure,
    /// When the old keys expire, ns.
    pub keys_end_ns: u64,
    /// Whether the last failure was reported; the next attempt begins at the end of the window.
    pub is_reported: bool,
    /// Whether the current session differs from that of the old keys.
    pub is_begun: bool,
    /// Whether its keys are known and options are awaited.
    pub is_pushing: bool,
    pub pushed: Box<Pushed>,
}
