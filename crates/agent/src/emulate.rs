//! A task `emulate`: forwards frames between two interfaces, one thread per direction. What happens to each frame is
//! decided by `leadline_transport::emulator`; this is the clock and the sockets around it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::frames::{FrameBatch, FrameSender, FrameSocket};
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::priority::minimize_timer_slack;
use leadline_transport::emulator::{Arrival, Link};
use leadline_wire::{EmulateSpec, ErrorReport, Event, LinkCounts, LinkEffects};

use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::task::Task;

/// Frames per system call.
const BATCH_FRAMES: usize = 64;
/// How often a thread without frames looks for the stop signal and publishes its counters, ns.
const LOOK_NS: u64 = 20_000_000;
/// The shortest time between events, ms: counters must not become a load.
const LEAST_INTERVAL_MS: u32 = 10;

/// Both directions, while they run.
pub struct Emulator {
    directions: [(Arc<Mutex<LinkCounts>>, JoinHandle<()>); 2],
}

/// Opens both interfaces and begins to forward.
pub fn start(spec: &EmulateSpec, signal: &Arc<ControlSignal>) -> Result<Emulator, ErrorReport> {
    for effects in [&spec.a_to_b, &spec.b_to_a] {
        check(effects)?;
    }
    if spec.a == spec.b {
        return Err(input_error("bad_spec", format!("both ends of the link are {}", spec.a)));
    }
    let [a, b] = [open(&spec.a)?, open(&spec.b)?];
    let forward = start_direction(&a, &b, Link::new(spec.a_to_b, spec.seed), signal)?;
    // The other direction's seed is another one.
    let backward = start_direction(&b, &a, Link::new(spec.b_to_a, !spec.seed), signal)?;
    Ok(Emulator { directions: [forward, backward] })
}

impl Emulator {
    /// Sends the counters each interval until the task is stopped, and once more when both directions have ended.
    pub fn report(self, interval_ms: u32, task: &Task) {
        let interval_ns = u64::from(interval_ms.max(LEAST_INTERVAL_MS)) * 1_000_000;
        let mut due_ns = monotonic_ns();
        while !task.signal.stopped() {
            due_ns = (due_ns + interval_ns).max(monotonic_ns());
            task.signal.sleep_until(due_ns);
            if !task.signal.stopped() {
                self.send(task, false);
            }
        }
        let counts = self.directions.map(|(counts, thread)| {
            let _ = thread.join();
            let counts = *locked(&counts);
            counts
        });
        send(task, counts, true);
    }

    fn send(&self, task: &Task, ended: bool) {
        let [(forward, _), (backward, _)] = &self.directions;
        send(task, [*locked(forward), *locked(backward)], ended);
    }
}

fn send(task: &Task, [a_to_b, b_to_a]: [LinkCounts; 2], ended: bool) {
    let (trial, name) = (task.trial.clone(), task.name.clone());
    task.events.send(&Event::Emulated { trial, task: name, t_ns: monotonic_ns(), a_to_b, b_to_a, ended });
}

/// Refuses numbers that are no shares, and a rate of 0.
fn check(effects: &LinkEffects) -> Result<(), ErrorReport> {
    let LinkEffects { loss, reorder, duplicate, corrupt, loss_burst, rate_bps, .. } = *effects;
    let shares = [("loss", loss), ("reorder", reorder), ("duplicate", duplicate), ("corrupt", corrupt)];
    for (name, share) in shares {
        if !(0.0..=1.0).contains(&share) {
            return Err(input_error("bad_spec", format!("{name} is {share}; it can be from 0 to 1")));
        }
    }
    if !loss_burst.is_finite() || rate_bps == Some(0) {
        return Err(input_error("bad_spec", "a link's rate is at least 1 bit/s and its mean burst a number"));
    }
    Ok(())
}

fn open(interface: &str) -> Result<Arc<FrameSocket>, ErrorReport> {
    let socket = FrameSocket::open(interface);
    socket.map(Arc::new).map_err(|error| system_error(&format!("opening frames of {interface}"), &error))
}

