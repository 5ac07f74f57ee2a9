//! Generated frames: what is asked for, in types (`plan`), and the bytes of it (`image`).

mod image;
mod plan;

pub use image::{Image, Own, SumPlace};
pub use plan::{parse_mac, FramePlan, MacAddress, Outer, PlanError, BROADCAST, MAX_FRAME_LENGTH, MIN_FRAME_LENGTH};
