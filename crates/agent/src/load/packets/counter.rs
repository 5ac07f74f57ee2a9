//! What a receiver counts, and the interface of the ways to do it.

use leadline_packet::account::FlowAccount;
use leadline_stats::Histogram;
use leadline_wire::ThreadReport;

/// What a receiver has counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Frames of the test by length.
    pub lengths: Vec<u64>,
    /// Frames that are not of the test.
    pub foreign: u64,
    /// Frames of flows without an account.
    pub beyond: u64,
    /// Frames sent back.
    pub echoed: u64,
    /// Frames that its own queue dropped, if that can be.
    pub overrun: Option<u64>,
    /// When the first frame arrived, ns.
    pub first_ns: Option<u64>,
    /// When the last frame arrived, ns, if it is known.
    pub last_ns: Option<u64>,
    /// Delays of frames that were sent from the end of the warm-up on.
    pub delays: Histogram,
    /// Delays of frames that were sent before.
    pub warm_up: Histogram,
    /// Frames whose time is behind their arrival.
    pub from_future: u64,
}

impl Tally {
    /// Frames of the test.
    pub fn frames(&self) -> u64 {
        self.lengths.iter().sum()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        (0u64..).zip(&self.lengths).map(|(length, frames)| length * frames).sum()
    }
}

/// A way of counting frames.
pub trait Counter: Send + Sync {
    /// Frames and bytes so far.
    fn so_far(&self) -> (u64, u64) {
        let tally = self.tally();
        (tally.frames(), tally.bytes())
    }
    /// What was counted so far.
    fn tally(&self) -> Tally;
    /// The account of a flow.
    fn account(&self, flow: u32) -> FlowAccount;
    /// Delays of frames sent before this instant (ns of this host's clock) are those of the warm-up.
    fn warm_until(&self, until_ns: u64);
    /// Ends the counting; returns the cost of its thread, if it has one.
    fn end(&self) -> Option<ThreadReport>;
}
