//! What the two directions of a connection pass to one another: bytes in order, requests that wait, and what answers mean.

use crate::recorded::Recorded;

/// Bytes that are passed on, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at_ns: u64,
    /// Where they begin in their direction.
    pub(super) offset: i64,
    /// How far their sender had received the other direction.
    pub(super) acknowledged: Option<i64>,
}

/// Where a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before a message.
    Between,
    /// Within one.
    Amid,
    /// Somewhere: a message begins where a segment begins like one.
    Lost,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    /// The request; `None` if it cannot be given, or was.
    pub(super) recorded: Option<Recorded>,
    /// When its last byte was there.
    pub(super) done_ns: u64,
    /// Where its answer begins if no other is due before it.
    pub(super) answer_at: Option<i64>,
    /// Whether requests before it may be missing.
    pub(super) is_after_gap: bool,
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
    pub(super) is_upgrade: bool,
}

/// A request that has not arrived in full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) answer_at: Option<i64>,
    pub(super) is_after_gap: bool,
}

/// What an answer means for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Nothing new.
    Nothing,
    /// The server did not take up another protocol.
    Kept,
    /// It did.
    Upgraded,
}
