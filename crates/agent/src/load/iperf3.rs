//! tcp and udp against a real `iperf3 -s`, from the parameters to both ends' figures. Payload is moved by the same workers as
//! in Leadline's own sessions. The server starts as soon as it has all flows: they are opened at the load's start.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_pace::Pace;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::tcp::OpeningOptions;
use leadline_transport::iperf3::{
    Iperf3Client, Iperf3ClientEvent, Iperf3Parameters, Iperf3Protocol, Iperf3Results, Iperf3ServerOutput,
};
use leadline_transport::{DatagramFormat, DatagramSizes, SideReport};
use leadline_wire::{
    unless_zero, Counts, Direction, ErrorReport, FlowCounts, FlowProgress, LoadReport, Outcome, ReceiveMethod,
    SendMethod, Side, StreamOptions, Target, TcpSpec, UdpSpec,
};

use super::iperf3_control::Control;
use super::iperf3_figures::{omitted_s, receiver, send_server_output, ServerFigures};
use super::peer_claims::{contradiction, impossible_jitter, wild_figure, Counted};
use super::session_runner::{flow_reports, span, PlannedFlow};
use crate::atomic_option::AtomicOption;
use crate::events::{one_line, peer_error, system_error};
use crate::flows::account::{total, Account};
use crate::flows::datagram::{self, DatagramFlow, DatagramWork};
use crate::flows::iperf3::{results, set_options, FlowSocket, ResultsContext, TestFlow};
use crate::flows::payload::{ByteBudget, Payload};
use crate::flows::stream::{self, PacedBlocks, StreamEnd, StreamFlow, StreamWork};
use crate::flows::stream_options;
use crate::flows::thread_group::{ThreadGroup, Worker};
use crate::flows::{by_role, counters, planned_directions, Role, Span, MAX_DRAIN_NS};
use crate::metering::{Collector, Recorder, Rolled};
use crate::patience::{patience, patience_ns};
use crate::task::{Ready, Task};

/// How long the control connection is read before counters and workers are looked at.
const TURN: Duration = Duration::from_millis(20);
/// After the last byte was acknowledged, or the last datagram sent, iperf3 gets this long to read it: it closes its sockets
/// when it hears of the end, ns.
const READ_NS: u64 = 200_000_000;
/// After a stream's end, iperf3 3.16 and newer gets this long to count the part of a block before it, ns.
const READ_END_NS: u64 = 100_000_000;
/// After the server has stopped sending, this much silence means that the missing datagrams are lost, ns.
const SILENCE_NS: u64 = 500_000_000;
/// How long a receiver of a byte stream waits in silence for its end, ns.
const STREAM_SILENCE_NS: u64 = 2_000_000_000;
/// The time limit of the server for each step after the end: to ask for this end's figures, and to send its own.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(15);
const METRICS: &[&str] = &["late"];

/// The flows as the results, the report and the workers need them.
type OpenFlows = (Vec<TestFlow>, Vec<PlannedFlow>, Vec<FlowSocket>);

/// The payload of the flows.
enum Payloads {
    Tcp(Option<PacedBlocks>, StreamOptions, Option<Arc<Path>>),
    Udp { pace: Option<Pace>, number: Option<u64> },
}

struct ReadyIperf3 {
    control: Control,
    asked: Iperf3Parameters,
    payloads: Payloads,
    direction: Direction,
    threads: u32,
    duration_ms: u64,
    warmup_ms: u64,
    interval: Duration,
}

/// Agrees on a TCP test with the server; `spec` has been checked.
pub fn prepare_tcp(spec: &TcpSpec, paced: Option<PacedBlocks>) -> Result<Box<dyn Ready>, ErrorReport> {
    let options = spec.options.unwrap_or_default();
    let asked = Iperf3Parameters {
        tcp: true,
        mptcp: options.mptcp,
        nodelay: !options.nagle,
        len: Some(spec.block_bytes.into()),
        bandwidth: spec.rate_bps,
        congestion: spec.congestion.clone(),
        window: options.window_bytes.map(u64::from),
        mss: options.mss_bytes.map(u64::from),
        fqrate: options.pacing_bps,
        tos: options.dscp.map(|dscp| u64::from(dscp) << 2),
        zerocopy: options.send == SendMethod::Sendfile,
        skip_rx_copy: options.receive == ReceiveMethod::Discard,
        num: Some(options.total_bytes.unwrap_or(0)),
        ..common(&spec.target, spec.flows, spec.direction, (spec.duration_ms, spec.warmup_ms))
    };
    Ok(Box::new(ReadyIperf3 {
        control: Control::open(&spec.target, spec.bind.as_deref(), &asked)?,
        asked,
        payloads: Payloads::Tcp(paced, options, spec.payload_file.as_deref().map(|path| Arc::from(Path::new(path)))),
        direction: spec.direction,
        threads: spec.threads,
        duration_ms: spec.duration_ms,
        warmup_ms: spec.warmup_ms,
        interval: Duration::from_millis(spec.interval_ms.into()),
    }))
}

