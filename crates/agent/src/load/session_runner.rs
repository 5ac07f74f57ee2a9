//! Runs a load over a control session: starts both sides, reports progress, ends in order, and combines the figures
//! of both sides.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_sys::clock::monotonic_ns;
use leadline_transport::{ClockDifference, FromClient, SideReport};
use leadline_wire::{
    unless_zero, Counts, DatagramReport, DelayReport, Direction, ErrorReport, FlowCounts, FlowProgress, FlowReport,
    LengthsReport, LoadReport, Outcome, Side,
};

use super::peer_claims::{contradiction, plain_names, wild_figure, Counted, OwnCount, ProgressLimit};
use super::session::{ControlSender, FromPeer, Session};
use crate::atomic_option::AtomicOption;
use crate::events::{peer_error, system_error};
use crate::flows::account::{add_errors, total, Account};
use crate::flows::thread_group::{ThreadGroup, Worker};
use crate::flows::{moved, Role, Span, DRAIN_NS, MAX_DRAIN_NS};
use crate::machine_meter::MachineMeter;
use crate::metering::{Collector, FlowCounters, Rolled};
use crate::patience::patience;
use crate::task::Task;

/// One flow with the parts that both sides know.
pub struct PlannedFlow {
    /// Its number within the session.
    pub id: u32,
    /// The direction.
    pub direction: Direction,
    /// This side's counters.
    pub counters: Arc<FlowCounters>,
    /// Receives the server's count of sent datagrams, for a downward UDP flow.
    pub expected: Option<Arc<AtomicOption>>,
    /// The local address and port.
    pub local: Option<String>,
    /// The server's address and port.
    pub remote: Option<String>,
    /// TCP's congestion control on this side.
    pub congestion: Option<String>,
}

impl PlannedFlow {
    /// What this side has counted of it.
    pub fn own_count(&self) -> OwnCount<'_> {
        OwnCount { id: self.id, direction: self.direction, counters: &self.counters }
    }
}

/// A prepared load.
pub struct SessionRunner {
    /// The granted session.
    pub session: Session,
    /// Its flows.
    pub flows: Vec<PlannedFlow>,
    /// Whether the flows count units (datagrams, transactions) in addition to bytes.
    pub has_units: bool,
    /// Whether the datagram counts of both ends give the loss.
    pub counts_loss: bool,
    /// Time between progress events.
    pub interval: Duration,
    /// The recorders' metrics.
    pub metrics: &'static [&'static str],
}

/// The maximum number of queued messages of the server; beyond this the connection is not read.
const MOST_QUEUED: usize = 64;
/// The maximum delay before a stop is passed on to the server.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time limit for the server's report after everything has ended here: its own drain, and the transit.
const REPORT_DUE: Duration = Duration::from_nanos(MAX_DRAIN_NS + 10_000_000_000);

/// The error of a transaction for which no source port was left.
pub const PORTS_EXHAUSTED: &str = "source_ports_exhausted";

enum Wake {
    Peer(FromPeer),
    WorkerDone,
}

