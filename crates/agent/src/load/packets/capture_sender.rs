//! The frames of a capture by a packet socket, on the schedule that is asked for. The file is read while it is sent, by
//! the thread that sends, which is ahead of the schedule by a batch; it was read once before, to its end, so that it
//! is in the page cache and a mistake in it is reported before anything leaves.

use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use leadline_pace::Pace;
use leadline_packet::capture::{
    AddressMap, CaptureReader, CutFrames, Rewrite, Schedule, Selection, Survey, Timing, VlanMap, MAX_FRAME_BYTES,
};
use leadline_stats::Histogram;
use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::frames::FrameOutlet;
use leadline_sys::interfaces::Interface;
use leadline_sys::priority::minimize_timer_slack;
use leadline_wire::{CaptureSpec, CaptureTiming, ErrorReport, SizeCount};

use super::sender::{Sender, Sent};
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::flows::Span;
use crate::metering::FlowCounters;

/// Frames per call.
const BATCH: usize = 64;
/// A gap that is slept through; shorter ones pass by looking at the clock.
const LONG_GAP_NS: u64 = 400_000;
const EARLY_NS: u64 = 300_000;
/// How late a stop may be seen, ns.
const TURN_NS: u64 = 20_000_000;
const READ_BYTES: usize = 1 << 20;
const TAG_BYTES: usize = 4;
const ETHERNET_BYTES: u32 = 14;

/// What is sent of a capture, and how.
pub struct CaptureSender {
    spec: CaptureSpec,
    selection: Selection,
    rewrite: Rewrite,
    timing: Timing,
    /// Of one loop.
    pub survey: Survey,
    counters: FlowCounters,
    state: Mutex<State>,
}

struct State {
    file: Option<File>,
    outlet: FrameOutlet,
    lengths: Vec<u64>,
    last_ns: Option<u64>,
    late: Histogram,
}

/// A frame in the outlet.
#[derive(Clone, Copy, Default)]
struct Waiting {
    due_ns: u64,
    bytes: usize,
}

fn unreadable(file: &str, error: impl std::fmt::Display) -> ErrorReport {
    input_error("bad_capture", format!("{file}: {error}"))
}

impl CaptureSender {
    /// Reads the capture once, and opens the socket. `macs` are source and destination, if they are replaced.
    pub fn open(
        spec: &CaptureSpec,
        pace: Option<Pace>,
        interface: &Interface,
        macs: Option<([u8; 6], [u8; 6])>,
    ) -> Result<Self, ErrorReport> {
        let timing = match (spec.timing, pace) {
            (CaptureTiming::Top, _) => Timing::Top,
            (CaptureTiming::Rate, Some(pace)) => Timing::Frames(pace),
            (CaptureTiming::Rate, None) => return Err(input_error("bad_spec", "a capture at a rate has a rate")),
            (CaptureTiming::Own, _) => {
                let message = format!("a capture {} times as fast: from 0.000001 to 1000000 times", spec.speed);
                Timing::own(spec.speed).ok_or_else(|| input_error("bad_spec", message))?
            }
        };
        let max_frame_bytes = interface.mtu.map_or(MAX_FRAME_BYTES, |mtu| mtu + ETHERNET_BYTES + 2 * TAG_BYTES as u32);
        let cut = if spec.pads_cut_frames { CutFrames::Pad } else { CutFrames::Refuse };
        let selection = Selection { cut, max_frame_bytes };
        let refuse = |error: &dyn std::fmt::Display| unreadable(&spec.file, error);
        let file = File::open(&spec.file).map_err(|error| refuse(&leadline_sys::reason::reason(&error)))?;
        let reader = CaptureReader::open(BufReader::with_capacity(READ_BYTES, file)).map_err(|error| refuse(&error))?;
        let (survey, input) = Survey::take(reader, &selection).map_err(|error| refuse(&error))?;
        check(&survey, interface, &spec.file)?;
        let outlet = FrameOutlet::open(&interface.name, BATCH, survey.longest_bytes.min(max_frame_bytes) as usize)
            .map_err(|error| system_error(&format!("opening a packet socket on {}", interface.name), &error))?;
        let addresses = networks(spec)?;
        let rewrite = Rewrite {
            source_mac: macs.map(|macs| macs.0),
            destination_mac: macs.map(|macs| macs.1),
            sources: addresses.clone(),
            destinations: addresses,
            vlans: spec.vlan.filter(|vlan| *vlan > 0).map(|to| VlanMap { from: None, to }).into_iter().collect(),
            has_new_addresses: false,
            is_whole: false,
        };
        Ok(Self {
            spec: spec.clone(),
            selection,
            rewrite,
            timing,
            survey,
            counters: FlowCounters::default(),
            state: Mutex::new(State {
                file: Some(input.into_inner()),
                outlet,
                lengths: vec![0; max_frame_bytes as usize + 1],
                last_ns: None,
                late: Histogram::new(),
            }),
        })
    }

