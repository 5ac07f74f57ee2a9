//! Frames by a BPF program that the kernel runs on pages of its own (`BPF_PROG_TEST_RUN` with live frames). This thread
//! only says how often; the program (`leadline_packet::bpf::generator`) writes and paces the frames.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_packet::bpf::bucket::BUCKETS;
use leadline_packet::bpf::generator::{control, FlowOrder, GeneratorProgram, DUE_BITS};
use leadline_packet::flows::Random;
use leadline_stats::Histogram;
use leadline_sys::bpf::{KeptProgram, Program, SharedMap};
use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::priority::minimize_timer_slack;
use leadline_wire::{ErrorReport, FieldOrder, PacketFlowCount, SizeCount};

use super::report::REPORTED_FLOWS;
use super::sender::{Frames, Sender, Sent, Share};
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::flows::Span;

/// The longest live frame without fragments: one page less what the kernel keeps in it.
pub const MAX_LIVE_FRAME_LENGTH: u32 = 3408;
/// Runs of the program per call at most: some 15 ms, which is how late a stop may be seen.
const MAX_RUNS: u32 = 65_536;
const FIRST_RUNS: u32 = 1024;
/// How long a call should take, ns.
const CALL_NS: u64 = 5_000_000;
/// Frames that go to the driver together, without a rate.
const BATCH: u32 = 64;
const MAX_BATCH: u32 = 256;
/// A gap in the schedule that is slept through, ns, and how much before its end the program runs again: a sleep ends late.
const LONG_GAP_NS: u64 = 400_000;
const EARLY_NS: u64 = 80_000;
/// Runs that take about twice that while nothing is due.
const SPIN_RUNS: u32 = 1_500;

/// One thread's program.
pub struct XdpSender {
    frames: Arc<Frames>,
    share: Share,
    layout: GeneratorProgram,
    map: SharedMap,
    /// Kept as long as the program that reads it.
    _table: Option<SharedMap>,
    program: Program,
    _kept: KeptProgram,
    first_frame: Vec<u8>,
    batch: u32,
    last_ns: AtomicU64,
}

/// Parts of a ns between two frames.
fn step_of(pace: Pace) -> u64 {
    const FRAMES: u64 = 1 << 20;
    // Over many frames, so that the step is as exact as its unit.
    let ns = u128::from(pace.due_ns(FRAMES)) << DUE_BITS;
    u64::try_from(ns / u128::from(FRAMES)).unwrap_or(u64::MAX).max(1)
}

fn batch_of(asked: Option<u32>, pace: Option<Pace>) -> u32 {
    asked.map_or_else(
        || match pace.map(|pace| pace.count_within(1_000_000_000)) {
            // A frame waits until its batch is full, unless nothing is due: small batches are low latency.
            Some(0..=200_000) => 4,
            Some(200_001..=2_000_000) => 16,
            _ => BATCH,
        },
        |batch| batch.clamp(1, MAX_BATCH),
    )
}

