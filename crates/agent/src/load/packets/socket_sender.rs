//! Frames by packet sockets or AF_XDP sockets, many per call: where BPF cannot be used, frames are long, or have several
//! lengths.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use leadline_packet::flows::Random;
use leadline_packet::frame::Image;
use leadline_packet::trailer::Trailer;
use leadline_stats::Histogram;
use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::frames::FrameOutlet;
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::xdp_outlet::XdpOutlet;
use leadline_wire::{ErrorReport, FieldOrder, PacketFlowCount, SizeCount};

use super::outlet::Outlet;
use super::report::REPORTED_FLOWS;
use super::sender::{Frames, Sender, Sent, Share};
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::flows::Span;
use crate::metering::FlowCounters;

/// Frames per call.
const BATCH: usize = 64;
/// Images that are made beforehand; those of more flows are made when they are sent.
const MAX_IMAGE_BYTES: usize = 256 << 20;
/// A gap that is slept through; shorter ones pass by looking at the clock.
const LONG_GAP_NS: u64 = 100_000;
const EARLY_NS: u64 = 60_000;
/// How often the clock is read for the stop, in frames, is once per batch; how long one sleep may take, ns.
const TURN_NS: u64 = 20_000_000;
/// How long frames that were taken may take to leave at the end, ns.
const LEAVE_NS: u64 = 200_000_000;

/// One thread's socket.
pub struct SocketSender {
    frames: Arc<Frames>,
    share: Share,
    counters: FlowCounters,
    state: Mutex<State>,
}

struct State {
    outlet: Box<dyn Outlet>,
    /// By flow, then by length.
    images: Vec<Image>,
    next: Vec<u32>,
    lengths: Vec<usize>,
    by_size: Vec<SizeCount>,
    /// Flow and length of each frame in the outlet.
    filled: [(usize, usize); BATCH],
    random: Random,
    turn: u64,
    last_ns: Option<u64>,
    late: Histogram,
}

impl SocketSender {
    /// Opens the packet socket of a share and makes its frames.
    pub fn open(frames: &Arc<Frames>, share: &Share) -> Result<Self, ErrorReport> {
        let outlet = FrameOutlet::open(&frames.interface.name, BATCH, longest_bytes(frames))
            .map_err(|error| system_error(&format!("opening a packet socket on {}", frames.interface.name), &error))?;
        Self::with_outlet(frames, share, Box::new(outlet))
    }

    /// Opens the AF_XDP socket of a share, on a queue of its own, and makes its frames; returns how frames leave, too.
    pub fn open_xdp(frames: &Arc<Frames>, share: &Share, is_copied: bool) -> Result<(Self, &'static str), ErrorReport> {
        let name = &frames.interface.name;
        let outlet = XdpOutlet::open(name, share.thread, BATCH, longest_bytes(frames), is_copied)
            .map_err(|error| refuse_socket(name, share.thread, &error))?;
        let way = if outlet.is_zero_copy { "zero-copy" } else { "copied by the kernel" };
        Ok((Self::with_outlet(frames, share, Box::new(outlet))?, way))
    }

    fn with_outlet(frames: &Arc<Frames>, share: &Share, outlet: Box<dyn Outlet>) -> Result<Self, ErrorReport> {
        let sizes = &frames.plan.sizes;
        let all: usize = sizes.iter().map(|size| size.bytes as usize).sum::<usize>() * share.flows as usize;
        if all > MAX_IMAGE_BYTES {
            let (mib, most) = (all >> 20, MAX_IMAGE_BYTES >> 20);
            let message =
                format!("the frames of all flows take {mib} MiB, {most} at most: ask for fewer flows, or xdp");
            return Err(input_error("too_many_flows", message));
        }
        let flows = frames.spec.flows;
        let image = |index: u32, bytes: u32| frames.plan.image((share.flow(index), 0), flows.count, bytes, frames.own);
        let images = (0..share.flows).flat_map(|index| sizes.iter().map(move |size| (index, size.bytes)));
        Ok(Self {
            frames: Arc::clone(frames),
            share: share.clone(),
            counters: FlowCounters::default(),
            state: Mutex::new(State {
                outlet,
                images: images.map(|(index, bytes)| image(index, bytes)).collect(),
                next: vec![0; share.flows as usize],
                lengths: round_of(frames),
                by_size: sizes.iter().map(|size| SizeCount { bytes: size.bytes, frames: 0 }).collect(),
                filled: [(0, 0); BATCH],
                random: Random::new(flows.seed ^ u64::from(share.thread) << 32),
                turn: 0,
                last_ns: None,
                late: Histogram::new(),
            }),
        })
    }

    fn choose_flow(&self, state: &mut State) -> usize {
        if self.share.flows == 1 {
            return 0;
        }
        match (&self.frames.popularity, self.frames.spec.flows.order) {
            (Some(table), _) => table[(state.random.next_number() >> 44) as usize] as usize,
            (None, FieldOrder::Random) => state.random.below(self.share.flows) as usize,
            (None, FieldOrder::InTurn) => (state.turn % u64::from(self.share.flows)) as usize,
        }
    }

    /// Writes the next frames into the outlet.
    fn fill(&self, state: &mut State, count: usize) {
        let (is_timed, every) = (self.frames.plan.is_timed, u64::from(self.frames.spec.stamp_every));
        let sizes = self.frames.plan.sizes.len();
        for slot in 0..count {
            let flow = self.choose_flow(state);
            let size = state.lengths[(state.turn % state.lengths.len() as u64) as usize];
            let time_ns = (every > 0 && state.turn % every == 0).then(monotonic_ns);
            let trailer = Trailer {
                test_id: self.frames.spec.test_id,
                flow: self.share.flow(flow as u32),
                sequence: state.next[flow],
                time_ns,
            };
            let image = &mut state.images[flow * sizes + size];
            image.number(&trailer, is_timed);
            let bytes = &image.bytes[self.frames.stripped_bytes..];
            state.outlet.slot(slot, bytes.len()).copy_from_slice(bytes);
            state.next[flow] = state.next[flow].wrapping_add(1);
            state.turn += 1;
            state.by_size[size].frames += 1;
            state.filled[slot] = (flow, size);
        }
    }