/// Agrees on a UDP test with the server; `spec` has been checked.
pub fn prepare_udp(spec: &UdpSpec, pace: Option<Pace>) -> Result<Box<dyn Ready>, ErrorReport> {
    let rate_bps = spec.rate_pps.map(|rate| (rate * 8.0 * f64::from(spec.datagram_bytes)).round() as u64);
    let asked = Iperf3Parameters {
        udp: true,
        udp_counters_64bit: !spec.target.iperf3_options.unwrap_or_default().short_counters,
        len: Some(spec.datagram_bytes.into()),
        bandwidth: rate_bps,
        window: spec.window_bytes.map(u64::from),
        tos: spec.dscp.map(|dscp| u64::from(dscp) << 2),
        // iperf3 counts the blocks of all flows.
        blockcount: Some(spec.number.unwrap_or(0).saturating_mul(spec.flows.into())),
        ..common(&spec.target, spec.flows, spec.direction, (spec.duration_ms, spec.warmup_ms))
    };
    Ok(Box::new(ReadyIperf3 {
        control: Control::open(&spec.target, spec.bind.as_deref(), &asked)?,
        asked,
        payloads: Payloads::Udp { pace, number: spec.number },
        direction: spec.direction,
        threads: spec.threads,
        duration_ms: spec.duration_ms,
        warmup_ms: spec.warmup_ms,
        interval: Duration::from_millis(spec.interval_ms.into()),
    }))
}

fn common(target: &Target, flows: u32, direction: Direction, (duration_ms, warmup_ms): (u64, u64)) -> Iperf3Parameters {
    let options = target.iperf3_options.unwrap_or_default();
    let omit_s = omitted_s(warmup_ms);
    Iperf3Parameters {
        get_server_output: options.server_output,
        repeating_payload: options.repeating_payload,
        omit: Some(omit_s),
        // The server does not end the test by it, but gives it up long after it. It adds the omitted time itself.
        time: Some(duration_ms.div_ceil(1000).saturating_sub(omit_s)),
        num: Some(0),
        blockcount: Some(0),
        parallel: Some(flows.into()),
        reverse: direction == Direction::Down,
        bidirectional: direction == Direction::Both,
        client_version: Some("3.12".to_owned()),
        ..Iperf3Parameters::default()
    }
}

impl Ready for ReadyIperf3 {
    fn run(mut self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        task.signal.sleep_until(at_ns);
        let (flows, planned, sockets) = self.open_flows()?;
        self.control.await_start()?;
        // The server's omitted time begins now.
        let omitted_ns = monotonic_ns().saturating_add(self.asked.omit_ns());
        let span = span(at_ns, self.duration_ms);
        let kept = sockets.iter().enumerate().filter_map(|(place, socket)| match socket {
            FlowSocket::Stream(stream) => Some((place, stream.try_clone().ok()?)),
            FlowSocket::Datagram(_) => None,
        });
        // A closed connection would end before iperf3 has read it.
        let kept: Vec<_> = kept.collect();
        let (out, rolled) = mpsc::channel();
        let workers = self.workers(&flows, sockets, span, &out);
        drop(out);
        let threads = ThreadGroup::start(workers, &task.signal, || {})
            .map_err(|error| system_error("starting threads", &error))?;
        let mut running = Running {
            ready: *self,
            flows,
            kept,
            span,
            omitted_ns,
            omitted: None,
            collector: Collector::new(METRICS),
            rolled,
        };
        let outcome = running.supervise(&threads, task);
        if outcome.is_err() {
            running.ready.control.give_up();
            task.signal.abandon();
        }
        let reports = threads.join().map_err(|error| system_error("moving payload", &error))?;
        // If the test has failed, the last reading is what is left of the measurement.
        running.report_progress(task);
        let ended_ns = outcome?;
        running.outcome(&planned, Account::of(reports), ended_ns, task)
    }
}

