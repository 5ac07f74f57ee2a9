//! Counting that can be trusted and merged: latency histograms, sequence accounting, jitter.
//! Owns no clock and no socket; everything is given times and numbers.

mod histogram;
mod jitter;
mod sequence;

pub use histogram::{Histogram, Place};
pub use jitter::Jitter;
pub use sequence::{Arrival, SequenceTracker};