impl SessionRunner {
    /// Runs the workers from `span.at_ns` on, to the end.
    pub fn run(
        self,
        span: Span,
        workers: Vec<(Role, Worker)>,
        rolled: mpsc::Receiver<Rolled>,
        task: &Task,
    ) -> Result<Outcome, ErrorReport> {
        let Self { mut session, flows, has_units, counts_loss, interval, metrics } = self;
        session.begin(span.at_ns)?;
        let (clocks, server) = (session.clock_difference(), session.server());
        let (waker, wakes) = mpsc::sync_channel(MOST_QUEUED);
        let from_peer = waker.clone();
        let mut sender = session.listen(interval, move |item| from_peer.send(Wake::Peer(item)).is_ok())?;
        let threads = ThreadGroup::start(workers, &task.signal, move || {
            // If there is no room, the task's thread is about to wake up anyway.
            let _ = waker.try_send(Wake::WorkerDone);
        });
        let threads = threads.map_err(|error| system_error("starting threads", &error))?;
        let mut collector = Collector::new(metrics);
        let report_progress = |collector: &mut Collector| {
            rolled.try_iter().for_each(|one| collector.take(one));
            let rows = flows.iter().map(|flow| flow.counters.progress(flow.id, has_units)).collect();
            task.progress(Side::Local, monotonic_ns(), rows, collector.recent());
        };
        let (mut state, mut machine) = (RunState::new(server, interval), MachineMeter::default());
        let mut tick = Instant::now() + interval;
        while !(threads.done() && state.answered()) {
            match wakes.recv_timeout(tick.saturating_duration_since(Instant::now()).min(POLL_INTERVAL)) {
                Ok(Wake::Peer(item)) => state.handle(item, &flows, task),
                Ok(Wake::WorkerDone) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= tick {
                tick += interval;
                report_progress(&mut collector);
            }
            if task.signal.stopped() {
                state.send_stop(&mut sender);
            }
            if threads.senders_done() {
                state.send_end(&mut sender, flows.iter().filter(|_| has_units));
            }
            let is_over = threads.done() || monotonic_ns() >= span.end_ns;
            machine.poll(monotonic_ns(), span.at_ns, is_over, || moved(flows.iter().map(|flow| &flow.counters)));
            state.check_deadline(threads.done() && (task.signal.stopped() || monotonic_ns() >= span.end_ns), task);
            if state.lost.is_some() {
                task.signal.abandon();
            }
        }
        let workers = threads.join().map_err(|error| system_error("moving payload", &error))?;
        if let Some(error) = state.lost {
            // The last reading is what is left of the measurement.
            report_progress(&mut collector);
            return Err(error);
        }
        rolled.try_iter().for_each(|one| collector.take(one));
        let (peer_flows, peer_load, peer_errors) =
            state.report.ok_or_else(|| peer_error("no_report", format!("{server} ended without a report")))?;
        believe(server, &flows, &peer_flows, &peer_load, Counted::of(has_units, counts_loss))?;
        let mut local = Account::of(workers);
        local.load.machine = machine.used().map(Box::new);
        local.load.quota = machine.held_back();
        let counts = flow_counts(local.rows.iter().chain(&peer_flows), &collector);
        let mut errors = local.errors;
        add_errors(&mut errors, "peer_", peer_errors);
        Ok(Outcome {
            flows: flow_reports(&flows, span, local.rows, &peer_flows, counts_loss, clocks),
            histograms: collector.totals(),
            error_examples: explained(&errors),
            errors,
            generator: local.load,
            receiver: Some(peer_load),
            counts: Counts::Flows(counts),
            tunnel: None,
            crypto: None,
            scenario: None,
            packets: None,
        })
    }
}

/// Refuses a report that cannot be true.
fn believe(
    server: SocketAddr,
    flows: &[PlannedFlow],
    rows: &[SideReport],
    load: &LoadReport,
    counted: Counted,
) -> Result<(), ErrorReport> {
    let own = flows.iter().map(PlannedFlow::own_count);
    match contradiction(own, rows, counted).or_else(|| wild_figure(rows, load)) {
        Some(claim) => Err(peer_error("impossible_report", format!("{server} claims {claim}"))),
        None => Ok(()),
    }
}

/// Returns the sums over the flows of both sides.
fn flow_counts<'r>(rows: impl Iterator<Item = &'r SideReport> + Clone, collector: &Collector) -> FlowCounts {
    let sum = |figure: fn(&SideReport) -> Option<u64>| total(rows.clone().map(figure));
    let above_zero = |figure| sum(figure).and_then(unless_zero);
    FlowCounts {
        unsent: sum(|row| row.unsent_units).unwrap_or(0),
        stale: above_zero(|row| row.stale),
        strays: above_zero(|row| row.strays),
        late_answers: above_zero(|row| row.late_answers),
        histogram_overflow: unless_zero(collector.overflow()),
        duplicate_answers: above_zero(|row| row.duplicate_answers),
        due_while_busy: above_zero(|row| row.due_while_busy),
        unsent_while_busy: above_zero(|row| row.unsent_while_busy),
        connections_opened: above_zero(|row| row.connections_opened),
    }
}