impl ReadyIperf3 {
    /// Returns what has to be set before a connection is opened.
    fn opening(&self) -> OpeningOptions {
        match &self.payloads {
            Payloads::Tcp(_, options, _) => stream_options::opening(options),
            Payloads::Udp { .. } => OpeningOptions::default(),
        }
    }

    /// The bytes that end the test, if their number does.
    fn total_bytes(&self) -> Option<u64> {
        self.asked.num.filter(|bytes| *bytes > 0)
    }

    /// Opens the flows one by one, the sending ones first: both ends number them in this order.
    fn open_flows(&self) -> Result<OpenFlows, ErrorReport> {
        let directions = planned_directions(self.direction, self.asked.flows());
        let counters = counters(directions.len() as u32);
        let (mut flows, mut planned, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
        for ((id, direction), counters) in (0..).zip(directions).zip(counters) {
            let socket = match self.asked.protocol() {
                Iperf3Protocol::Tcp => self.control.connect_stream(id, &self.opening())?,
                Iperf3Protocol::Udp => self.control.connect_datagram(id)?,
            };
            set_options(&socket, &self.asked).map_err(|(_, error)| system_error("setting a flow's options", &error))?;
            let (local, remote, congestion) = match &socket {
                FlowSocket::Stream(stream) => (stream.local_addr(), stream.peer_addr(), net::congestion(stream)),
                FlowSocket::Datagram(socket) => (socket.local_addr(), socket.peer_addr(), None),
            };
            planned.push(PlannedFlow {
                id,
                direction,
                counters: Arc::clone(&counters),
                expected: None,
                local: local.ok().map(|address| address.to_string()),
                remote: remote.ok().map(|address| address.to_string()),
                congestion,
            });
            let role = if direction == Direction::Up { Role::Send } else { Role::Receive };
            flows.push(TestFlow { role, counters, expected: Arc::new(AtomicOption::none()) });
            sockets.push(socket);
        }
        Ok((flows, planned, sockets))
    }

    /// What this end sends, unless iperf3's repeating payload was asked for.
    fn payload(&self, otherwise: Payload) -> Payload {
        if self.asked.repeating_payload {
            Payload::Digits
        } else {
            otherwise
        }
    }

    fn workers(
        &self,
        flows: &[TestFlow],
        sockets: Vec<FlowSocket>,
        span: Span,
        out: &Sender<Rolled>,
    ) -> Vec<(Role, Worker)> {
        let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
        let budget = self.total_bytes().map(|bytes| Arc::new(ByteBudget::new(bytes)));
        for ((id, flow), socket) in (0..).zip(flows).zip(sockets) {
            let (role, counters, expected) = (flow.role, Arc::clone(&flow.counters), Arc::clone(&flow.expected));
            match socket {
                FlowSocket::Stream(socket) => {
                    let flow = StreamFlow::new(id, socket, role, counters);
                    streams.push(StreamFlow { budget: budget.clone(), ..flow });
                }
                FlowSocket::Datagram(socket) => {
                    datagrams.push(DatagramFlow { id, socket, role, counters, offset_ns: 0, expected });
                }
            }
        }
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        match self.payloads {
            Payloads::Tcp(paced, options, ref payload_file) => {
                let end = StreamEnd::Count { silence_ns: STREAM_SILENCE_NS };
                let block_bytes = self.asked.block_bytes() as usize;
                let work = StreamWork {
                    end,
                    ends_when_spent: true,
                    payload: self.payload(options.payload.into()),
                    payload_file: payload_file.clone(),
                    send: options.send,
                    receive: options.receive,
                    ..StreamWork::plain(block_bytes, paced, self.interval.as_nanos() as u64)
                };
                for (index, (role, group)) in by_role(streams, self.threads, |flow| flow.role).into_iter().enumerate() {
                    let name = format!("tcp-{}-{index}", verb(role));
                    let work = work.clone();
                    workers.push((role, Box::new(move |signal| stream::drive(group, work, span, signal, &name))));
                }
            }
            Payloads::Udp { pace, number } => {
                let work = DatagramWork {
                    format: DatagramFormat::Iperf3 { wide: self.asked.udp_counters_64bit },
                    sizes: DatagramSizes::fixed(self.asked.block_bytes()),
                    pace,
                    burst: 1,
                    number,
                    payload: self.payload(Payload::Zeros),
                    gso: false,
                };
                let warm_until_ns = span.at_ns.saturating_add(self.warmup_ms.saturating_mul(1_000_000));
                for (index, (role, group)) in by_role(datagrams, self.threads, |flow| flow.role).into_iter().enumerate()
                {
                    let name = format!("udp-{}-{index}", verb(role));
                    let recorder = (role == Role::Send).then(|| Recorder::new(1, warm_until_ns, out.clone()));
                    let work = work.clone();
                    workers.push((
                        role,
                        Box::new(move |signal| datagram::drive(group, work, span, signal, &name, recorder)),
                    ));
                }
            }
        }
        workers
    }
}

fn verb(role: Role) -> &'static str {
    match role {
        Role::Send => "send",
        Role::Receive => "receive",
    }
}