    /// Sends the frames that wait, each when it is due; returns false at the end of the span, or at a stop.
    fn flush(
        &self,
        state: &mut State,
        waiting: &[Waiting],
        begin_ns: u64,
        span: Span,
        signal: &ControlSignal,
    ) -> io::Result<bool> {
        let mut at = 0;
        while at < waiting.len() {
            let now_ns = monotonic_ns();
            if now_ns >= span.end_ns || signal.stopped() {
                return Ok(false);
            }
            let due_ns = begin_ns.saturating_add(waiting[at].due_ns);
            if due_ns > now_ns {
                if due_ns > now_ns + LONG_GAP_NS {
                    sleep_until((due_ns - EARLY_NS).min(now_ns + TURN_NS).min(span.end_ns));
                }
                continue;
            }
            let is_due = |frame: &Waiting| begin_ns.saturating_add(frame.due_ns) <= now_ns;
            let to = at + waiting[at..].iter().take_while(|frame| is_due(frame)).count();
            match state.outlet.send(at, to) {
                Ok(sent) => {
                    for frame in &waiting[at..at + sent] {
                        state.late.record(now_ns.saturating_sub(begin_ns.saturating_add(frame.due_ns)));
                        state.lengths[frame.bytes] += 1;
                    }
                    let bytes = waiting[at..at + sent].iter().map(|frame| frame.bytes as u64).sum();
                    self.counters.sent(bytes, sent as u64);
                    state.last_ns = Some(now_ns);
                    at += sent;
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Refuses a capture of which not every frame can be sent.
fn check(survey: &Survey, interface: &Interface, file: &str) -> Result<(), ErrorReport> {
    let refuse = |message: String| Err(input_error("bad_capture", format!("{file}: {message}")));
    if survey.cut > 0 {
        let message =
            format!("{} frames were cut when they were captured; --pad-cut fills them with zeros", survey.cut);
        return refuse(message);
    }
    if survey.too_long > 0 {
        let (long, longest) = (survey.too_long, survey.longest_bytes);
        return refuse(format!("{long} frames are too long for {}, up to {longest} bytes", interface.name));
    }
    if survey.frames == 0 {
        return refuse("it has no frame that can be sent".to_owned());
    }
    Ok(())
}

fn networks(spec: &CaptureSpec) -> Result<Vec<AddressMap>, ErrorReport> {
    let parse = |text: &str| -> Option<(IpAddr, u8)> {
        let (address, bits) = text.split_once('/')?;
        Some((address.parse().ok()?, bits.parse().ok()?))
    };
    let map = |(from, to): (&String, &String)| {
        let both = parse(from).zip(parse(to)).filter(|((_, from), (_, to))| from == to);
        let found = both.and_then(|((from, bits), (to, _))| AddressMap::new(from, to, bits));
        let message = format!("{from} to {to}: write two networks of one length, as in 10.0.0.0/8 to 198.18.0.0/8");
        found.ok_or_else(|| input_error("bad_spec", message))
    };
    spec.networks.iter().map(map).collect()
}

/// Takes all tags away.
fn strip_tags(frame: &mut Vec<u8>) {
    while frame.len() >= 18 && matches!([frame[12], frame[13]], [0x81, 0x00] | [0x88, 0xa8]) {
        frame.drain(12..12 + TAG_BYTES);
    }
}

impl Sender for CaptureSender {
    fn send(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        minimize_timer_slack();
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let mut schedule = Schedule::new(self.timing, None);
        let damaged = |error: leadline_packet::capture::CaptureError| io::Error::other(error.to_string());
        let (mut frame, mut loop_number) = (Vec::new(), 0u64);
        let mut waiting = [Waiting::default(); BATCH];
        let mut count = 0;
        while self.spec.loops.is_none_or(|loops| loop_number < loops) {
            let mut file = state.file.take().ok_or(io::ErrorKind::NotFound)?;
            file.seek(SeekFrom::Start(0))?;
            let mut reader = CaptureReader::open(BufReader::with_capacity(READ_BYTES, file)).map_err(damaged)?;
            while let Some(captured) = reader.next_frame().map_err(damaged)? {
                let at_ns = captured.at_ns;
                if !self.selection.copy(&captured, &mut frame).is_sent() {
                    continue;
                }
                if self.spec.vlan == Some(0) {
                    strip_tags(&mut frame);
                }
                if !self.rewrite.is_none() {
                    self.rewrite.apply(&mut frame, loop_number as u32);
                }
                let due_ns = schedule.next_due_ns(at_ns, frame.len());
                state.outlet.slot(count, frame.len()).copy_from_slice(&frame);
                waiting[count] = Waiting { due_ns, bytes: frame.len() };
                count += 1;
                // A frame far ahead is no reason to let those before it wait for a full batch: they leave on time, since
                // reading a batch takes microseconds.
                if count == BATCH {
                    count = 0;
                    if !self.flush(state, &waiting, span.at_ns, span, signal)? {
                        return Ok(());
                    }
                }
            }
            schedule.begin_loop();
            loop_number += 1;
            state.file = Some(reader.into_inner().into_inner());
        }
        self.flush(state, &waiting[..count], span.at_ns, span, signal).map(|_| ())
    }

    fn due(&self, _: u64) -> Option<u64> {
        // Of one that ended early nothing says which frames were due by then.
        let whole = self.spec.loops.map(|loops| self.survey.frames.saturating_mul(loops));
        whole.filter(|frames| self.timing != Timing::Top && *frames == self.counters.sent_units())
    }

    fn so_far(&self) -> (u64, u64) {
        (self.counters.sent_units(), self.counters.sent_bytes())
    }

    fn report(&self) -> Sent {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = (0..).zip(&state.lengths).filter(|(_, frames)| **frames > 0);
        Sent {
            frames: self.counters.sent_units(),
            pushback: 0,
            first_ns: None,
            last_ns: state.last_ns,
            late: state.late.clone(),
            by_size: sizes.map(|(bytes, frames)| SizeCount { bytes, frames: *frames }).collect(),
            flows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_taken_away() {
        let mut frame = vec![0; 12];
        frame.extend([0x88, 0xa8, 0, 100, 0x81, 0, 0, 7, 8, 0, 0x45, 0]);
        strip_tags(&mut frame);
        assert_eq!(frame[12..], [8, 0, 0x45, 0]);
    }
}