    /// Sends what was filled in. A full queue is tried again until the end; what is left then counts as never sent.
    fn flush(&self, state: &mut State, count: usize, end_ns: u64, signal: &ControlSignal) -> io::Result<()> {
        let mut at = 0;
        while at < count {
            match state.outlet.send(at, count) {
                Ok(sent) => {
                    let size = |slot: usize| u64::from(self.frames.plan.sizes[state.filled[slot].1].bytes);
                    self.counters.sent((at..at + sent).map(size).sum(), sent as u64);
                    at += sent;
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR)) => {
                    if signal.stopped() || monotonic_ns() >= end_ns {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        for slot in at..count {
            let (flow, size) = state.filled[slot];
            state.next[flow] = state.next[flow].wrapping_sub(1);
            state.by_size[size].frames -= 1;
        }
        state.last_ns = Some(monotonic_ns());
        Ok(())
    }
}

fn longest_bytes(frames: &Frames) -> usize {
    frames.plan.sizes.iter().map(|size| size.bytes as usize).max().unwrap_or(0)
}

/// Why there is no AF_XDP socket.
fn refuse_socket(name: &str, queue: u32, error: &io::Error) -> ErrorReport {
    let (code, message) = match error.raw_os_error() {
        Some(libc::EBUSY) => ("busy", format!("another AF_XDP socket has queue {queue} of {name}")),
        Some(libc::EINVAL) => {
            let message = "which has no such queue, or whose kernel sends no frames of several parts (since Linux 6.6)";
            ("no_af_xdp", format!("no AF_XDP socket for queue {queue} of {name}, {message}"))
        }
        Some(libc::EPERM) => ("permission_denied", "AF_XDP sockets need root, or CAP_NET_RAW".to_owned()),
        _ => ("no_af_xdp", format!("no AF_XDP socket for queue {queue} of {name}: {error}")),
    };
    input_error(code, message)
}

/// Which length each frame of a round has: those of a mix are spread over it, not one after another.
fn round_of(frames: &Frames) -> Vec<usize> {
    let sizes = &frames.plan.sizes;
    let all: u64 = sizes.iter().map(|size| u64::from(size.count)).sum();
    const LONGEST_ROUND: u64 = 1 << 16;
    let scale = all.div_ceil(LONGEST_ROUND).max(1);
    let mut places: Vec<(u64, usize)> = Vec::new();
    for (index, size) in sizes.iter().enumerate() {
        let count = (u64::from(size.count) / scale).max(1);
        places.extend((0..count).map(|number| ((2 * number + 1) * (1 << 40) / (2 * count), index)));
    }
    places.sort_unstable();
    places.into_iter().map(|(_, index)| index).collect()
}

/// Waits until what was taken has left. What has not by then was refused, as the interface's counters say.
fn end(outlet: &mut dyn Outlet) -> io::Result<()> {
    let until_ns = monotonic_ns() + LEAVE_NS;
    while outlet.has_waiting()? && monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
    Ok(())
}

impl Sender for SocketSender {
    fn send(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        minimize_timer_slack();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let begin_ns = span.at_ns + self.share.later_ns;
        let due_in_all = self.share.due(span.end_ns - span.at_ns).unwrap_or(u64::MAX);
        loop {
            let now_ns = monotonic_ns();
            let sent = self.counters.sent_units();
            if sent >= due_in_all || now_ns >= span.end_ns || signal.stopped() {
                return end(state.outlet.as_mut());
            }
            let mut count = usize::try_from(due_in_all - sent).unwrap_or(BATCH).min(BATCH);
            if let Some(pace) = self.share.pace {
                let due = now_ns.checked_sub(begin_ns).map_or(0, |elapsed_ns| pace.due_count(elapsed_ns));
                let due_ns = begin_ns.saturating_add(pace.due_ns(sent));
                if due <= sent {
                    if due_ns > now_ns + LONG_GAP_NS {
                        sleep_until((due_ns - EARLY_NS).min(now_ns + TURN_NS).min(span.end_ns));
                    }
                    continue;
                }
                count = state.outlet.room(count.min(usize::try_from(due - sent).unwrap_or(BATCH)))?;
                for ahead in 0..count as u64 {
                    state.late.record(now_ns.saturating_sub(begin_ns + pace.due_ns(sent + ahead)));
                }
            } else {
                count = state.outlet.room(count)?;
            }
            if count == 0 {
                continue;
            }
            self.fill(state, count);
            self.flush(state, count, span.end_ns, signal)?;
        }
    }

    fn due(&self, elapsed_ns: u64) -> Option<u64> {
        self.share.pace.and_then(|_| self.share.due(elapsed_ns))
    }

    fn so_far(&self) -> (u64, u64) {
        (self.counters.sent_units(), self.counters.sent_bytes())
    }

    fn report(&self) -> Sent {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let flow = |index: u32| {
            let frames = u64::from(state.next[index as usize]);
            PacketFlowCount { flow: self.share.flow(index), frames, numbers: frames, ..Default::default() }
        };
        Sent {
            frames: self.counters.sent_units(),
            pushback: 0,
            first_ns: None,
            last_ns: state.last_ns,
            late: state.late.clone(),
            by_size: state.by_size.clone(),
            flows: (0..self.share.flows.min(REPORTED_FLOWS)).map(flow).collect(),
        }
    }
}