impl XdpSender {
    /// Gives the program of a share to the kernel.
    pub fn open(frames: &Arc<Frames>, share: &Share) -> Result<Self, ErrorReport> {
        let doing = |error: &io::Error| system_error("preparing the generator's program", error);
        let bytes = frames.plan.sizes[0].bytes;
        let flows = frames.spec.flows;
        let image = |index: u32| frames.plan.image((share.flow(index), 0), flows.count, bytes, frames.own);
        let first = image(0);
        let table = frames.popularity.as_deref().map(share_table).transpose().map_err(|error| doing(&error))?;
        let order = match (&table, flows.order) {
            (Some(table), _) => FlowOrder::Table(table.number()),
            (None, FieldOrder::Random) => FlowOrder::Random,
            (None, FieldOrder::InTurn) => FlowOrder::InTurn,
        };
        let mut layout = GeneratorProgram {
            map: -1,
            interface: frames.interface.index,
            frame_bytes: bytes as usize,
            header_bytes: first.header_bytes.min(bytes as usize - frames.plan.trailer_bytes()),
            checksum: first.checksum,
            flows: share.flows,
            order,
            test_id: frames.spec.test_id,
            is_timed: frames.plan.is_timed,
            stamp_every: frames.spec.stamp_every,
            step: share.pace.map(step_of),
        };
        let mut map = SharedMap::new(layout.shared_bytes()).map_err(|error| doing(&error))?;
        layout.map = map.number();
        for index in 0..share.flows {
            let (at, length) = (layout.record_at(index), layout.record_bytes());
            layout.write_record(&mut map.bytes_mut()[at..at + length], share.flow(index), &image(index));
        }
        map.write(control::RANDOM, Random::new(flows.seed ^ u64::from(share.thread) << 32).state());
        let program = Program::load(&layout.assemble()).map_err(|refusal| {
            input_error(
                "no_bpf",
                format!("the kernel refuses the generator's program: {}; {}", refusal.error, refusal.log),
            )
        })?;
        let kept = KeptProgram::keep(&program).map_err(|error| doing(&error))?;
        Ok(Self {
            frames: Arc::clone(frames),
            share: share.clone(),
            layout,
            map,
            _table: table,
            program,
            _kept: kept,
            first_frame: first.bytes,
            batch: batch_of(frames.spec.batch, share.pace),
            last_ns: AtomicU64::new(0),
        })
    }

    fn call(&self, runs: u32) -> io::Result<()> {
        match self.program.run_live(&self.first_frame, runs, self.batch.min(runs)) {
            // The program has counted what it sent.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// As fast as it goes: each run sends a frame.
    fn send_at_once(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        let mut runs = FIRST_RUNS;
        let mut renewal = Renewal::new(self, span.at_ns);
        loop {
            let now_ns = monotonic_ns();
            let left = self.share.number.map_or(u64::MAX, |number| number - self.map.read(control::SENT));
            if left == 0 || now_ns >= span.end_ns || signal.stopped() {
                return Ok(());
            }
            renewal.renew(now_ns);
            self.call(runs.min(u32::try_from(left).unwrap_or(u32::MAX)))?;
            let took_ns = (monotonic_ns() - now_ns).max(1);
            let time_ns = CALL_NS.min(span.end_ns.saturating_sub(now_ns + took_ns)).max(took_ns / 64);
            let next = u128::from(runs) * u128::from(time_ns) / u128::from(took_ns);
            runs = u32::try_from(next).unwrap_or(MAX_RUNS).clamp(u32::min(FIRST_RUNS, self.batch), MAX_RUNS);
        }
    }

    /// At a rate: runs before the next frame is due send nothing.
    fn send_paced(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        minimize_timer_slack();
        let begin_ns = span.at_ns + self.share.later_ns;
        let mut renewal = Renewal::new(self, span.at_ns);
        loop {
            let now_ns = monotonic_ns();
            if self.map.read(control::LEFT) == 0 || now_ns >= span.end_ns || signal.stopped() {
                return Ok(());
            }
            renewal.renew(now_ns);
            let due_ns = begin_ns + (self.map.read(control::DUE) >> DUE_BITS);
            if due_ns > now_ns + LONG_GAP_NS {
                let wake_ns = (due_ns - EARLY_NS).min(span.end_ns);
                if wake_ns > now_ns + 10_000_000 {
                    signal.sleep_until(wake_ns);
                } else {
                    sleep_until(wake_ns);
                }
                self.call(SPIN_RUNS)?;
            } else if due_ns > now_ns && due_ns - now_ns > EARLY_NS {
                self.call(SPIN_RUNS)?;
            } else {
                self.call(MAX_RUNS.min(self.runs_for(span.end_ns - now_ns)))?;
            }
        }
    }

    /// Runs that end about at an instant, whether frames are due or not.
    fn runs_for(&self, left_ns: u64) -> u32 {
        const SLOWEST_RUN_NS: u64 = 300;
        let step_ns = (self.layout.step.unwrap_or(0) >> DUE_BITS).max(1);
        // Where frames are far apart most runs are short ones.
        let run_ns = SLOWEST_RUN_NS.min(step_ns.max(100));
        u32::try_from(left_ns / run_ns + 1).unwrap_or(MAX_RUNS)
    }
}

impl Sender for XdpSender {
    fn send(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        if self.share.pace.is_none() {
            self.send_at_once(span, signal)?;
            self.last_ns.store(monotonic_ns(), Ordering::Relaxed);
            return Ok(());
        }
        self.map.write(control::BEGIN_NS, span.at_ns + self.share.later_ns);
        self.map.write(control::LEFT, self.share.due(span.end_ns - span.at_ns).unwrap_or(0));
        self.send_paced(span, signal)?;
        self.last_ns.store(self.map.read(control::LAST_NS), Ordering::Relaxed);
        Ok(())
    }

    fn due(&self, elapsed_ns: u64) -> Option<u64> {
        self.share.pace.and_then(|_| self.share.due(elapsed_ns))
    }

    fn so_far(&self) -> (u64, u64) {
        let sent = self.map.read(control::SENT);
        (sent, sent * self.layout.frame_bytes as u64)
    }

    fn report(&self) -> Sent {
        let frames = self.map.read(control::SENT);
        let mut late = Histogram::new();
        let count = |at: usize| self.map.read(control::LATE + 8 * at);
        late.add_counts((1..=BUCKETS).map(count), count(0));
        let flow = |index: u32| {
            let at = GeneratorProgram::next_at(self.layout.record_at(index));
            let sent = u64::from(self.map.read_half(at));
            PacketFlowCount { flow: self.share.flow(index), frames: sent, numbers: sent, ..Default::default() }
        };
        Sent {
            frames,
            pushback: 0,
            first_ns: None,
            last_ns: Some(self.last_ns.load(Ordering::Relaxed)).filter(|last_ns| *last_ns > 0 && frames > 0),
            late,
            by_size: vec![SizeCount { bytes: self.layout.frame_bytes as u32, frames }],
            flows: (0..self.share.flows.min(REPORTED_FLOWS)).map(flow).collect(),
        }
    }
}

/// Replaces flows by new ones between two calls.
struct Renewal<'a> {
    sender: &'a XdpSender,
    pace: Option<Pace>,
    begin_ns: u64,
    done: u64,
}

impl<'a> Renewal<'a> {
    fn new(sender: &'a XdpSender, begin_ns: u64) -> Self {
        let rate = sender.frames.spec.new_flows_per_s.map(|rate| rate / f64::from(sender.share.threads));
        Self { sender, pace: rate.and_then(Pace::per_second), begin_ns, done: 0 }
    }

