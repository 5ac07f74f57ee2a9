//! The link emulator: what a task `emulate` does to frames, and its counters.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A link between two interfaces of the agent's network namespace. Every frame that arrives at one leaves through the
/// other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmulateSpec {
    /// The name of one interface.
    pub a: String,
    /// The name of the other.
    pub b: String,
    /// Seed of all random decisions.
    pub seed: u64,
    /// What happens to frames from `a` to `b`.
    pub a_to_b: LinkEffects,
    /// What happens to frames from `b` to `a`.
    pub b_to_a: LinkEffects,
    /// Time between `emulated` events, ms.
    pub interval_ms: u32,
}

/// What happens to the frames of one direction. Shares are of all frames, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkEffects {
    /// Bits per second of Ethernet frames without preamble, FCS and gap; unlimited if absent.
    pub rate_bps: Option<u64>,
    /// The longest queue in front of the rate, bytes; a frame that does not fit is dropped.
    pub queue_bytes: u64,
    /// One-way delay, µs.
    pub delay_us: u64,
    /// The delay varies evenly by up to this much in either direction, µs. Frames keep their order.
    pub jitter_us: u64,
    /// Share of frames that are lost.
    pub loss: f64,
    /// Mean number of frames that are lost in a row; at most 1: each frame is lost independently.
    pub loss_burst: f64,
    /// Share of frames that are held back until a later frame of their flow has passed.
    pub reorder: f64,
    /// Share of frames that are sent twice.
    pub duplicate: f64,
    /// Share of frames in which one bit is inverted.
    pub corrupt: f64,
}

/// The counters of one direction since the task began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkCounts {
    /// Every frame.
    pub all: FrameCounts,
    /// Frames with UDP over IPv4 or IPv6.
    pub udp: FrameCounts,
    /// Frames that the kernel dropped because the emulator had not received earlier ones.
    pub overrun: u64,
    /// Frames that the emulator cannot forward: longer than it accepts, or bundles of segments (GSO).
    pub unfit: u64,
    /// Frames that the kernel did not accept for sending.
    pub refused: u64,
    /// How late a frame left, compared with the time that the emulation gave it, mean, ns; absent without a frame.
    pub late_mean_ns: Option<u64>,
    /// The same, maximum.
    pub late_max_ns: Option<u64>,
}

/// What happened to frames. Every frame that arrived was lost, dropped, or forwarded, or is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Frames that arrived.
    pub arrived: u64,
    /// Their bytes, from the Ethernet header on.
    pub arrived_bytes: u64,
    /// Frames that were lost as asked.
    pub lost: u64,
    /// Frames that found the queue full.
    pub queue_full: u64,
    /// Frames that were sent twice.
    pub duplicated: u64,
    /// Frames that left after a later frame of their flow.
    pub reordered: u64,
    /// Frames that left with an inverted bit.
    pub corrupted: u64,
    /// Frames that left, duplicates included.
    pub forwarded: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
}
