//! One direction of an emulated link: decides what happens to each frame, and when it leaves. A machine: it takes
//! frames and times, and returns frames that are due.
//!
//! A frame meets, in this order: loss; reordering, which holds it back until a later frame of its flow has passed;
//! the queue in front of the rate; duplication; corruption; delay and jitter. `link` has the order, `loss` the bursts,
//! `frame` what it reads of a frame.

mod frame;
mod jitter;
mod link;
mod loss;
mod random;

pub use frame::Arrival;
pub use link::{Link, MOST_HELD_BYTES, REORDER_WAIT_NS};