fn start_direction(
    from: &Arc<FrameSocket>,
    to: &Arc<FrameSocket>,
    link: Link,
    signal: &Arc<ControlSignal>,
) -> Result<(Arc<Mutex<LinkCounts>>, JoinHandle<()>), ErrorReport> {
    let starting = |error: io::Error| system_error("starting the link emulator", &error);
    let poll = Poll::new(1).and_then(|poll| poll.add(from.as_ref(), 0, Interest::Read).map(|()| poll));
    let counts = Arc::new(Mutex::new(LinkCounts::default()));
    let mut direction = Direction {
        from: Arc::clone(from),
        to: Arc::clone(to),
        poll: poll.map_err(starting)?,
        link,
        batch: FrameBatch::new(BATCH_FRAMES),
        sender: FrameSender::new(),
        leaving: Vec::with_capacity(BATCH_FRAMES),
        forwarder: LinkCounts::default(),
        late: Lateness::default(),
        published: Arc::clone(&counts),
    };
    let signal = Arc::clone(signal);
    let body = move || direction.run(&signal);
    let thread = thread::Builder::new().name("emulator".to_owned()).spawn(body).map_err(starting)?;
    Ok((counts, thread))
}

/// One direction: its sockets, its machine, and what only the forwarder can count.
struct Direction {
    from: Arc<FrameSocket>,
    to: Arc<FrameSocket>,
    poll: Poll,
    link: Link,
    batch: FrameBatch,
    sender: FrameSender,
    leaving: Vec<Vec<u8>>,
    forwarder: LinkCounts,
    late: Lateness,
    published: Arc<Mutex<LinkCounts>>,
}

/// How late frames left.
#[derive(Default)]
struct Lateness {
    frames: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Direction {
    fn run(&mut self, signal: &ControlSignal) {
        minimize_timer_slack();
        let mut publish_ns = 0;
        while !signal.stopped() {
            let now_ns = monotonic_ns();
            if now_ns >= publish_ns {
                self.publish();
                publish_ns = now_ns + LOOK_NS;
            }
            let until_ns = self.link.next_due_ns().map_or(publish_ns, |due_ns| due_ns.min(publish_ns));
            // An error of the poll would be a defect; the loop then still ends with the task.
            let is_readable = self.poll.wait(Some(until_ns)).is_ok_and(|ready| ready.count() > 0);
            if is_readable {
                self.receive();
            }
            self.forward();
        }
        self.publish();
    }

    /// Takes one batch: between two of them, frames that are due leave.
    fn receive(&mut self) {
        let Ok(received) = self.batch.receive(&self.from) else { return };
        for index in 0..received {
            let Some(frame) = self.batch.frame(index).filter(|frame| frame.is_single) else {
                self.forwarder.unfit += 1;
                continue;
            };
            let arrival = Arrival { bytes: frame.bytes, tag: frame.tag, checksum: frame.checksum };
            self.link.handle_frame(frame.arrived_ns, &arrival);
        }
    }

    fn forward(&mut self) {
        loop {
            let now_ns = monotonic_ns();
            while self.leaving.len() < BATCH_FRAMES {
                let Some((due_ns, frame)) = self.link.poll_due(now_ns) else { break };
                self.late.add(now_ns.saturating_sub(due_ns));
                self.leaving.push(frame);
            }
            if self.leaving.is_empty() {
                return;
            }
            self.forwarder.refused += self.sender.send(&self.to, self.leaving.iter().map(Vec::as_slice));
            for frame in self.leaving.drain(..) {
                self.link.recycle(frame);
            }
        }
    }

    fn publish(&mut self) {
        self.forwarder.overrun += self.from.overruns().unwrap_or(0);
        let LinkCounts { all, udp, .. } = self.link.counts();
        let late_mean_ns = self.late.sum_ns.checked_div(self.late.frames);
        let late_max_ns = late_mean_ns.map(|_| self.late.max_ns);
        *locked(&self.published) = LinkCounts { all, udp, late_mean_ns, late_max_ns, ..self.forwarder };
    }
}

impl Lateness {
    fn add(&mut self, late_ns: u64) {
        self.frames += 1;
        self.sum_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
    }
}

fn locked(counts: &Mutex<LinkCounts>) -> MutexGuard<'_, LinkCounts> {
    // Plain numbers: a panic in another thread cannot have left them half-written.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_effects_are_refused() {
        let none = LinkEffects::default();
        assert!(check(&none).is_ok());
        let wrong = [
            LinkEffects { loss: 1.5, ..none },
            LinkEffects { reorder: f64::NAN, ..none },
            LinkEffects { duplicate: -0.1, ..none },
            LinkEffects { corrupt: f64::INFINITY, ..none },
            LinkEffects { loss_burst: f64::NAN, ..none },
            LinkEffects { rate_bps: Some(0), ..none },
        ];
        for effects in wrong {
            assert_eq!(check(&effects).unwrap_err().code, "bad_spec");
        }
    }
}
