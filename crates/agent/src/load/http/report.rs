//! The outcome of a load, from the figures of its threads. Every request that was due is in exactly one of
//! `responses`, `unanswered` (sent completely, and outstanding at the end), `unsent` (not sent completely at the end)
//! and the errors. Failed connection attempts are errors without a request. `latency` holds one value for each
//! response. `latency_censored` holds the age of each request that timed out, was outstanding at the end or was never
//! sent: its latency is at least this age.

use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_http::client::Tally;
use leadline_stats::Histogram;
use leadline_sys::{net, tcp};
use leadline_wire::{
    unless_zero, Counts, Direction, FlowReport, HttpCounts, LoadReport, Outcome, Side, Standing, StatusCounts,
    ThreadReport,
};
use socket2::Socket;

use super::plan::Plan;
use super::scripted::Scripted;
use crate::failures::Failures;
use crate::load::net::io_backend::Engine;
use crate::metering::{Collector, FlowCounters};

/// A worker's report at its end.
pub struct WorkerReport {
    /// The cost of its thread, from the start to the end.
    pub thread: ThreadReport,
    /// Its counts apart from those of `FlowCounters`.
    pub tally: Tally,
    /// Its failures.
    pub failures: Failures,
    /// TCP figures of the connections that were open at the end.
    pub tcp: TcpSummary,
    /// Requests that were due.
    pub due: u64,
    /// Lateness of paced requests: from when they were due and a connection was free until they were sent.
    pub late: Option<Histogram>,
    /// The thread's script, which the main Lua state may still read.
    pub script: Option<Box<Scripted>>,
}

/// The state of a worker during the load.
pub struct Snapshot {
    /// The worker's number.
    pub worker: usize,
    /// Its counts.
    pub tally: Tally,
    /// Requests that have been due.
    pub due: u64,
    /// Open connections.
    pub connections: u64,
    /// Failures by name.
    pub errors: BTreeMap<String, u64>,
    /// The cost of its thread so far.
    pub thread: ThreadReport,
}

/// TCP figures of the open connections.
#[derive(Default)]
pub struct TcpSummary {
    retransmits: Option<u64>,
    rtt_mean_us: Option<f64>,
    congestion: Option<String>,
}

impl TcpSummary {
    /// Reads the kernel's TCP figures of each connection.
    pub fn of<'s>(sockets: impl Iterator<Item = &'s Socket>) -> Self {
        let mut summary = Self::default();
        let (mut rtt_sum_us, mut count) = (0, 0);
        for socket in sockets {
            if let Ok(info) = tcp::tcp_info(socket) {
                *summary.retransmits.get_or_insert(0) += u64::from(info.retransmits);
                rtt_sum_us += u64::from(info.rtt_us);
                count += 1;
            }
            if summary.congestion.is_none() {
                summary.congestion = net::congestion(socket);
            }
        }
        summary.rtt_mean_us = (count > 0).then(|| rtt_sum_us as f64 / f64::from(count));
        summary
    }
}

/// Returns the outcome of the whole load.
pub fn outcome(
    plan: &Plan,
    at_ns: u64,
    engine: (Engine, Option<String>),
    reports: Vec<WorkerReport>,
    counters: &[Arc<FlowCounters>],
    collector: &Collector,
) -> Outcome {
    let late_p99_us = late_p99_us(&reports);
    let mut counts = HttpCounts::default();
    let mut failures = Failures::default();
    let (mut flows, mut threads) = (Vec::new(), Vec::new());
    let mut pushback = 0;
    for ((report, counters), flow) in reports.into_iter().zip(counters).zip(0..) {
        flows.push(flow_report(plan, at_ns, flow, &report, counters));
        counts.add(&worker_counts(&report.tally, report.due, counters));
        for (name, count) in report.failures.counts {
            *failures.counts.entry(name).or_insert(0) += count;
        }
        for (name, example) in report.failures.examples {
            failures.examples.entry(name).or_insert(example);
        }
        pushback += report.tally.pushback;
        threads.push(report.thread);
    }
    counts.histogram_overflow = unless_zero(collector.overflow());
    // The time that the threads' CPU times cover.
    let wall_s = threads.iter().map(|thread: &ThreadReport| thread.wall_s).fold(0.0, f64::max);
    let histograms = collector.totals();
    let (engine, engine_reason) = engine;
    let generator = LoadReport {
        side: Side::Local,
        wall_s,
        threads,
        pushback,
        late_p99_us,
        socket_drops: None,
        engine: Some(engine.name().to_owned()),
        engine_reason,
        machine: None,
        quota: None,
    };
    let Failures { counts: errors, examples: error_examples } = failures;
    let counts = Counts::Http(Box::new(counts));
    Outcome {
        flows,
        histograms,
        errors,
        error_examples,
        generator,
        receiver: None,
        counts,
        tunnel: None,
        crypto: None,
        scenario: None,
        packets: None,
    }
}