/// Returns what to do about errors whose name does not say it.
fn explained(errors: &BTreeMap<String, u64>) -> BTreeMap<String, String> {
    let known = |name: &str, text: &str| errors.contains_key(name).then(|| (name.to_owned(), text.to_owned()));
    let exhausted = known(
        PORTS_EXHAUSTED,
        "every port of net.ipv4.ip_local_port_range is in use towards this server: lower the rate, or widen the range",
    );
    exhausted.into_iter().collect()
}

/// Returns one row per flow; each figure is from the side that knows it.
pub fn flow_reports(
    flows: &[PlannedFlow],
    span: Span,
    local_rows: Vec<SideReport>,
    peer_rows: &[SideReport],
    counts_loss: bool,
    clocks: Option<ClockDifference>,
) -> Vec<FlowReport> {
    let local_rows: BTreeMap<u32, SideReport> = local_rows.into_iter().map(|row| (row.flow, row)).collect();
    let peer_rows: BTreeMap<u32, &SideReport> = peer_rows.iter().map(|row| (row.flow, row)).collect();
    let nothing = SideReport::default();
    let report = |flow: &PlannedFlow| {
        let (local, peer) = (local_rows.get(&flow.id).unwrap_or(&nothing), peer_rows.get(&flow.id).copied());
        let row = flow_report(flow, span, local, peer, counts_loss);
        let datagrams = datagram_report(flow.direction, local, peer, clocks)
            .map(|report| Box::new(DatagramReport { loss_bursts: whole_loss(report.loss_bursts, row.lost), ..report }));
        FlowReport { datagrams, ..row }
    };
    flows.iter().map(report).collect()
}

/// Returns one flow's row; each figure is from the side that knows it.
fn flow_report(
    flow: &PlannedFlow,
    span: Span,
    local: &SideReport,
    peer: Option<&SideReport>,
    counts_loss: bool,
) -> FlowReport {
    let (sender, receiver) = match flow.direction {
        Direction::Down => (peer, Some(local)),
        Direction::Up | Direction::Both => (Some(local), peer),
    };
    let sent_units = sender.and_then(|side| side.sent_units);
    let received_units = receiver.and_then(|side| side.received_units);
    FlowReport {
        flow: flow.id,
        direction: flow.direction,
        due_ns: span.at_ns,
        start_ns: sender.and_then(|side| side.start_ns),
        end_ns: sender.and_then(|side| side.end_ns),
        sent_bytes: sender.map(|side| side.sent_bytes),
        received_bytes: receiver.map(|side| side.received_bytes),
        sent_units,
        received_units,
        lost: sent_units.zip(received_units).filter(|_| counts_loss).map(|(sent, got)| sent.saturating_sub(got)),
        duplicates: receiver.and_then(|side| side.duplicates),
        reordered: receiver.and_then(|side| side.reordered),
        jitter_us: receiver.and_then(|side| side.jitter_us),
        latency_mean_us: None,
        latency_max_us: None,
        retransmits: sender.and_then(|side| side.retransmits),
        rtt_mean_us: sender.and_then(|side| side.rtt_mean_us),
        congestion: flow.congestion.clone(),
        peer_congestion: None,
        local: flow.local.clone(),
        remote: flow.remote.clone(),
        datagrams: None,
        sender_tcp: sender.and_then(|side| side.tcp.clone()),
        receiver_tcp: receiver.and_then(|side| side.tcp.clone()),
    }
}

/// Returns the further figures of one flow's datagrams, with delays by one clock; `None` without a receiver of numbered
/// datagrams. Without the difference of the clocks there are no delays.
fn datagram_report(
    direction: Direction,
    local: &SideReport,
    peer: Option<&SideReport>,
    clocks: Option<ClockDifference>,
) -> Option<DatagramReport> {
    let (sender, receiver) = if direction == Direction::Down { (peer, Some(local)) } else { (Some(local), peer) };
    let segmented = sender.and_then(|side| side.datagrams.as_deref()).and_then(|figures| figures.segmented);
    let figures = receiver?.datagrams.as_deref()?;
    let by_one_clock = |(delay, clocks): (DelayReport, ClockDifference)| {
        let ahead_us = clocks.ahead_ns as f64 / 1e3;
        // The receiver's clock minus the sender's.
        let ahead_us = if direction == Direction::Down { -ahead_us } else { ahead_us };
        DelayReport {
            min_us: delay.min_us - ahead_us,
            mean_us: delay.mean_us - ahead_us,
            max_us: delay.max_us - ahead_us,
            bound_us: Some(clocks.bound_ns as f64 / 1e3),
        }
    };
    let one_way_delay = figures.one_way_delay.zip(clocks).map(by_one_clock);
    Some(DatagramReport { segmented, one_way_delay, ..figures.clone() })
}

