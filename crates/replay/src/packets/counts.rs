//! What packets had beside requests, and where requests go.

use std::collections::VecDeque;

use crate::recorded::{Causes, Recorded};

/// What was seen of packets and connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Frames in all.
    pub frames: u64,
    /// Frames without a TCP segment, or of ports that were not asked for.
    pub other_frames: u64,
    /// Fragments of IP packets with TCP, which are not put together.
    pub fragments: u64,
    /// Frames whose TCP header is cut off or none.
    pub headless: u64,
    /// Frames of which the capture kept only the beginning.
    pub cut_frames: u64,
    /// Connections, from a SYN or from their first bytes.
    pub connections: u64,
    /// Connections that were seen from their middle, and in which nothing was recognised.
    pub unrecognised: u64,
    /// Segments, or parts of them, that came again.
    pub retransmitted: u64,
    /// Of those that could be compared, the ones with other bytes; the first copy counts.
    pub differing: u64,
    /// Segments that came before what they follow.
    pub out_of_order: u64,
    /// Holes that nothing filled.
    pub gaps: u64,
    /// Bytes in those.
    pub lost_bytes: u64,
    /// Requests that are given without an answer, or with one whose end is missing.
    pub without_answer: u64,
    /// Connections that were given up because all of them held too much.
    pub given_up: u64,
}

/// Where requests and counts go.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) ready: VecDeque<Recorded>,
    pub(super) causes: Causes,
    pub(super) counts: PacketCounts,
}
