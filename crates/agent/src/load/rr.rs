//! Request-response from the client's side: each flow has one transaction outstanding.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready as ReadySource};
use leadline_sys::priority::minimize_timer_slack;
use leadline_transport::{Header, HeaderKind, Open, Requester, SideReport, Step, Work, HEADER_BYTES};
use leadline_wire::{Direction, ErrorReport, Outcome, Protocol, RrSpec};

use super::session::Session;
use super::session_runner::{span, PlannedFlow, SessionRunner};
use crate::control_signal::ControlSignal;
use crate::events::{error_code, input_error};
use crate::flows::thread_group::Worker;
use crate::flows::{count_error, counters, deal_out, Role, Span, WorkerReport, TURN_NS};
use crate::metering::{FlowCounters, Recorder, ThreadMeter};
use crate::task::{Ready, Task};

const LATENCY: usize = 0;
/// Ages of transactions that were given up: their latency is at least this long.
const LATENCY_CENSORED: usize = 1;
const METRICS: &[&str] = &["latency", "latency_censored"];

struct ReadyRr {
    spec: RrSpec,
    runner: SessionRunner,
    flows: Vec<RrFlow>,
}

enum RrSocket {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

struct RrFlow {
    id: u32,
    socket: RrSocket,
    counters: Arc<FlowCounters>,
    /// Transactions that this flow may make; only the time limits them if absent.
    most: Option<u64>,
}

/// Opens the session and its flows.
pub fn prepare(spec: RrSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.flows == 0 || spec.duration_ms == 0 || spec.interval_ms == 0 || spec.timeout_ms == 0 {
        return Err(input_error("bad_spec", "flows, duration, interval and timeout must be at least 1"));
    }
    let least = if spec.protocol == Protocol::Udp { HEADER_BYTES as u32 } else { 1 };
    if spec.request_bytes < least || spec.response_bytes < least {
        return Err(input_error("bad_size", format!("request and response must have at least {least} bytes")));
    }
    let (request_bytes, response_bytes) = (spec.request_bytes, spec.response_bytes);
    let open = Open {
        work: Work::Rr { protocol: spec.protocol, request_bytes, response_bytes },
        flows: spec.flows,
        threads: spec.threads,
        direction: Direction::Up,
        duration_ms: spec.duration_ms,
        congestion: None,
        interval_ms: spec.interval_ms,
        takes_turns: false,
    };
    let mut session = Session::open(&spec.target, spec.bind.as_deref(), open)?;
    let (mut flows, mut planned) = (Vec::new(), Vec::new());
    for (id, counters) in (0..spec.flows).zip(counters(spec.flows)) {
        let socket = match spec.protocol {
            Protocol::Tcp => RrSocket::Tcp(session.connect_stream(id)?),
            Protocol::Udp => RrSocket::Udp(session.connect_datagram(id)?),
        };
        let (local, remote) = socket.addresses();
        planned.push(PlannedFlow {
            id,
            direction: Direction::Up,
            counters: Arc::clone(&counters),
            expected: None,
            local,
            remote,
            congestion: None,
        });
        let share = |number: u64| (number + u64::from(spec.flows - 1 - id)) / u64::from(spec.flows);
        flows.push(RrFlow { id, socket, counters, most: spec.number.map(share) });
    }
    session.await_ready()?;
    let interval = Duration::from_millis(spec.interval_ms.into());
    let runner =
        SessionRunner { session, flows: planned, has_units: true, counts_loss: false, interval, metrics: METRICS };
    Ok(Box::new(ReadyRr { spec, runner, flows }))
}

impl Ready for ReadyRr {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let span = span(at_ns, self.spec.duration_ms);
        let warm_until_ns = span.at_ns.saturating_add(self.spec.warmup_ms.saturating_mul(1_000_000));
        let token = self.runner.session.token;
        let (out, rolled) = mpsc::channel();
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        for (index, group) in deal_out(self.flows, self.spec.threads).into_iter().enumerate() {
            let recorder = Recorder::new(METRICS.len(), warm_until_ns, out.clone());
            let (spec, name) = (self.spec.clone(), format!("rr-{index}"));
            workers.push((
                Role::Send,
                Box::new(move |signal| drive(group, &spec, token, span, signal, ThreadName(name), recorder)),
            ));
        }
        drop(out);
        self.runner.run(span, workers, rolled, task)
    }
}