/// Adds what is missing behind the last arrival, where the receiver ended before it learned how much was sent: the lengths
/// then add up to `lost`.
fn whole_loss(bursts: Option<LengthsReport>, lost: Option<u64>) -> Option<LengthsReport> {
    let mut bursts = bursts?;
    bursts.add(lost.unwrap_or(bursts.sum).saturating_sub(bursts.sum));
    Some(bursts)
}

/// The state of a running load: messages sent to the server and received from it so far.
struct RunState {
    server: SocketAddr,
    progress: ProgressLimit,
    stop_sent: bool,
    end_sent: bool,
    /// When the server's report is due, once nothing is left to do here.
    report_due: Option<Instant>,
    report: Option<(Vec<SideReport>, LoadReport, BTreeMap<String, u64>)>,
    lost: Option<ErrorReport>,
}

impl RunState {
    fn new(server: SocketAddr, interval: Duration) -> Self {
        Self {
            server,
            progress: ProgressLimit::new(Instant::now(), interval),
            stop_sent: false,
            end_sent: false,
            report_due: None,
            report: None,
            lost: None,
        }
    }

    fn answered(&self) -> bool {
        self.report.is_some() || self.lost.is_some()
    }

    /// Passes a stop on to the server, once.
    fn send_stop(&mut self, sender: &mut ControlSender) {
        if !std::mem::replace(&mut self.stop_sent, true) {
            self.send(sender, &FromClient::Stop {});
        }
    }

    /// Tells the server, once, that nothing more is sent, and what each upward flow that counts units has sent.
    fn send_end<'f>(&mut self, sender: &mut ControlSender, counting: impl Iterator<Item = &'f PlannedFlow>) {
        if !std::mem::replace(&mut self.end_sent, true) {
            let upward = counting.filter(|flow| flow.direction == Direction::Up);
            let sent_units = upward.map(|flow| flow.counters.sent_units()).collect();
            self.send(sender, &FromClient::End { sent_units });
        }
    }

    /// Sends a message unless the server is gone; an error fails the load.
    fn send(&mut self, sender: &mut ControlSender, message: &FromClient) {
        if self.answered() {
            return;
        }
        if let Err(error) = sender.send(message) {
            self.lost = Some(error);
        }
    }

    /// A server that never sends its report counts as lost, too. `over` means that the span has passed and every
    /// worker has ended.
    fn check_deadline(&mut self, over: bool, task: &Task) {
        if !over || self.answered() {
            return;
        }
        let due = *self.report_due.get_or_insert_with(|| Instant::now() + patience(REPORT_DUE));
        if task.signal.abandoned() || Instant::now() >= due {
            self.lost = Some(peer_error("no_report", format!("{} has sent no report in time", self.server)));
        }
    }

    fn handle(&mut self, item: FromPeer, flows: &[PlannedFlow], task: &Task) {
        match item {
            FromPeer::Progress(..) if self.progress.exceeded(Instant::now()) => {
                let message = format!("{} sends progress far more often than it was asked to", self.server);
                self.lost = self.lost.take().or_else(|| Some(peer_error("protocol", message)));
            }
            FromPeer::Progress(t_ns, rows) => {
                task.progress(Side::Peer, t_ns, rows_of_known_flows(rows, flows.len()), Vec::new())
            }
            FromPeer::Sent(units) => {
                let downward = flows.iter().filter_map(|flow| flow.expected.as_ref());
                for (expected, sent) in downward.zip(units) {
                    expected.set(sent);
                }
            }
            FromPeer::Report(rows, mut load, errors) => {
                let errors = plain_names(&mut load, errors);
                self.report = Some((rows, *load, errors));
            }
            FromPeer::Lost(error) => self.lost = self.lost.take().or(Some(error)),
        }
    }
}

