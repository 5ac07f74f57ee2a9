//! One thread's loop: it runs the machines of its users and of their connections over the thread's sockets, and waits for
//! events until the next timer.

use std::io;
use std::sync::Arc;

use leadline_scenario::connections::{ConnectionLimits, ConnectionTally, Connections, Phases};
use leadline_scenario::figures::Figures;
use leadline_scenario::{Limits, Shared, ThreadShare, Users};
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_sys::priority::minimize_timer_slack;
use leadline_wire::scenario::PopulationProgress;
use leadline_wire::{HttpCounts, StatusCounts, ThreadReport};

use super::effects::WorkerEffects;
use super::outbox::{Message, Outbox, Snapshot};
use super::plan::Plan;
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;
use crate::load::net::inputs::input;
use crate::load::net::io_backend::IoBackend;
use crate::load::net::shutdown::settle;
use crate::metering::{FlowCounters, ThreadMeter, ROLL_NS};

/// Time between two snapshots that have the figures since the beginning, ns.
const SO_FAR_NS: u64 = 1_000_000_000;
/// How long iterations may still end in order after a stop, ns.
const STOP_GRACE_NS: u64 = 5_000_000_000;

/// What a thread gets.
pub struct WorkerParts<B> {
    pub plan: Arc<Plan>,
    pub shared: Arc<Shared>,
    pub backend: B,
    pub counters: Arc<FlowCounters>,
    pub share: ThreadShare,
    pub interval_ns: u64,
    pub outbox: Outbox,
}

/// A thread's figures at its end.
pub struct WorkerReport {
    pub figures: Figures,
    pub counts: HttpCounts,
    pub phases: Phases,
    pub thread: ThreadReport,
    pub first_sent_ns: Option<u64>,
    pub end_ns: Option<u64>,
    /// The largest memory of the users that a snapshot found, bytes.
    pub memory_bytes: u64,
}

/// What the users of a thread need to know.
pub struct UserContext {
    pub shared: Arc<Shared>,
    pub share: ThreadShare,
    pub limits: Limits,
    /// The wall clock's time less the monotonic clock's, ns.
    pub wall_offset_ns: i64,
}

/// Runs a thread from the start of the test, `at_ns`, to its end; returns what it came to, and its users, whose figures
/// are in the report.
pub fn run<B: IoBackend, U: Users>(
    parts: WorkerParts<B>,
    make_users: impl FnOnce(&Plan, UserContext) -> U,
    at_ns: u64,
    signal: &ControlSignal,
) -> io::Result<(WorkerReport, U)> {
    let WorkerParts { plan, shared, mut backend, counters, share, interval_ns, outbox } = parts;
    minimize_timer_slack();
    backend.begin()?;
    let offset_ns = (realtime_ns() as i64).wrapping_sub(monotonic_ns() as i64);
    let limits = Limits { at_ns, duration_ns: plan.duration_ns, warmup_ns: plan.warmup_ns };
    let users = make_users(&plan, UserContext { shared, share, limits, wall_offset_ns: offset_ns });
    let connections = Connections::new(ConnectionLimits {
        connections: plan.connections,
        connections_per_user: plan.connections_per_user,
        connect_timeout_ns: plan.connect_timeout_ns,
        response_timeout_ns: plan.response_timeout_ns,
    });
    let next_so_far_ns = plan.reports_so_far.then(|| at_ns + SO_FAR_NS);
    let number = share.index as usize;
    let effects = WorkerEffects::new(plan, users, backend, counters, number);
    let mut worker = Worker { connections, effects, number, interval_ns, outbox, next_so_far_ns, memory_bytes: 0 };
    worker.await_start(at_ns, signal)?;
    worker.run(signal)
}

struct Worker<B, U> {
    connections: Connections,
    effects: WorkerEffects<B, U>,
    number: usize,
    interval_ns: u64,
    outbox: Outbox,
    /// When the next snapshot has the figures since the beginning, ns, if one does.
    next_so_far_ns: Option<u64>,
    memory_bytes: u64,
}

impl<B: IoBackend, U: Users> Worker<B, U> {
    fn await_start(&mut self, at_ns: u64, signal: &ControlSignal) -> io::Result<()> {
        let mut now_ns = monotonic_ns();
        while now_ns < at_ns && !signal.stopped() {
            self.effects.backend.wait(at_ns.min(now_ns + TURN_NS))?;
            now_ns = monotonic_ns();
        }
        Ok(())
    }