/// Returns the state of the load, from the latest snapshot of each worker that has published one.
pub fn standing(snapshots: &BTreeMap<usize, Snapshot>, counters: &[Arc<FlowCounters>]) -> Standing {
    let (mut counts, mut errors, mut threads) = (HttpCounts::default(), BTreeMap::new(), Vec::new());
    for (worker, snapshot) in snapshots {
        let own = worker_counts(&snapshot.tally, snapshot.due, &counters[*worker]);
        counts.add(&HttpCounts { connections: Some(snapshot.connections), ..own });
        for (name, count) in &snapshot.errors {
            *errors.entry(name.clone()).or_insert(0) += count;
        }
        threads.push(snapshot.thread.clone());
    }
    Standing { counts: Counts::Http(Box::new(counts)), errors, threads }
}

/// Returns `None` for closed loops, whose requests are never due before they can be sent.
fn late_p99_us(reports: &[WorkerReport]) -> Option<f64> {
    let mut all = Histogram::new();
    reports.iter().filter_map(|report| report.late.as_ref()).for_each(|late| all.merge(late));
    all.quantile_ns(0.99).map(|late_ns| late_ns as f64 / 1e3)
}

/// Returns a worker's counts. Rare counters without an event are left out, and so are the TLS counters of a load
/// without TLS.
fn worker_counts(tally: &Tally, due: u64, counters: &FlowCounters) -> HttpCounts {
    let has_tls = tally.tls_full + tally.tls_resumed > 0;
    HttpCounts {
        requests_due: due,
        requests_sent: counters.sent_units(),
        responses: counters.received_units(),
        unanswered: tally.unanswered,
        unanswered_over_1s: tally.unanswered_long,
        unsent: tally.unsent,
        unsent_while_busy: tally.unsent_while_busy,
        due_while_busy: tally.due_while_busy,
        connections_down: tally.connections_down,
        bytes: counters.received_bytes(),
        body_bytes: tally.body_bytes,
        connections_opened: tally.connections_opened,
        connections: None,
        unsent_without_age: unless_zero(tally.unsent_without_age),
        tls_full: has_tls.then_some(tally.tls_full),
        tls_resumed: has_tls.then_some(tally.tls_resumed),
        redirects: unless_zero(tally.redirects),
        cut_off: unless_zero(tally.cut_off),
        repeated: None,
        histogram_overflow: None,
        status: StatusCounts::of(tally.status),
    }
}

fn flow_report(plan: &Plan, at_ns: u64, flow: u32, report: &WorkerReport, counters: &FlowCounters) -> FlowReport {
    FlowReport {
        flow,
        direction: Direction::Down,
        due_ns: at_ns,
        start_ns: report.tally.first_sent_ns,
        end_ns: report.tally.end_ns,
        sent_bytes: Some(counters.sent_bytes()),
        received_bytes: Some(counters.received_bytes()),
        sent_units: Some(counters.sent_units()),
        received_units: Some(counters.received_units()),
        lost: None,
        duplicates: None,
        reordered: None,
        jitter_us: None,
        latency_mean_us: None,
        latency_max_us: None,
        retransmits: report.tcp.retransmits,
        rtt_mean_us: report.tcp.rtt_mean_us,
        congestion: report.tcp.congestion.clone(),
        peer_congestion: None,
        local: None,
        remote: Some(plan.route.to_string()),
        datagrams: None,
        sender_tcp: None,
        receiver_tcp: None,
    }
}
