//! The outcome of a fleet, from the figures of its threads. Each client is in exactly one of `configured`, `partial`,
//! `failed` and `waiting`. Each failed attempt, and each `partial` tunnel, is in exactly one of the errors.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_tunnel::client::effects::Counts;
use leadline_tunnel::client::phase::{Phase, Steps, PHASES};
use leadline_tunnel::client::VpnClient;
use leadline_tunnel::protocol::Step;
use leadline_wire::{
    unless_zero, Counts as WireCounts, LoadReport, Outcome, Side, Standing, ThreadReport, TunnelAttemptReport,
    TunnelClientReport, TunnelCounts, TunnelPacketSizes, TunnelReport, TunnelState,
};

use super::fleet::Fleet;
use super::traffic::Figures;
use super::transport::TransportSocket;
use crate::failures::Failures;
use crate::metering::{Collector, FlowCounters};

/// The cause of failure of clients whose thread has panicked.
const BROKEN_DOWN: &str = "thread_broke_down";

/// A worker's report at its end.
pub struct WorkerReport {
    /// The cost of its thread; unknown if the thread panicked.
    pub thread: Option<ThreadReport>,
    pub tally: Tally,
    pub failures: Failures,
    /// One per client.
    pub rows: Vec<TunnelClientReport>,
    /// One per recorded attempt.
    pub attempts: Vec<TunnelAttemptReport>,
    /// The packet sizes that pass a tunnel that lost most of its load.
    pub packet_sizes: Option<TunnelPacketSizes>,
    /// The figures of its clients' traffic.
    pub figures: Vec<Figures>,
}

/// The state of a worker during the load.
pub struct Snapshot {
    pub worker: u32,
    pub tally: Tally,
    pub errors: BTreeMap<String, u64>,
    pub thread: ThreadReport,
}

/// The counts of one worker.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Clients by phase.
    pub phases: [u32; PHASES],
    /// The counts of the clients' machines.
    pub counts: Counts,
    /// The counts of the clients' sockets.
    pub sockets: SocketTally,
    /// Clients by the steps of the tunnels that they had at the end.
    pub reached: ReachedSteps,
}

/// Clients whose tunnel had completed a step at the end; `None` for a step that the protocol does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReachedSteps {
    ike_up: Option<u64>,
    ip_assigned: Option<u64>,
    child_up: Option<u64>,
    /// Of the protocols with `child_up`: clients to which a packet has come back as well.
    traffic_both_ways: Option<u64>,
}

impl ReachedSteps {
    /// Counts the clients that have a tunnel.
    pub fn of<'a>(protocol_steps: &[Step], machines: impl Iterator<Item = &'a VpnClient>) -> Self {
        let up = machines.filter(|machine| machine.phase().is_up()).filter_map(VpnClient::attempt);
        let steps: Vec<Steps> = up.map(|attempt| attempt.steps).collect();
        let count = |step: Step, at_ns: fn(&Steps) -> Option<u64>| {
            let reached = || steps.iter().filter(|steps| at_ns(steps).is_some()).count() as u64;
            protocol_steps.contains(&step).then(reached)
        };
        Self {
            ike_up: count(Step::IkeUp, |steps| steps.ike_up_ns),
            ip_assigned: count(Step::IpAssigned, |steps| steps.ip_assigned_ns),
            child_up: count(Step::ChildUp, |steps| steps.child_up_ns),
            traffic_both_ways: count(Step::ChildUp, |steps| steps.child_up_ns.and(steps.configured_ns)),
        }
    }
}

/// The counts of a worker's sockets.
#[derive(Clone, Debug, Default)]
pub struct SocketTally {
    /// Sockets with a port that another client had used before, because the system offered no other.
    pub ports_again: u64,
    /// Packets that the socket did not accept at once.
    pub pushback: u64,
    /// Packets that the socket refused with an error.
    pub not_sent: u64,
    /// Received datagrams for which closed sockets had no room; `None`: no socket has reported a number.
    pub drops: Option<u64>,
}

impl SocketTally {
    /// Adds the drops of a socket that is about to be closed.
    pub fn count_drops(&mut self, transport: &TransportSocket) {
        if let Some(drops) = transport.receive_drops() {
            *self.drops.get_or_insert(0) += drops;
        }
    }
}

impl Tally {
    /// The clients for which a fleet waits: those without an answer, and those that failed and will try again.
    fn waiting_clients(&self) -> TunnelCounts {
        let clients = |phase: Phase| u64::from(self.phases[phase as usize]);
        let mut counts = TunnelCounts { resting: Some(clients(Phase::Resting)), ..TunnelCounts::default() };
        counts.traffic.unanswered = Some(clients(Phase::Connecting) + clients(Phase::Asking));
        counts
    }

