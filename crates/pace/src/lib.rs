//! Schedules: pure arithmetic from the ordinal of an operation to its due time, so that lateness never moves the
//! schedule. Owns no clock. A load driver asks "when is operation n due" and "how many are due by
//! now". A [`Pace`] is constant and has no end; [`Stages`] are a curve with an end; a [`CatchUp`] limits a late driver.

mod catch_up;
mod constant;
mod stages;

pub use catch_up::CatchUp;
pub use constant::Pace;
pub use stages::{Arrivals, Stage, Stages, StagesError};