struct ThreadName(String);

fn drive(
    flows: Vec<RrFlow>,
    spec: &RrSpec,
    token: u64,
    span: Span,
    signal: &ControlSignal,
    name: ThreadName,
    mut recorder: Recorder,
) -> io::Result<WorkerReport> {
    let mut poll = Poll::new(flows.len().min(256))?;
    for (index, flow) in flows.iter().enumerate() {
        flow.socket.set_nonblocking()?;
        poll.add(&flow.socket, index as u64, Interest::Read)?;
    }
    let timeout_ns = u64::from(spec.timeout_ms) * 1_000_000;
    let mut flows: Vec<RequestFlow> = flows.into_iter().map(|flow| RequestFlow::new(flow, timeout_ns)).collect();
    let mut buffers = SharedBuffers {
        token,
        request: vec![0; spec.request_bytes as usize],
        response: vec![0; spec.response_bytes.max(HEADER_BYTES as u32) as usize + 1],
        response_bytes: spec.response_bytes as usize,
    };
    let mut errors = BTreeMap::new();
    minimize_timer_slack();
    signal.sleep_until(span.at_ns);
    let meter = ThreadMeter::begin(name.0, monotonic_ns());
    let mut until_ns = span.end_ns;
    let mut ready: Vec<ReadySource> = Vec::new();
    // The flows' timers are checked only when the first of them may have expired.
    let mut sweep_ns = 0;
    let mut open = flows.len();
    loop {
        let now = monotonic_ns();
        if signal.stopped() && now < until_ns {
            until_ns = now;
        }
        if now >= sweep_ns || signal.abandoned() {
            sweep_ns = now + TURN_NS;
            for (index, flow) in flows.iter_mut().enumerate().filter(|(_, flow)| flow.open) {
                let due_ns =
                    flow.handle_timeout(now, signal.abandoned(), &mut buffers, &mut recorder, until_ns, &mut errors);
                sweep_ns = due_ns.map_or(sweep_ns, |due_ns| due_ns.min(sweep_ns));
                flow.watch(&poll, index as u64)?;
            }
            open = flows.iter().filter(|flow| flow.open).count();
        }
        if open == 0 {
            break;
        }
        recorder.roll(now);
        ready.clear();
        ready.extend(poll.wait(Some(sweep_ns))?);
        for source in &ready {
            let flow = &mut flows[source.token as usize];
            if flow.open {
                flow.on_readable(&mut buffers, &mut recorder, &mut errors);
                let due_ns = flow.advance(&mut buffers, until_ns, &mut errors);
                sweep_ns = due_ns.map_or(sweep_ns, |due_ns| due_ns.min(sweep_ns));
                open -= usize::from(!flow.open);
            }
            flow.watch(&poll, source.token)?;
        }
    }
    let thread = meter.end(monotonic_ns());
    recorder.finish();
    let rows = flows.iter().map(|flow| flow.report(until_ns)).collect();
    Ok(WorkerReport { thread, flows: rows, pushback: 0, errors, late: None })
}

/// The buffers and the framing that a thread's flows share.
struct SharedBuffers {
    token: u64,
    request: Vec<u8>,
    response: Vec<u8>,
    response_bytes: usize,
}

struct RequestFlow {
    flow: RrFlow,
    machine: Requester,
    open: bool,
    /// Bytes of the response that have arrived (TCP).
    partial: usize,
    /// Bytes of the request for which the socket had no room (TCP).
    unwritten: usize,
    /// Whether the poll waits for room in the socket.
    watched: Option<Interest>,
    start_ns: Option<u64>,
    /// When the last response arrived.
    last_ns: Option<u64>,
    /// When the flow was closed.
    closed_ns: Option<u64>,
}

impl RequestFlow {
    fn new(flow: RrFlow, timeout_ns: u64) -> Self {
        Self {
            flow,
            machine: Requester::new(timeout_ns),
            open: true,
            partial: 0,
            unwritten: 0,
            watched: Some(Interest::Read),
            start_ns: None,
            last_ns: None,
            closed_ns: None,
        }
    }