/// Returns the server's rows of known flows, at most one for each.
fn rows_of_known_flows(mut rows: Vec<FlowProgress>, flows: usize) -> Vec<FlowProgress> {
    // Flows are numbered from 0.
    rows.retain(|row| (row.flow as usize) < flows);
    rows.truncate(flows);
    rows
}

/// Returns the instants of a load of `duration_ms` that begins at `at_ns`, or now if that has passed.
pub fn span(at_ns: u64, duration_ms: u64) -> Span {
    let at_ns = at_ns.max(monotonic_ns());
    Span { at_ns, end_ns: at_ns.saturating_add(duration_ms.saturating_mul(1_000_000)).min(u64::MAX - DRAIN_NS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_converted_to_one_clock_by_direction() {
        let figures = |mean_us| {
            let delay = DelayReport { min_us: mean_us - 1.0, mean_us, max_us: mean_us + 1.0, bound_us: None };
            let datagrams = DatagramReport { one_way_delay: Some(delay), ..DatagramReport::default() };
            SideReport { datagrams: Some(Box::new(datagrams)), ..SideReport::default() }
        };
        // The server's clock is 1000 µs ahead.
        let clocks = Some(ClockDifference { ahead_ns: 1_000_000, bound_ns: 2_500 });
        let nothing = SideReport::default();
        let delay = |direction, local: &SideReport, peer: &SideReport, clocks| {
            datagram_report(direction, local, Some(peer), clocks).and_then(|figures| figures.one_way_delay)
        };
        let expected = DelayReport { min_us: 29.0, mean_us: 30.0, max_us: 31.0, bound_us: Some(2.5) };
        assert_eq!(delay(Direction::Up, &nothing, &figures(1030.0), clocks), Some(expected));
        assert_eq!(delay(Direction::Down, &figures(-970.0), &nothing, clocks), Some(expected));
        assert_eq!(delay(Direction::Down, &figures(-970.0), &nothing, None), None);
        assert_eq!(datagram_report(Direction::Up, &nothing, Some(&nothing), clocks), None);
    }

    #[test]
    fn bursts_of_a_receiver_without_the_senders_count_add_up_to_the_loss() {
        // Numbers 0 to 9 of 30 arrived without 3 and 4.
        let bursts = LengthsReport { count: 1, sum: 2, longest: 2, by_doubling: vec![0, 1] };
        let side = |sent_units, received_units, bursts: Option<&LengthsReport>| {
            let report = |loss_bursts: &LengthsReport| {
                Box::new(DatagramReport { loss_bursts: Some(loss_bursts.clone()), ..DatagramReport::default() })
            };
            SideReport { sent_units, received_units, datagrams: bursts.map(report), ..SideReport::default() }
        };
        let flow = PlannedFlow {
            id: 0,
            direction: Direction::Up,
            counters: Arc::default(),
            expected: None,
            local: None,
            remote: None,
            congestion: None,
        };
        let (sender, receiver) = (side(Some(30), None, None), side(None, Some(8), Some(&bursts)));
        let span = Span { at_ns: 0, end_ns: 1 };
        let rows = flow_reports(&[flow], span, vec![sender], &[receiver], true, None);
        let whole = LengthsReport { count: 2, sum: 22, longest: 20, by_doubling: vec![0, 1, 0, 0, 1] };
        assert_eq!(rows[0].lost, Some(22));
        assert_eq!(rows[0].datagrams.as_ref().unwrap().loss_bursts, Some(whole));
    }

    #[test]
    fn rows_of_unknown_flows_are_dropped() {
        let row = |flow| FlowProgress { flow, ..FlowProgress::default() };
        let rows = [7, 0, u32::MAX, 1, 2, 1, 1].map(row).to_vec();
        let kept: Vec<u32> = rows_of_known_flows(rows, 2).into_iter().map(|row| row.flow).collect();
        assert_eq!(kept, [0, 1]);
    }
}