    fn renew(&mut self, now_ns: u64) {
        let Some(pace) = self.pace else { return };
        let XdpSender { frames, share, layout, map, .. } = self.sender;
        let due = pace.due_count(now_ns.saturating_sub(self.begin_ns)).saturating_sub(1);
        let flows = u64::from(share.flows);
        // One turn of all flows is all that can be seen.
        for number in self.done.max(due.saturating_sub(flows))..due {
            let (index, generation) = ((number % flows) as u32, number / flows + 1);
            let flow = share.flow(index);
            let image =
                frames.plan.image((flow, generation), frames.spec.flows.count, layout.frame_bytes as u32, frames.own);
            let at = layout.record_at(index);
            let mut record: Vec<u8> =
                (0..layout.record_bytes()).step_by(8).flat_map(|place| map.read(at + place).to_ne_bytes()).collect();
            layout.write_record(&mut record, flow, &image);
            for (place, bytes) in (0..).step_by(8).zip(record.chunks_exact(8)) {
                let bytes = bytes.first_chunk::<8>().copied().unwrap_or_default();
                map.write(at + place, u64::from_ne_bytes(bytes));
            }
        }
        self.done = due;
    }
}

/// The table of popularity as memory that programs read.
fn share_table(table: &[u32]) -> io::Result<SharedMap> {
    let mut map = SharedMap::new(table.len() * 4)?;
    for (place, flow) in map.bytes_mut().chunks_exact_mut(4).zip(table) {
        place.copy_from_slice(&flow.to_ne_bytes());
    }
    Ok(map)
}