    /// Returns the counts for the report; rare counters without an event are left out.
    fn reported(&self) -> TunnelCounts {
        let clients = |phase: Phase| u64::from(self.phases[phase as usize]);
        let trying = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving].map(clients);
        let counts = &self.counts;
        let [before, during, after] = counts.pings.by_time;
        TunnelCounts {
            configured: clients(Phase::Configured),
            partial: [Phase::Partial, Phase::Overdue, Phase::Contested].map(clients).iter().sum(),
            failed: clients(Phase::Failed) + clients(Phase::Resting),
            waiting: clients(Phase::Waiting),
            connecting: Some(trying.iter().sum()),
            attempts: counts.attempts,
            resets_sent: counts.resets_sent,
            retransmits: counts.retransmits,
            recovered: counts.recovered,
            lost: counts.lost,
            recovered_partial: unless_zero(counts.recovered_partial),
            reconnects_begun: unless_zero(counts.reconnects_begun),
            renegotiated: unless_zero(counts.renegotiated),
            renegotiations_asked: unless_zero(counts.renewals_asked),
            renegotiations_unfinished: unless_zero(counts.renewals_unfinished),
            renegotiations_failed: unless_zero(counts.renewals_failed),
            auth_pending: unless_zero(counts.auth_pending),
            cookies_received: unless_zero(counts.cookies_received),
            updated: unless_zero(counts.updated),
            updated_not_unique: unless_zero(counts.shared_later),
            actions_skipped: unless_zero(counts.actions_skipped),
            ports_again: unless_zero(self.sockets.ports_again),
            datagrams_refused: unless_zero(counts.refused),
            socket_errors: unless_zero(counts.socket_errors),
            packets_not_sent: unless_zero(self.sockets.not_sent),
            packets_rejected: unless_zero(counts.rejected),
            packets_replayed: unless_zero(counts.replayed),
            ike_up: self.reached.ike_up,
            ip_assigned: self.reached.ip_assigned,
            child_up: self.reached.child_up,
            traffic_both_ways: self.reached.traffic_both_ways,
            pings_sent: unless_zero(counts.pings.sent),
            pings_answered: unless_zero(counts.pings.answered),
            pings_unsent: unless_zero(counts.pings.unsent),
            pings_sent_before: unless_zero(before.0),
            pings_answered_before: unless_zero(before.1),
            pings_sent_during: unless_zero(during.0),
            pings_answered_during: unless_zero(during.1),
            pings_sent_after: unless_zero(after.0),
            pings_answered_after: unless_zero(after.1),
            ..TunnelCounts::default()
        }
    }
}

/// The report of a worker that panicked: its clients have failed, and the clients of the other threads keep their
/// figures.
pub fn broken_down(number: u32, threads: u32, clients: u32, panic: &(dyn Any + Send)) -> WorkerReport {
    let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    let rows: Vec<_> = (number..clients)
        .step_by(threads.max(1) as usize)
        .map(|client| TunnelClientReport {
            client,
            state: TunnelState::Failed,
            cause: Some(BROKEN_DOWN.into()),
            ..TunnelClientReport::default()
        })
        .collect();
    let (mut tally, mut failures) = (Tally::default(), Failures::default());
    tally.phases[Phase::Failed as usize] = rows.len() as u32;
    failures.count(BROKEN_DOWN, rows.len() as u64, || {
        format!("a thread of the agent panicked: {}", message.unwrap_or("no message"))
    });
    WorkerReport { thread: None, tally, failures, rows, attempts: Vec::new(), packet_sizes: None, figures: Vec::new() }
}

/// Returns the outcome of the whole fleet.
pub fn outcome(
    fleet: &Fleet,
    reports: Vec<WorkerReport>,
    collector: &Collector,
    peer_loads: Vec<LoadReport>,
    memory_bytes: Option<u64>,
) -> Outcome {
    let mut counts = TunnelCounts::default();
    let mut failures = Failures::default();
    let (mut threads, mut flows, mut clients) = (Vec::new(), Vec::new(), Vec::new());
    let (mut attempts, mut packet_sizes) = (Vec::new(), None);
    let (mut pushback, mut socket_drops) = (0, None);
    for report in reports {
        counts.add(&report.tally.reported());
        pushback += report.tally.sockets.pushback;
        if let Some(drops) = report.tally.sockets.drops {
            *socket_drops.get_or_insert(0) += drops;
        }
        merge(&mut failures, report.failures);
        for figures in report.figures {
            flows.extend(figures.flows);
            counts.traffic.add(&figures.counts);
            for (name, count) in figures.errors {
                let example = figures.examples.get(name);
                failures.count(name, count, || example.cloned().unwrap_or_default());
            }
        }
        clients.extend(report.rows);
        attempts.extend(report.attempts);
        packet_sizes = packet_sizes.or(report.packet_sizes);
        threads.extend(report.thread);
    }
    // A client that is still connecting when the time is over has failed; `connecting` exists only while the load
    // runs.
    counts.failed += counts.connecting.take().unwrap_or(0);
    counts.retransmits = clients.iter().map(|client: &TunnelClientReport| u64::from(client.retransmits)).sum();
    let inside = |name: &str| Some(clients.iter().filter_map(|client| client.inside.get(name)).sum());
    counts.inside_sent = inside("packets_sent");
    counts.inside_received = inside("packets_received");
    counts.histogram_overflow = unless_zero(collector.overflow());
    clients.sort_by_key(|client| client.client);
    attempts.sort_by_key(|attempt: &TunnelAttemptReport| (attempt.client, attempt.attempt));
    flows.sort_by_key(|flow| flow.flow);
    let late = collector.total(super::metric::Metric::TrafficLate as usize);
    Outcome {
        flows,
        histograms: collector.totals(),
        errors: failures.counts,
        error_examples: failures.examples.into_iter().filter(|(_, example)| !example.is_empty()).collect(),
        generator: LoadReport {
            side: Side::Local,
            wall_s: threads.iter().map(|thread: &ThreadReport| thread.wall_s).fold(0.0, f64::max),
            threads,
            pushback,
            late_p99_us: late.quantile_ns(0.99).map(|late_ns| late_ns as f64 / 1e3),
            socket_drops,
            engine: None,
            engine_reason: None,
            machine: None,
            quota: None,
        },
        receiver: receiver(peer_loads),
        counts: WireCounts::Tunnel(Box::new(counts)),
        tunnel: Some(Box::new(TunnelReport {
            clients,
            attempts,
            packet_sizes,
            ignored_options: fleet.plan.ignored.clone(),
            memory_bytes,
        })),
        crypto: None,
        scenario: None,
        packets: None,
    }
}