    /// Gives up transactions beyond their time limit; returns when to call again.
    fn handle_timeout(
        &mut self,
        now: u64,
        abandoned: bool,
        buffers: &mut SharedBuffers,
        recorder: &mut Recorder,
        until_ns: u64,
        errors: &mut BTreeMap<String, u64>,
    ) -> Option<u64> {
        let sent_ns = self.machine.sent_ns();
        let is_expired = self.machine.handle_time(now);
        if let Some(sent_ns) = sent_ns.filter(|_| is_expired || abandoned) {
            recorder.record(LATENCY_CENSORED, sent_ns, now.saturating_sub(sent_ns));
        }
        if is_expired {
            count_error(errors, "timeout");
            // TCP answers in order: without this response the next one cannot arrive either.
            if matches!(self.flow.socket, RrSocket::Tcp(_)) {
                self.close();
            }
        }
        if abandoned {
            self.close();
        }
        self.advance(buffers, until_ns, errors)
    }

    fn close(&mut self) {
        self.open = false;
        self.closed_ns.get_or_insert_with(monotonic_ns);
    }

    /// Sends the next request if none is outstanding and `until_ns` is in the future; returns when to call again.
    fn advance(
        &mut self,
        buffers: &mut SharedBuffers,
        until_ns: u64,
        errors: &mut BTreeMap<String, u64>,
    ) -> Option<u64> {
        if !self.open {
            return None;
        }
        match self.machine.poll() {
            // The outstanding transaction is waited for at the end, up to its own timeout: leaving it out would make
            // the tail look better.
            Step::AwaitUntil(instant) => {
                if self.unwritten > 0 {
                    self.write_rest(buffers, errors);
                }
                return Some(instant);
            }
            Step::Request(sequence) => {
                let now = monotonic_ns();
                if now >= until_ns || self.flow.most.is_some_and(|most| self.flow.counters.sent_units() >= most) {
                    self.close();
                    return None;
                }
                match self.flow.send(buffers, sequence, now) {
                    Ok(unwritten) => {
                        self.unwritten = unwritten;
                        self.machine.handle_sent(now);
                        self.flow.counters.sent(buffers.request.len() as u64, 1);
                        self.start_ns.get_or_insert(now);
                        if let Step::AwaitUntil(instant) = self.machine.poll() {
                            return Some(instant);
                        }
                    }
                    Err(error) => self.fail(&error, errors),
                }
            }
        }
        None
    }

    /// Makes the poll watch for what this flow waits for.
    fn watch(&mut self, poll: &Poll, token: u64) -> io::Result<()> {
        let interest = match (self.open, self.unwritten) {
            (false, _) => None,
            (true, 0) => Some(Interest::Read),
            (true, _) => Some(Interest::ReadWrite),
        };
        if interest != self.watched {
            match interest {
                None => poll.remove(&self.flow.socket)?,
                Some(interest) => poll.modify(&self.flow.socket, token, interest)?,
            }
            self.watched = interest;
        }
        Ok(())
    }

    /// Continues the request: its time runs from its first byte.
    fn write_rest(&mut self, buffers: &SharedBuffers, errors: &mut BTreeMap<String, u64>) {
        let RrSocket::Tcp(stream) = &self.flow.socket else { return };
        match write_some(stream, &buffers.request[buffers.request.len() - self.unwritten..]) {
            Ok(unwritten) => self.unwritten = unwritten,
            Err(error) => self.fail(&error, errors),
        }
    }

    fn on_readable(
        &mut self,
        buffers: &mut SharedBuffers,
        recorder: &mut Recorder,
        errors: &mut BTreeMap<String, u64>,
    ) {
        let answered = match &self.flow.socket {
            RrSocket::Tcp(stream) => read_stream(stream, buffers, &mut self.partial),
            RrSocket::Udp(socket) => read_datagram(socket, buffers),
        };
        let now = monotonic_ns();
        match answered {
            Ok(Some(sequence)) => {
                let sequence = sequence.unwrap_or(self.machine.sequence());
                let due_ns = self.machine.sent_ns().unwrap_or(now);
                if let Some(took_ns) = self.machine.handle_response(now, sequence) {
                    recorder.record(LATENCY, due_ns, took_ns);
                    self.flow.counters.received(buffers.response_bytes as u64, 1);
                    self.last_ns = Some(now);
                }
            }
            Ok(None) => {}
            Err(error) => self.fail(&error, errors),
        }
    }