    fn run(mut self, signal: &ControlSignal) -> io::Result<(WorkerReport, U)> {
        let mut now_ns = monotonic_ns();
        let meter = ThreadMeter::begin(format!("scenario-{}", self.number), now_ns);
        let spun_before_ns = self.effects.backend.spun_ns();
        let mut next_snapshot_ns = now_ns + self.interval_ns.min(ROLL_NS);
        let mut stop_by_ns = None;
        loop {
            if signal.stopped() && stop_by_ns.is_none() {
                self.effects.users.stop();
                stop_by_ns = Some(now_ns.saturating_add(STOP_GRACE_NS));
            }
            let until_ns = stop_by_ns.map_or(next_snapshot_ns, |stop_by_ns| next_snapshot_ns.min(stop_by_ns));
            let next_ns = self.run_once(now_ns, until_ns)?;
            let is_over = stop_by_ns.is_some_and(|stop_by_ns| next_ns >= stop_by_ns);
            if self.effects.users.is_done() || is_over || signal.abandoned() {
                break;
            }
            now_ns = next_ns;
            if now_ns >= next_snapshot_ns {
                next_snapshot_ns = now_ns + self.interval_ns.min(ROLL_NS);
                let mut thread = meter.so_far(now_ns);
                thread.spun_s = Some(self.spun_s(spun_before_ns));
                self.publish(thread, now_ns);
            }
        }
        now_ns = monotonic_ns();
        let mut thread = meter.end(now_ns);
        thread.spun_s = Some(self.spun_s(spun_before_ns));
        self.effects.users.finish(now_ns);
        self.publish(thread.clone(), now_ns);
        self.connections.finish(now_ns, &mut self.effects);
        let counts = self.counts();
        // The time is over: if this fails, the sockets are closed at once, and the figures stay valid.
        let _ = settle(self.effects.kept.take());
        let tried_until_ns = self.effects.users.tried_until_ns();
        let figures = std::mem::take(self.effects.users.figures());
        let ConnectionTally { phases, first_sent_ns, last_ns, .. } = self.connections.into_tally();
        let report = WorkerReport {
            figures,
            counts,
            phases,
            thread,
            first_sent_ns,
            end_ns: ended_ns(first_sent_ns, last_ns, tried_until_ns),
            memory_bytes: self.memory_bytes,
        };
        Ok((report, self.effects.users))
    }

    /// Does what is due and waits for events, until `until_ns` at most; returns the time after that.
    fn run_once(&mut self, now_ns: u64, until_ns: u64) -> io::Result<u64> {
        let Self { connections, effects, .. } = self;
        effects.kept.begin_turn(now_ns);
        effects.take_resolved(connections, now_ns);
        connections.check_deadlines(now_ns, effects);
        let next_ns = effects.users.run(now_ns);
        effects.apply_effects(connections, now_ns);
        let next_poll_ns = effects.resolver.next_poll_ns(now_ns);
        let until_ns = [next_ns, connections.deadline_ns(), next_poll_ns, Some(now_ns + TURN_NS)]
            .into_iter()
            .flatten()
            .fold(until_ns, u64::min);
        effects.backend.wait(until_ns)?;
        connections.note_handed_over(effects);
        while let Some((slot, at_ns, completion)) = effects.backend.completion()? {
            if let Some(input) = input(completion) {
                connections.handle(slot as u32, at_ns, input, effects);
            }
            effects.apply_effects(connections, at_ns);
            if connections.make_room(at_ns, effects) {
                effects.apply_effects(connections, at_ns);
            }
        }
        self.send_samples();
        Ok(monotonic_ns())
    }

    /// Passes on the closed batches of samples.
    fn send_samples(&mut self) {
        let Some(samples) = self.effects.users.samples() else { return };
        while let Some(batch) = samples.take() {
            self.outbox.send_samples(batch);
        }
    }

    fn spun_s(&self, before_ns: u64) -> f64 {
        (self.effects.backend.spun_ns() - before_ns) as f64 / 1e9
    }

    fn counts(&self) -> HttpCounts {
        let ConnectionTally { counts, status, .. } = self.connections.tally();
        let counters = &self.effects.counters;
        HttpCounts {
            requests_sent: counters.sent_units(),
            responses: counters.received_units(),
            bytes: counters.received_bytes(),
            status: StatusCounts::of(*status),
            ..counts.clone()
        }
    }

    fn publish(&mut self, thread: ThreadReport, now_ns: u64) {
        let counts = HttpCounts { connections: Some(self.connections.open()), ..self.counts() };
        let (memory_bytes, _) = self.effects.users.memory();
        self.memory_bytes = self.memory_bytes.max(memory_bytes as u64);
        let program = Arc::clone(&self.effects.plan.program);
        let figures = self.effects.users.figures();
        let populations = figures.populations.iter().zip(&program.populations);
        let populations = populations.map(|(population, definition)| PopulationProgress {
            name: definition.name.clone(),
            users_active: population.iterations.running,
            users: population.users,
            iterations: population.iterations.clone(),
            histograms: Vec::new(),
        });
        let populations = populations.collect();
        let (recent, iterations) = (figures.take_recent(), figures.take_recent_iterations());
        let has_so_far = self.next_so_far_ns.is_some_and(|next_ns| now_ns >= next_ns);
        let so_far = has_so_far.then(|| {
            self.next_so_far_ns = Some(now_ns + SO_FAR_NS);
            Box::new(figures.clone())
        });
        let snapshot = Snapshot { worker: self.number, counts, populations, recent, iterations, thread, so_far };
        self.outbox.send(Message::Snapshot(snapshot));
        if let Some(samples) = self.effects.users.samples() {
            samples.close();
        }
        self.send_samples();
    }
}

/// Returns when the thread's flow ended, ns: with its last exchange, and not before its users' time was over or the test was
/// stopped. A server that falls silent does not shorten the flow.
fn ended_ns(first_sent_ns: Option<u64>, last_ns: Option<u64>, tried_until_ns: Option<u64>) -> Option<u64> {
    if first_sent_ns.is_none() {
        return last_ns;
    }
    last_ns.max(tried_until_ns)
}
