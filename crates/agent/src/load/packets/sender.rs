//! What one thread of a generator sends, and the interface of the ways to do it.

use leadline_pace::Pace;
use leadline_packet::frame::{FramePlan, Own};
use leadline_stats::Histogram;
use leadline_sys::interfaces::Interface;
use leadline_wire::{PacketFlowCount, PacketGeneratorSpec, SizeCount, ThreadReport};

use crate::control_signal::ControlSignal;
use crate::flows::Span;

/// What one thread has to send: its flows are `first`, `first + step`, and so on.
#[derive(Clone, Debug)]
pub struct Share {
    /// The thread's number.
    pub thread: u32,
    /// Threads.
    pub threads: u32,
    /// Its flows.
    pub flows: u32,
    /// Its rate; `None` for as fast as it goes.
    pub pace: Option<Pace>,
    /// How much its schedule is behind that of the first thread, ns.
    pub later_ns: u64,
    /// Its frames, if they are limited.
    pub number: Option<u64>,
}

impl Share {
    /// The number of a flow within the test.
    pub fn flow(&self, index: u32) -> u32 {
        index * self.threads + self.thread
    }

    /// The frames that it has to send in a time, and may not exceed.
    pub fn due(&self, duration_ns: u64) -> Option<u64> {
        let due = self.pace.map(|pace| pace.count_within(duration_ns.saturating_sub(self.later_ns)));
        match (due, self.number) {
            (Some(due), Some(number)) => Some(due.min(number)),
            (due, number) => due.or(number),
        }
    }
}

/// What all threads of a generator send.
#[derive(Debug)]
pub struct Frames {
    /// The frames.
    pub plan: FramePlan,
    /// The interface's and the next hop's addresses.
    pub own: Own,
    /// Flows of all threads.
    pub spec: PacketGeneratorSpec,
    /// The interface.
    pub interface: Interface,
    /// Bytes of headers that the interface has not: it carries packets without Ethernet, as a tunnel's does.
    pub stripped_bytes: usize,
    /// A table of flows for Zipf's law.
    pub popularity: Option<Vec<u32>>,
}

/// What a thread has sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Attempts that the interface refused, whose frames were sent again.
    pub pushback: u64,
    /// When the first one was sent, ns; that of the start if absent.
    pub first_ns: Option<u64>,
    /// When the last one was sent, ns.
    pub last_ns: Option<u64>,
    /// From due to sent; only with a rate.
    pub late: Histogram,
    /// Frames by length.
    pub by_size: Vec<SizeCount>,
    /// Of the thread's first flows.
    pub flows: Vec<PacketFlowCount>,
}

/// One thread's way of sending frames.
pub trait Sender: Send + Sync {
    /// Sends until the share or the span is over, or the signal stops it.
    fn send(&self, span: Span, signal: &ControlSignal) -> std::io::Result<()>;
    /// Frames that were due within a time from the start on; `None` where they had no times, or where it is not known.
    fn due(&self, elapsed_ns: u64) -> Option<u64>;
    /// Frames and bytes sent so far; from any thread.
    fn so_far(&self) -> (u64, u64);
    /// What was sent, after the end.
    fn report(&self) -> Sent;
    /// The kernel's own threads that did the work, after the end.
    fn kernel_threads(&self) -> Vec<ThreadReport> {
        Vec::new()
    }
}