    /// Counts an outstanding transaction as one failed operation. After an error a connection is useless; a UDP
    /// socket is not.
    fn fail(&mut self, error: &io::Error, errors: &mut BTreeMap<String, u64>) {
        count_error(errors, error_code(error));
        self.machine.give_up();
        if matches!(self.flow.socket, RrSocket::Tcp(_)) {
            self.close();
        }
    }

    /// Returns the flow's figures. A flow ends at `until_ns`, or with the response to its outstanding request; a flow
    /// that failed or reached its number before that ended then.
    fn report(&self, until_ns: u64) -> SideReport {
        SideReport {
            flow: self.flow.id,
            start_ns: self.start_ns,
            end_ns: self.closed_ns.map(|closed_ns| closed_ns.min(until_ns)).max(self.last_ns),
            sent_bytes: self.flow.counters.sent_bytes(),
            received_bytes: self.flow.counters.received_bytes(),
            sent_units: Some(self.flow.counters.sent_units()),
            received_units: Some(self.machine.completed()),
            late_answers: Some(self.machine.late()),
            ..SideReport::default()
        }
    }
}

impl RrFlow {
    /// Sends the request; returns how many bytes of it had no room.
    fn send(&self, buffers: &mut SharedBuffers, sequence: u64, now: u64) -> io::Result<usize> {
        match &self.socket {
            RrSocket::Tcp(stream) => write_some(stream, &buffers.request),
            RrSocket::Udp(socket) => {
                Header { kind: HeaderKind::Request, token: buffers.token, flow: self.id, sequence, sent_ns: now }
                    .write(&mut buffers.request);
                socket.send(&buffers.request).map(|_| 0)
            }
        }
    }
}

/// Writes while there is room; returns the rest. With one transaction outstanding the socket's buffer is empty, so
/// only a request larger than it leaves a rest.
fn write_some(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<usize> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.len())
}