/// A load whose payload flows.
struct Running {
    ready: ReadyIperf3,
    flows: Vec<TestFlow>,
    /// The TCP connections, which stay open until the end, and their places among the flows.
    kept: Vec<(usize, TcpStream)>,
    span: Span,
    /// When the server's omitted time is over, ns.
    omitted_ns: u64,
    /// This end's counters at that instant, once it has come; `None` if nothing is omitted.
    omitted: Option<Vec<FlowProgress>>,
    collector: Collector,
    rolled: Receiver<Rolled>,
}

impl Running {
    /// Runs until every worker has ended and the server has asked for the figures; returns when the test ended.
    fn supervise(&mut self, threads: &ThreadGroup, task: &Task) -> Result<u64, ErrorReport> {
        let interval = self.ready.interval;
        let mut tick = Instant::now() + interval;
        let mut ending = Ending::default();
        loop {
            let event = self.ready.control.receive((Instant::now() + TURN).min(tick).min(self.omitted_at()))?;
            match event {
                Some(Iperf3ClientEvent::SendResults) if ending.ended_ns.is_some() => ending.results_asked = true,
                Some(_) => {
                    let message = format!("iperf3 at {} answers out of turn", self.ready.control.server);
                    return Err(peer_error("protocol", message));
                }
                None => {}
            }
            if Instant::now() >= tick {
                tick += interval;
                self.report_progress(task);
            }
            self.note_omitted();
            let now = monotonic_ns();
            if ending.ended_ns.is_none() && self.is_over(now, threads, task, &mut ending) {
                self.ready.control.send(&Iperf3Client::end())?;
                ending.ended_ns = Some(now);
            }
            let Some(ended_ns) = ending.ended_ns else { continue };
            if ending.results_asked {
                self.end_datagrams(now, &mut ending);
                if threads.done() {
                    return Ok(ended_ns);
                }
            }
            let due_ns = ended_ns.saturating_add(patience_ns(RESULTS_TIMEOUT.as_nanos() as u64));
            // The workers end by themselves.
            if task.signal.abandoned() || (!ending.results_asked && now >= due_ns) {
                let message = format!("iperf3 at {} does not ask for results", self.ready.control.server);
                return Err(peer_error("no_report", message));
            }
        }
    }

    fn report_progress(&mut self, task: &Task) {
        let has_units = self.ready.asked.protocol() == Iperf3Protocol::Udp;
        self.rolled.try_iter().for_each(|one| self.collector.take(one));
        let rows = (0..).zip(&self.flows).map(|(id, flow)| flow.counters.progress(id, has_units)).collect();
        task.progress(Side::Local, monotonic_ns(), rows, self.collector.recent());
    }

    /// When to look at the counters for the end of the omitted time: far away if that is over.
    fn omitted_at(&self) -> Instant {
        let left_ns = match self.omitted {
            None if self.ready.asked.omit_ns() > 0 => self.omitted_ns.saturating_sub(monotonic_ns()),
            _ => u64::MAX / 2,
        };
        Instant::now() + Duration::from_nanos(left_ns)
    }

    /// Keeps the counters as they are when the omitted time is over.
    fn note_omitted(&mut self) {
        if self.ready.asked.omit_ns() > 0 && self.omitted.is_none() && monotonic_ns() >= self.omitted_ns {
            self.omitted = Some(self.rows());
        }
    }