/// The cost of the traffic on its far end: the sum of all sessions.
fn receiver(loads: Vec<LoadReport>) -> Option<LoadReport> {
    loads.into_iter().reduce(|mut all, one| {
        all.wall_s = all.wall_s.max(one.wall_s);
        all.threads.extend(one.threads);
        all.pushback += one.pushback;
        all.socket_drops = all.socket_drops.zip(one.socket_drops).map(|(a, b)| a + b);
        all.late_p99_us = all.late_p99_us.zip(one.late_p99_us).map(|(a, b)| a.max(b));
        all
    })
}

/// The state of the load, from the latest snapshot of each worker.
pub fn standing(snapshots: &BTreeMap<u32, Snapshot>) -> Standing {
    let (mut counts, mut errors, mut threads) = (TunnelCounts::default(), BTreeMap::new(), Vec::new());
    for snapshot in snapshots.values() {
        counts.add(&snapshot.tally.reported());
        counts.add(&snapshot.tally.waiting_clients());
        for (name, count) in &snapshot.errors {
            *errors.entry(name.clone()).or_insert(0) += count;
        }
        threads.push(snapshot.thread.clone());
    }
    Standing { counts: WireCounts::Tunnel(Box::new(counts)), errors, threads }
}

fn merge(failures: &mut Failures, more: Failures) {
    for (name, count) in more.counts {
        *failures.counts.entry(name).or_insert(0) += count;
    }
    for (name, example) in more.examples {
        failures.examples.entry(name).or_insert(example);
    }
}

/// Returns each client's counters as progress rows, if there is traffic.
pub fn progress(counters: &[Arc<FlowCounters>], has_units: bool) -> Vec<leadline_wire::FlowProgress> {
    counters.iter().zip(0..).map(|(counters, flow)| counters.progress(flow, has_units)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metering::ThreadMeter;

    #[test]
    fn panicked_thread_leaves_its_clients_failed() {
        let panic = std::thread::spawn(|| std::panic::resume_unwind(Box::new("no such place"))).join().unwrap_err();
        let report = broken_down(1, 3, 8, panic.as_ref());
        assert_eq!(report.rows.iter().map(|row| row.client).collect::<Vec<_>>(), [1, 4, 7]);
        assert!(report
            .rows
            .iter()
            .all(|row| row.state == TunnelState::Failed && row.cause == Some(BROKEN_DOWN.into())));
        assert_eq!(report.failures.counts, BTreeMap::from([(BROKEN_DOWN.to_owned(), 3)]));
        assert!(report.failures.examples[BROKEN_DOWN].ends_with("no such place"));
        assert!(report.tally.reported().failed == 3 && report.thread.is_none());
    }

    #[test]
    fn standing_counts_unanswered_and_resting_clients() {
        let mut tally = Tally::default();
        let phases =
            [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving, Phase::Resting, Phase::Failed];
        for (phase, bit) in phases.into_iter().zip(0..) {
            tally.phases[phase as usize] = 1 << bit;
        }
        let thread = ThreadMeter::begin("t".to_owned(), 0).so_far(1);
        let snapshot = Snapshot { worker: 0, tally, errors: BTreeMap::new(), thread };
        let counts = standing(&BTreeMap::from([(0, snapshot)])).counts;
        let reported = ["connecting", "unanswered", "resting", "failed"].map(|name| counts[name]);
        assert_eq!(reported, [15, 3, 16, 48]);
    }
}