/// Reads a response; `Some(None)` means that the outstanding response is complete, because a connection answers in
/// order.
fn read_stream(
    mut stream: &TcpStream,
    buffers: &mut SharedBuffers,
    partial: &mut usize,
) -> io::Result<Option<Option<u64>>> {
    let room = buffers.response_bytes - *partial;
    match stream.read(&mut buffers.response[..room]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(read) => {
            *partial = (*partial + read) % buffers.response_bytes;
            Ok((*partial == 0).then_some(None))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a response; `Some(Some(sequence))` is the response to that request.
fn read_datagram(socket: &UdpSocket, buffers: &mut SharedBuffers) -> io::Result<Option<Option<u64>>> {
    match socket.recv(&mut buffers.response) {
        Ok(read) => Ok(match Header::parse(&buffers.response[..read]) {
            Ok(header) if header.kind == HeaderKind::Response && header.token == buffers.token => {
                Some(Some(header.sequence))
            }
            _ => None,
        }),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

impl RrSocket {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Udp(socket) => socket.set_nonblocking(true),
        }
    }

    fn addresses(&self) -> (Option<String>, Option<String>) {
        let (local, remote) = match self {
            Self::Tcp(stream) => (stream.local_addr(), stream.peer_addr()),
            Self::Udp(socket) => (socket.local_addr(), socket.peer_addr()),
        };
        (local.ok().map(|address| address.to_string()), remote.ok().map(|address| address.to_string()))
    }
}

impl AsFd for RrSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leadline_stats::Histogram;

    use super::*;
    use crate::metering::Collector;

    fn spec(timeout_ms: u32) -> RrSpec {
        RrSpec {
            target: leadline_wire::Target { host: String::new(), port: 0, ip_version: None, key: None },
            protocol: Protocol::Tcp,
            flows: 1,
            threads: 1,
            duration_ms: 1,
            number: None,
            warmup_ms: 0,
            request_bytes: 64,
            response_bytes: 64,
            timeout_ms,
            bind: None,
            interval_ms: 100,
        }
    }

    /// Runs one flow against a peer that answers this many requests and then is silent.
    fn against_silence(
        answers: usize,
        timeout_ms: u32,
        most: Option<u64>,
        length_ns: u64,
    ) -> (Span, WorkerReport, Vec<Histogram>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let peer = std::thread::spawn(move || {
            let mut request = [0; 64];
            for _ in 0..answers {
                far.read_exact(&mut request).and_then(|()| far.write_all(&request)).unwrap();
            }
            // Open until the client has closed it.
            let _ = far.read_to_end(&mut Vec::new());
        });
        let result = driven(RrSocket::Tcp(near), timeout_ms, most, length_ns);
        peer.join().unwrap();
        result
    }

    /// Runs one flow over this socket: returns its report and its histograms.
    fn driven(
        socket: RrSocket,
        timeout_ms: u32,
        most: Option<u64>,
        length_ns: u64,
    ) -> (Span, WorkerReport, Vec<Histogram>) {
        let flow = RrFlow { id: 0, socket, counters: Arc::default(), most };
        let at_ns = monotonic_ns();
        let span = Span { at_ns, end_ns: at_ns + length_ns };
        let (out, rolled) = mpsc::channel();
        let recorder = Recorder::new(METRICS.len(), 0, out);
        let name = ThreadName("rr".to_owned());
        let report = drive(vec![flow], &spec(timeout_ms), 1, span, &ControlSignal::default(), name, recorder).unwrap();
        let mut collector = Collector::new(METRICS);
        rolled.iter().for_each(|one| collector.take(one));
        (span, report, (0..METRICS.len()).map(|metric| collector.total(metric)).collect())
    }

    #[test]
    fn a_transaction_that_times_out_leaves_its_age_and_no_latency() {
        const TIMEOUT_NS: u64 = 20_000_000;
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(peer.local_addr().unwrap()).unwrap();
        let (_, udp, histograms) = driven(RrSocket::Udp(near), 20, Some(3), 30_000_000_000);
        assert_eq!(udp.errors, BTreeMap::from([("timeout".to_owned(), 3)]));
        assert_eq!((histograms[LATENCY].count(), histograms[LATENCY_CENSORED].count()), (0, 3));
        // A bucket's lowest value may be 0.1 % below the recorded one.
        assert!(histograms[LATENCY_CENSORED].quantile_ns(0.0) >= Some(TIMEOUT_NS / 1000 * 999));
        let (_, tcp, histograms) = against_silence(2, 20, None, 30_000_000_000);
        assert_eq!(tcp.flows[0].received_units, Some(2));
        assert_eq!((histograms[LATENCY].count(), histograms[LATENCY_CENSORED].count()), (2, 1));
    }

    #[test]
    fn a_silence_that_lasts_to_the_end_belongs_to_the_flow() {
        // Long enough for the first response, even if one of the threads cannot run meanwhile.
        let (span, report, _) = against_silence(1, 6000, None, 4_000_000_000);
        assert_eq!((report.flows[0].received_units, report.flows[0].end_ns), (Some(1), Some(span.end_ns)));
        assert_eq!(report.errors, BTreeMap::from([("timeout".to_owned(), 1)]));
    }

    #[test]
    fn a_slow_peer_keeps_its_latency_when_the_time_is_over() {
        const TAKES_NS: u64 = 900_000_000;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let peer = std::thread::spawn(move || {
            let mut request = [0; 64];
            while far.read_exact(&mut request).is_ok() {
                leadline_sys::clock::sleep_until(monotonic_ns() + TAKES_NS);
                let _ = far.write_all(&request);
            }
        });
        let (_, report, histograms) = driven(RrSocket::Tcp(near), 50_000, None, 1_000_000_000);
        peer.join().unwrap();
        // The outstanding transaction is waited for at the end: no transaction remains with a known age only.
        assert_eq!(report.flows[0].received_units, Some(histograms[LATENCY].count()));
        assert_eq!(histograms[LATENCY_CENSORED].count(), 0);
        assert!(histograms[LATENCY].quantile_ns(0.0) >= Some(TAKES_NS / 1000 * 999), "{:?}", histograms[LATENCY]);
    }

    #[test]
    fn a_flow_ends_with_its_number_or_its_failure() {
        let (span, report, _) = against_silence(5, 50_000, Some(5), 30_000_000_000);
        assert_eq!(report.flows[0].received_units, Some(5));
        assert!(report.flows[0].end_ns.unwrap() < span.end_ns);
        let (span, report, _) = against_silence(0, 1, None, 30_000_000_000);
        assert!(report.flows[0].end_ns.unwrap() < span.end_ns && report.errors["timeout"] == 1);
    }
}