    /// This end's counters.
    fn rows(&self) -> Vec<FlowProgress> {
        (0..).zip(&self.flows).map(|(id, flow)| flow.counters.progress(id, true)).collect()
    }

    /// Whether the server can learn of the end: nothing is under way to it any more, and nothing shall come from it.
    fn is_over(&self, now: u64, threads: &ThreadGroup, task: &Task, ending: &mut Ending) -> bool {
        let receives_more = self.ready.direction != Direction::Up && !self.has_all();
        let stopped = task.signal.stopped() || now >= self.span.end_ns;
        if !threads.senders_done() || (receives_more && !stopped) {
            return false;
        }
        if self.ready.direction == Direction::Down || task.signal.abandoned() {
            return true;
        }
        let done_ns = *ending.senders_done_ns.get_or_insert(now);
        let unacknowledged = |stream: &TcpStream| net::unacknowledged_bytes(stream).is_ok_and(|bytes| bytes > 0);
        let under_way = self.kept.iter().any(|(_, stream)| unacknowledged(stream));
        if under_way && now < done_ns.saturating_add(patience_ns(MAX_DRAIN_NS)) {
            return false;
        }
        if now < ending.arrived_ns.get_or_insert(now).saturating_add(READ_NS) {
            return false;
        }
        if ending.streams_ended_ns.is_none() && !self.end_streams_within_a_block() {
            return true;
        }
        now >= ending.streams_ended_ns.get_or_insert(now).saturating_add(READ_END_NS)
    }

    /// Whether as much has arrived as ends the test: bytes of all flows together, or datagrams of each.
    fn has_all(&self) -> bool {
        let (bytes, blocks) = (self.ready.total_bytes(), self.ready.asked.blockcount.filter(|blocks| *blocks > 0));
        let receiving = || self.flows.iter().filter(|flow| flow.role == Role::Receive);
        let received = || receiving().map(|flow| flow.counters.received_bytes()).sum::<u64>();
        let of_each = blocks.map(|blocks| blocks / u64::from(self.ready.asked.flows().max(1)));
        bytes.is_some_and(|bytes| received() >= bytes)
            || of_each.is_some_and(|most| receiving().all(|flow| flow.counters.received_units() >= most))
    }

    /// Ends the streams of senders that sent part of a block last: iperf3 3.16 and newer reads whole blocks, and counts a
    /// part only at the stream's end. Returns whether there is one.
    fn end_streams_within_a_block(&self) -> bool {
        let block_bytes = u64::from(self.ready.asked.block_bytes());
        let mut found = false;
        for (place, stream) in &self.kept {
            let flow = &self.flows[*place];
            if flow.role == Role::Send && flow.counters.sent_bytes() % block_bytes != 0 {
                // This fails only if the server has closed the connection.
                let _ = stream.shutdown(Shutdown::Write);
                found = true;
            }
        }
        found
    }

    /// Ends receivers of datagrams after a silence: the server's count comes only after this end's figures.
    fn end_datagrams(&self, now: u64, ending: &mut Ending) {
        if self.ready.asked.protocol() == Iperf3Protocol::Tcp {
            return;
        }
        let received: u64 = self.flows.iter().map(|flow| flow.counters.received_units()).sum();
        if ending.received.replace(received) != Some(received) {
            ending.silent_since_ns = now;
        }
        if now >= ending.silent_since_ns.saturating_add(SILENCE_NS) {
            for flow in self.flows.iter().filter(|flow| flow.role == Role::Receive) {
                flow.expected.set_first(flow.counters.received_units());
            }
        }
    }

