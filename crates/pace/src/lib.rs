//! Schedules: pure arithmetic from the ordinal of an operation to its due time, so that lateness never moves the
//! schedule. Owns no clock and keeps no state. A load driver asks "when is operation n due" and "how many are due by
//! now". A [`Pace`] is constant and has no end; [`Stages`] are a curve with an end.

mod constant;
mod stages;

pub use constant::Pace;
pub use stages::{Arrivals, Stage, Stages, StagesError};
