//! Mergeable counters: latency histograms, sequence accounting, jitter. Owns no clock and no socket; callers pass
//! times and numbers.

mod gaps;
mod histogram;
mod jitter;
mod lengths;
mod loss_bursts;
mod sequence;

pub use histogram::{Bucket, Histogram};
pub use jitter::Jitter;
pub use lengths::Lengths;
pub use sequence::{Arrival, SequenceTracker};
