//! Mergeable counters: latency histograms, sequence accounting, jitter. Owns no clock and no socket; callers pass
//! times and numbers.

mod histogram;
mod jitter;
mod sequence;

pub use histogram::{Histogram, Place};
pub use jitter::Jitter;
pub use sequence::{Arrival, SequenceTracker};
