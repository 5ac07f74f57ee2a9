//! The session that a client begins beside the keys that it could not renew. Owns its state; `failed_renewal` says when it begins
//! and how it ends.

use super::output::Failure;
use crate::openvpn::message::push::Pushed;

/// The second way up.
pub(super) struct FallbackSession {
    /// What the old keys are given up for, once they are no good any more.
    pub cause: Failure,
    /// When they are, ns.
    pub keys_end_ns: u64,
    /// The last failure was told; the next attempt begins with the end of the window.
    pub is_reported: bool,
    /// The session is another one than that of the old keys.
    pub is_begun: bool,
    /// Its keys are there, and options are waited for.
    pub is_pushing: bool,
    pub pushed: Box<Pushed>,
}
