//! One session on the server: the flows that arrive for it, and its life until the report. Every wait has a deadline,
//! and the client's messages are read only as fast as they are handled.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_pace::Pace;
use leadline_sys::clock::{identity, monotonic_ns};
use leadline_sys::net;
use leadline_sys::process::random_u64;
use leadline_transport::{
    encode_frame, DatagramSizes, FromClient, FromServer, Open, Refusal, SessionRequest, Work, FRAME_LIMIT_BYTES,
};
use leadline_wire::{Direction, Protocol, StreamOptions};
use tracing::info;

use super::admission;
use super::occupancy::{SessionActivity, SessionPlace, SessionStage};
use super::peer_rate::PeerRate;
use super::session_reader::forward_messages;
use super::shared::{ServerShared, SessionEntry, SessionInput};
use crate::atomic_option::AtomicOption;
use crate::control_signal::ControlSignal;
use crate::flows::account::Account;
use crate::flows::answer::{self, AnswerFlow, AnswerSocket, AnswerWork};
use crate::flows::connect_answer::{self, ConnectPort};
use crate::flows::datagram::{self, format_for, DatagramFlow, DatagramWork, MOST_DSCP};
use crate::flows::payload::{ByteBudget, Payload};
use crate::flows::stream::{self, PacedBlocks, StreamFlow, StreamWork};
use crate::flows::stream_options;
use crate::flows::thread_group::{ThreadGroup, Worker};
use crate::flows::{by_role, counters, deal_out, moved, planned_directions, Role, Span, MAX_DRAIN_NS};
use crate::locking::lock;
use crate::machine_meter::{MachineMeter, Moved};
use crate::metering::FlowCounters;
use crate::rate_text::format_rate;

/// The time limit for a client to open its flows.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the client to set the start: all agents of a plan prepare before any of them starts, so this
/// may take as long as the slowest host. Also how far in the future the start may lie.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How far in the past the start may lie if there is a rate to keep, ns: what was due since then is sent at once.
const MOST_CATCH_UP_NS: u64 = 1_000_000_000;
/// A client that reads nothing, or is silent, for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit, after the span and the longest drain, for the client to end its session.
const END_NS: u64 = 15_000_000_000;
/// The time limit for the client to read its report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a session checks whether its server has been stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of queued messages, apart from arriving flows; beyond this the control connection is not read.
const MOST_QUEUED: usize = 256;

struct Session<'a> {
    control: Arc<TcpStream>,
    open: Open,
    token: u64,
    inputs: Receiver<SessionInput>,
    waker: SyncSender<SessionInput>,
    signal: Arc<ControlSignal>,
    /// What this host may send to the peer; unlimited if absent.
    rate: Option<&'a PeerRate>,
    /// What of the answers was counted against the rate, bytes.
    counted_bytes: u64,
    /// What others see of it.
    activity: &'a SessionActivity,
    /// How long it waits for the next message or flow before the start.
    idle: Duration,
}

/// A flow that has arrived.
enum FlowSocket {
    Stream(TcpStream),
    Datagram(UdpSocket),
}

/// One flow of the running session.
struct SessionFlow {
    id: u32,
    direction: Direction,
    counters: Arc<FlowCounters>,
    /// How many datagrams the client sent.
    expected: Arc<AtomicOption>,
}

/// Returns what others see of a session that begins now. If they end it, its client gets the reason,
/// unless it reads nothing.
pub fn activity(control: &Arc<TcpStream>) -> Arc<SessionActivity> {
    let control = Arc::clone(control);
    Arc::new(SessionActivity::new(monotonic_ns(), move || {
        let message = "the server is full, and this idle session has made room for another client's".to_owned();
        let refusal = FromServer::Refused(Refusal { code: "displaced".to_owned(), message });
        if let Ok(frame) = encode_frame(&refusal) {
            net::send_now(&control, &frame);
        }
        let _ = control.shutdown(std::net::Shutdown::Both);
    }))
}