    /// Exchanges the figures, and combines them.
    fn outcome(
        mut self,
        planned: &[PlannedFlow],
        local: Account,
        ended_ns: u64,
        task: &Task,
    ) -> Result<Outcome, ErrorReport> {
        self.rolled.try_iter().for_each(|one| self.collector.take(one));
        let length_s = ended_ns.min(self.span.end_ns).saturating_sub(self.span.at_ns) as f64 / 1e9;
        let congestion = planned.iter().find_map(|flow| flow.congestion.clone());
        let asked = &self.ready.asked;
        let omit_s = asked.omit_ns() as f64 / 1e9;
        let context = ResultsContext {
            asked,
            length_s: (length_s - omit_s).max(0.0),
            omitted: self.omitted.as_deref(),
            theirs: None,
            congestion,
        };
        let own = results(&self.flows, &local, &context);
        self.ready.control.send(&own.encode())?;
        let (theirs, output) = self.receive_results()?;
        // iperf3 3.12 goes on sending it to the clients after one that asked.
        if self.ready.asked.get_server_output {
            send_server_output(&output, task);
        }
        let figures = ServerFigures { asked: &self.ready.asked, theirs: &theirs, span: self.span };
        let omitted = self.omitted.as_deref();
        let peer_rows = figures.rows(&self.flows, &local, omitted);
        for (t_ns, row) in figures.readings(&self.flows, &local, &peer_rows, omitted) {
            task.progress(Side::Peer, t_ns, vec![row], Vec::new());
        }
        let server = self.ready.control.server;
        let receiver = receiver(&theirs, length_s);
        if let Some(claim) = self.impossible_claim(planned, &peer_rows, receiver.as_ref()) {
            return Err(peer_error("impossible_report", format!("iperf3 at {server} claims {claim}")));
        }
        let is_udp = self.ready.asked.protocol() == Iperf3Protocol::Udp;
        let rows = || local.rows.iter();
        let counts = FlowCounts {
            unsent: total(rows().map(|row| row.unsent_units)).unwrap_or(0),
            stale: total(rows().map(|row| row.stale)).and_then(unless_zero),
            strays: total(rows().map(|row| row.strays)).and_then(unless_zero),
            late_answers: None,
            histogram_overflow: unless_zero(self.collector.overflow()),
            ..FlowCounts::default()
        };
        let mut flows = flow_reports(planned, self.span, local.rows, &peer_rows, is_udp, None);
        for flow in &mut flows {
            flow.peer_congestion = theirs.congestion_used.as_deref().map(one_line);
        }
        Ok(Outcome {
            flows,
            histograms: self.collector.totals(),
            errors: local.errors,
            error_examples: BTreeMap::new(),
            generator: local.load,
            receiver,
            counts: Counts::Flows(counts),
            tunnel: None,
            crypto: None,
            scenario: None,
            packets: None,
        })
    }

    /// Returns what cannot be true of the server's figures, in words. Its own count of what it sent may lack a block that
    /// was under way.
    fn impossible_claim(
        &self,
        planned: &[PlannedFlow],
        rows: &[SideReport],
        load: Option<&LoadReport>,
    ) -> Option<String> {
        let is_tcp = self.ready.asked.protocol() == Iperf3Protocol::Tcp;
        let counted = if is_tcp { Counted::Bytes } else { Counted::DoubledDatagrams };
        let upward = planned.iter().filter(|flow| flow.direction == Direction::Up).map(PlannedFlow::own_count);
        contradiction(upward, rows, counted)
            .or_else(|| impossible_jitter(rows))
            .or_else(|| load.and_then(|load| wild_figure(rows, load)))
    }

    fn receive_results(&mut self) -> Result<(Iperf3Results, Iperf3ServerOutput), ErrorReport> {
        let server = self.ready.control.server;
        let deadline = Instant::now() + patience(RESULTS_TIMEOUT);
        let mut results = None;
        loop {
            match self.ready.control.receive(deadline)? {
                Some(Iperf3ClientEvent::Results(theirs, output)) => results = Some((*theirs, *output)),
                Some(Iperf3ClientEvent::Display) => {
                    // The server needs this to serve the next client at once.
                    self.ready.control.send(&Iperf3Client::done())?;
                    return results
                        .ok_or_else(|| peer_error("no_report", format!("iperf3 at {server} sent no results")));
                }
                Some(_) => return Err(peer_error("protocol", format!("iperf3 at {server} answers out of turn"))),
                None => return Err(peer_error("no_report", format!("iperf3 at {server} sends no results in time"))),
            }
        }
    }
}

/// How far the end of a load has come.
#[derive(Default)]
struct Ending {
    senders_done_ns: Option<u64>,
    /// When everything was acknowledged.
    arrived_ns: Option<u64>,
    /// When the streams that end within a block were ended.
    streams_ended_ns: Option<u64>,
    ended_ns: Option<u64>,
    results_asked: bool,
    received: Option<u64>,
    silent_since_ns: u64,
}