/// Runs a session from the granted request to the report.
pub fn run(
    control: Arc<TcpStream>,
    client: SocketAddr,
    request: SessionRequest,
    place: &SessionPlace,
    shared: &ServerShared,
    server: &ControlSignal,
) -> io::Result<()> {
    control.set_nonblocking(false)?;
    control.set_write_timeout(Some(WRITE_TIMEOUT))?;
    net::give_up_after(&control, PEER_TIMEOUT)?;
    let token = random_u64()?;
    let accepted = request.accept(token, identity().as_deref());
    let SessionRequest { open, mut decoder, .. } = request;
    let (waker, inputs) = mpsc::sync_channel(MOST_QUEUED + 2 * open.flows as usize);
    // The client's longest message is its end, with a number of up to 20 digits per flow.
    decoder.set_limit((4096 + 24 * open.flows as usize).min(FRAME_LIMIT_BYTES));
    let reader = Arc::clone(&control);
    let inbox = waker.clone();
    let guard = SessionGuard { control: Arc::clone(&control), shared, token };
    std::thread::Builder::new()
        .name("session-reader".into())
        .spawn(move || forward_messages(&reader, decoder, &inbox))?;
    // The clients of a fleet may each have a different address.
    let most_addresses = open.flows as usize + 1;
    let entry = SessionEntry { inbox: waker.clone(), addresses: vec![client.ip()], most_addresses };
    lock(&shared.sessions).insert(token, entry);
    let idle = Duration::from_millis(shared.limits.per_peer.idle_ms).min(SETUP_TIMEOUT);
    let (rate, activity, signal) = (place.share.rate.as_deref(), &*place.activity, Arc::default());
    let session = Session { control, open, token, inputs, waker, signal, rate, counted_bytes: 0, activity, idle };
    log_opened(&session.open, client);
    let result = session.serve(&accepted, server);
    drop(guard);
    let failure = result.as_ref().err().map(tracing::field::display);
    info!(%client, failure, "session closed");
    result
}

fn log_opened(open: &Open, client: SocketAddr) {
    let Open { work, flows, direction, duration_ms, .. } = open;
    info!(%client, ?work, flows, ?direction, duration_ms, "session opened");
}

/// Keeps the session known to the listeners while it exists; the relaying thread ends with it.
struct SessionGuard<'a> {
    control: Arc<TcpStream>,
    shared: &'a ServerShared,
    token: u64,
}

impl Drop for SessionGuard<'_> {
    fn drop(&mut self) {
        lock(&self.shared.sessions).remove(&self.token);
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }
}

impl Session<'_> {
    fn serve(mut self, accepted: &FromServer, server: &ControlSignal) -> io::Result<()> {
        send(&self.control, accepted)?;
        let directions = planned_directions(self.open.direction, self.open.flows);
        let count = directions.len() as u32;
        let port = self.connect_port()?;
        // With a connection per transaction, the one flow that arrives only marks the end of the clock queries.
        let arrived = self.await_flows(if port.is_some() { 1 } else { directions.len() }, server)?;
        self.activity.enter(SessionStage::Waiting, monotonic_ns());
        let number = port.as_ref().map(ConnectPort::number).transpose()?;
        send(&self.control, &FromServer::Ready { port: number })?;
        let span = self.await_begin(server)?;
        self.activity.enter(SessionStage::Running, monotonic_ns());
        let served: Vec<SessionFlow> = (0..)
            .zip(directions)
            .zip(counters(count))
            .map(|((id, direction), counters)| SessionFlow {
                id,
                direction,
                counters,
                expected: Arc::new(AtomicOption::none()),
            })
            .collect();
        let workers = match self.connect_worker(&served, port, span) {
            Some(worker) => vec![worker],
            None => self.workers(&served, arrived, span)?,
        };
        let waker = self.waker.clone();
        let threads = ThreadGroup::start(workers, &self.signal, move || {
            // If there is no room, the session is about to wake up anyway.
            let _ = waker.try_send(SessionInput::WorkerDone);
        })?;
        let mut machine = MachineMeter::default();
        let outcome = self.supervise(&served, &threads, span, server, &mut machine);
        if outcome.is_err() {
            self.signal.abandon();
        }
        let reports = threads.join()?;
        outcome?;
        let Account { rows: flows, mut load, errors } = Account::of(reports);
        load.machine = machine.used().map(Box::new);
        load.quota = machine.held_back();
        send(&self.control, &FromServer::Report { flows, load: Box::new(load), errors })?;
        // A close with unread messages of the client would be a reset, and lose the report in transit.
        self.control.shutdown(std::net::Shutdown::Write)?;
        let deadline = Instant::now() + REPORT_TIMEOUT;
        while self.receive_until(deadline, server).is_ok() {}
        Ok(())
    }

    /// Waits for every flow; the clocks are compared meanwhile.
    fn await_flows(&mut self, count: usize, server: &ControlSignal) -> io::Result<Vec<FlowSocket>> {
        let deadline = Instant::now() + SETUP_TIMEOUT;
        let mut flows: Vec<Option<FlowSocket>> = (0..count).map(|_| None).collect();
        let is_stream = matches!(
            self.open.work,
            Work::Tcp { .. } | Work::Rr { protocol: Protocol::Tcp, .. } | Work::Rr { connect: true, .. }
        );
        while flows.iter().any(Option::is_none) {
            let received = self.receive_until(deadline.min(Instant::now() + self.idle), server);
            if received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                self.refuse("idle", "the session's flows did not arrive in time".to_owned())?;
            }
            match received? {
                SessionInput::Message(FromClient::Clock { id }, received_ns) => self.answer_clock(id, received_ns)?,
                SessionInput::Stream(id, stream) if is_stream => place(&mut flows, id, FlowSocket::Stream(stream)),
                SessionInput::Datagram(id, socket) if !is_stream => place(&mut flows, id, FlowSocket::Datagram(socket)),
                SessionInput::Stream(..) | SessionInput::Datagram(..) | SessionInput::WorkerDone => {}
                SessionInput::Message(..) | SessionInput::Closed => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(flows.into_iter().flatten().collect())
    }

    fn await_begin(&mut self, server: &ControlSignal) -> io::Result<Span> {
        let deadline = Instant::now() + BEGIN_TIMEOUT;
        loop {
            match self.receive_until(deadline, server)? {
                SessionInput::Message(FromClient::Begin { at_ns }, received_ns) => {
                    if at_ns > received_ns.saturating_add(BEGIN_TIMEOUT.as_nanos() as u64) {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    if self.rate.is_some() && at_ns.saturating_add(MOST_CATCH_UP_NS) < received_ns {
                        let message = "the start is more than a second in the past: payload that was due since would be sent faster than the rate";
                        self.refuse("bad_start", message.to_owned())?;
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    let end_ns = at_ns.saturating_add(self.open.duration_ms.saturating_mul(1_000_000));
                    return Ok(Span { at_ns, end_ns: end_ns.min(u64::MAX / 2) });
                }
                // A hello that was repeated before its response arrived, or a flow too many.
                SessionInput::Datagram(..) | SessionInput::Stream(..) | SessionInput::WorkerDone => {}
                SessionInput::Message(..) | SessionInput::Closed => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn receive_until(&self, deadline: Instant, server: &ControlSignal) -> io::Result<SessionInput> {
        loop {
            if server.stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.inputs.recv_timeout(remaining.min(POLL_INTERVAL)) {
                Ok(SessionInput::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into())
                }
                Ok(input) => {
                    self.activity.touch(monotonic_ns());
                    return Ok(input);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn answer_clock(&mut self, id: u32, received_ns: u64) -> io::Result<()> {
        send(&self.control, &FromServer::Clock { id, received_ns, sent_ns: monotonic_ns() })
    }

    fn workers(&self, served: &[SessionFlow], arrived: Vec<FlowSocket>, span: Span) -> io::Result<Vec<(Role, Worker)>> {
        let threads = admission::threads(&self.open);
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        match self.open.work {
            Work::Tcp { block_bytes, rate_bps, options } => {
                let interval_ns = u64::from(self.open.interval_ms) * 1_000_000;
                // The admission has checked that the rate can be kept.
                let paced = rate_bps.and_then(|rate| PacedBlocks::new(rate, block_bytes));
                let work = StreamWork {
                    payload: options.payload.into(),
                    send: options.send,
                    receive: options.receive,
                    ..StreamWork::plain(block_bytes as usize, paced, interval_ns)
                };
                let flows = self.streams(served, arrived, &options)?;
                for (role, group) in by_role(flows, threads, |flow| flow.role) {
                    let work = work.clone();
                    workers.push((role, Box::new(move |signal| stream::drive(group, work, span, signal, "tcp-serve"))));
                }
            }
            Work::Udp { datagram_bytes, rate_pps, number } => {
                let pace = rate_pps.and_then(Pace::per_second);
                let options = &self.open.datagrams;
                // The admission has checked the mix.
                let sizes = DatagramSizes::new(datagram_bytes, &options.sizes)
                    .unwrap_or_else(|| DatagramSizes::fixed(datagram_bytes));
                let format = format_for(&sizes, self.token);
                let work =
                    DatagramWork { format, sizes, pace, burst: 1, number, payload: Payload::Zeros, gso: options.gso };
                self.set_up(&arrived)?;
                let flows = served.iter().zip(arrived).filter_map(|(flow, arrived)| match arrived {
                    FlowSocket::Datagram(socket) => Some(DatagramFlow {
                        id: flow.id,
                        socket,
                        role: local_role(flow.direction),
                        counters: Arc::clone(&flow.counters),
                        offset_ns: pace.map_or(0, |pace| offset_ns(&self.open, pace, flow.id)),
                        expected: Arc::clone(&flow.expected),
                    }),
                    FlowSocket::Stream(_) => None,
                });
                for (role, group) in by_role(flows.collect(), threads, |flow| flow.role) {
                    let work = work.clone();
                    let drive =
                        move |signal: &ControlSignal| datagram::drive(group, work, span, signal, "udp-serve", None);
                    workers.push((role, Box::new(drive)));
                }
            }
            Work::Rr { .. } => {
                let Some(work) = answer_work(&self.open, self.token) else { return Ok(workers) };
                self.set_up(&arrived)?;
                let flows = served.iter().zip(arrived).map(|(flow, arrived)| AnswerFlow {
                    id: flow.id,
                    socket: match arrived {
                        FlowSocket::Stream(stream) => AnswerSocket::Tcp(stream),
                        FlowSocket::Datagram(socket) => AnswerSocket::Udp(socket),
                    },
                    counters: Arc::clone(&flow.counters),
                });
                for group in deal_out(flows.collect(), threads) {
                    let drive = move |signal: &ControlSignal| answer::drive(group, work, span, signal, "rr-serve");
                    workers.push((Role::Receive, Box::new(drive)));
                }
            }
        }
        Ok(workers)
    }

    /// Gives the flows the code point and the buffers that the client asked for.
    fn set_up(&self, arrived: &[FlowSocket]) -> io::Result<()> {
        let options = &self.open.datagrams;
        let code_point = options.dscp.map(|code_point| code_point & MOST_DSCP);
        arrived.iter().try_for_each(|flow| match flow {
            FlowSocket::Stream(socket) => net::set_dscp(socket, code_point),
            FlowSocket::Datagram(socket) => {
                net::set_dscp(socket, code_point)?;
                options.window_bytes.map_or(Ok(()), |bytes| net::set_buffers(socket, bytes as usize))
            }
        })
    }

    fn streams(
        &self,
        served: &[SessionFlow],
        arrived: Vec<FlowSocket>,
        options: &StreamOptions,
    ) -> io::Result<Vec<StreamFlow>> {
        let mut flows = Vec::new();
        let budget = options.total_bytes.map(|bytes| Arc::new(ByteBudget::new(bytes)));
        for (flow, arrived) in served.iter().zip(arrived) {
            let FlowSocket::Stream(socket) = arrived else { return Err(io::ErrorKind::InvalidData.into()) };
            if let Some(name) = &self.open.congestion {
                net::set_congestion(&socket, name)?;
            }
            stream_options::apply_accepted(&socket, options).map_err(|(_, error)| error)?;
            let role = local_role(flow.direction);
            let flow = StreamFlow::new(flow.id, socket, role, Arc::clone(&flow.counters));
            flows.push(StreamFlow { budget: budget.clone(), ..flow });
        }
        Ok(flows)
    }

    /// Reports progress until the workers have ended and the client has sent its `end`.
    fn supervise(
        &mut self,
        served: &[SessionFlow],
        threads: &ThreadGroup,
        span: Span,
        server: &ControlSignal,
        machine: &mut MachineMeter,
    ) -> io::Result<()> {
        let interval = Duration::from_millis(self.open.interval_ms.into());
        let has_units = !matches!(self.open.work, Work::Tcp { .. });
        let is_rr = matches!(self.open.work, Work::Rr { .. });
        let latest_ns = span.end_ns + MAX_DRAIN_NS + END_NS;
        let mut tick = Instant::now() + interval;
        // The client sets its own interval; this check must not depend on it.
        let mut check = Instant::now() + POLL_INTERVAL;
        let mut moved_before = Moved::default();
        let (mut ended, mut sent_reported) = (false, false);
        while !(threads.done() && ended) {
            match self.inputs.recv_timeout(tick.saturating_duration_since(Instant::now()).min(POLL_INTERVAL)) {
                // Requests of a stopped client are still answered: its `end` marks the last one.
                Ok(SessionInput::Message(FromClient::Stop {}, _)) if is_rr => {}
                Ok(SessionInput::Message(FromClient::Stop {}, _)) => self.signal.stop(),
                Ok(SessionInput::Message(FromClient::End { sent_units }, _)) => {
                    ended = true;
                    let upward = served.iter().filter(|flow| flow.direction == Direction::Up);
                    for (flow, sent) in upward.zip(sent_units) {
                        flow.expected.set(sent);
                    }
                    if is_rr {
                        self.signal.stop();
                    }
                }
                Ok(SessionInput::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into())
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= tick {
                tick += interval;
                let flows = served.iter().map(|flow| flow.counters.progress(flow.id, has_units)).collect();
                send(&self.control, &FromServer::Progress { t_ns: monotonic_ns(), flows })?;
            }
            if Instant::now() >= check {
                check = Instant::now() + POLL_INTERVAL;
                let moved_now = moved(served.iter().map(|flow| &flow.counters));
                if std::mem::replace(&mut moved_before, moved_now) != moved_now {
                    self.activity.touch(monotonic_ns());
                }
                if is_rr {
                    self.check_rate(served)?;
                }
            }
            // A client that only receives has nothing to send, and ends at once.
            let is_over = threads.done() || (ended && threads.senders_done()) || monotonic_ns() >= span.end_ns;
            machine.poll(monotonic_ns(), span.at_ns, is_over, || moved(served.iter().map(|flow| &flow.counters)));
            if threads.senders_done() && has_units && !is_rr && !sent_reported {
                sent_reported = true;
                let downward = served.iter().filter(|flow| flow.direction == Direction::Down);
                let units = downward.map(|flow| flow.counters.sent_units()).collect();
                send(&self.control, &FromServer::Sent { units })?;
            }
            if server.stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if monotonic_ns() >= latest_ns {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

impl Session<'_> {
    /// Opens the session's own port, if each transaction has a connection.
    fn connect_port(&self) -> io::Result<Option<ConnectPort>> {
        let Work::Rr { protocol, connect: true, .. } = self.open.work else { return Ok(None) };
        let (local, client) = (self.control.local_addr()?, self.control.peer_addr()?);
        ConnectPort::open(local.ip(), protocol, client.ip()).map(Some)
    }

    /// Returns the session's worker, if each transaction has a connection.
    fn connect_worker(&self, served: &[SessionFlow], port: Option<ConnectPort>, span: Span) -> Option<(Role, Worker)> {
        let (port, work) = port.zip(answer_work(&self.open, self.token))?;
        let counters = served.iter().map(|flow| Arc::clone(&flow.counters)).collect();
        Some((Role::Receive, Box::new(move |signal| connect_answer::drive(port, work, counters, span, signal))))
    }

    /// Request-response states no rate: the client decides how often it asks. If the answers to a peer's sessions exceed
    /// the rate that is left for it by more than a second's worth, the session that notices ends with an error.
    fn check_rate(&mut self, served: &[SessionFlow]) -> io::Result<()> {
        let Some(rate) = self.rate else { return Ok(()) };
        let sent_bytes: u64 = served.iter().map(|flow| flow.counters.sent_bytes()).sum();
        let uncounted_bytes = sent_bytes.saturating_sub(std::mem::replace(&mut self.counted_bytes, sent_bytes));
        if rate.count_answers(monotonic_ns(), uncounted_bytes) {
            return Ok(());
        }
        let left = format_rate(rate.left_bps());
        let message = format!("the answers exceed the {left} that this server still allows the peer");
        self.refuse("too_fast", message)?;
        Err(io::ErrorKind::QuotaExceeded.into())
    }

    fn refuse(&mut self, code: &str, message: String) -> io::Result<()> {
        send(&self.control, &FromServer::Refused(Refusal { code: code.to_owned(), message }))
    }
}

/// The parameters of answering, for request-response.
fn answer_work(open: &Open, token: u64) -> Option<AnswerWork> {
    let Work::Rr { request_bytes, response_bytes, outstanding, .. } = open.work else { return None };
    Some(AnswerWork {
        token,
        request_bytes: request_bytes as usize,
        response_bytes: response_bytes as usize,
        outstanding: outstanding as usize,
    })
}

/// How much later than the session a flow begins, ns. Downward flows have the last numbers.
fn offset_ns(open: &Open, pace: Pace, flow: u32) -> u64 {
    if open.takes_turns {
        pace.turn_ns(flow % open.flows.max(1), open.flows)
    } else {
        0
    }
}

fn local_role(direction: Direction) -> Role {
    if direction == Direction::Down {
        Role::Send
    } else {
        Role::Receive
    }
}

/// Stores a flow. A repeated flow, or one with a number beyond the session's, changes nothing.
fn place(flows: &mut [Option<FlowSocket>], id: u32, arrived: FlowSocket) {
    if let Some(slot @ None) = flows.get_mut(id as usize) {
        *slot = Some(arrived);
    }
}

fn send(mut control: &TcpStream, message: &FromServer) -> io::Result<()> {
    let frame = encode_frame(message).map_err(io::Error::other)?;
    control.write_all(&frame)
}
