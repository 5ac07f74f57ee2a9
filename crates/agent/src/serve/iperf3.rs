//! One test of a real iperf3 client, from its parameters to its results. The protocol is a machine of
//! `leadline_transport::iperf3`; payload is moved by the workers that move it for Leadline's own sessions.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leadline_pace::Pace;
use leadline_sys::clock::{monotonic_ns, unix_s};
use leadline_sys::net;
use leadline_sys::usage::{allowed_cpus, pin_to};
use leadline_transport::iperf3::{
    stream_id, Cookie, ErrorNumber, Iperf3Error, Iperf3Parameters, Iperf3Protocol, Iperf3Results, Iperf3Server,
    Iperf3ServerEvent, Iperf3ServerOutput,
};
use leadline_transport::{DatagramFormat, DatagramSizes, Open, SideReport};
use leadline_wire::{Direction, FlowProgress, ReceiveMethod, SendMethod};
use tracing::info;

use super::admission;
use super::iperf3_claims::{may_move, movable_socket, Claims};
use super::iperf3_request::{as_session, packets_per_s};
use super::iperf3_tests::{ClaimWatch, Iperf3Input};
use super::occupancy::{SessionActivity, SessionPlace, SessionStage};
use super::pending::Iperf3Request;
use super::shared::ServerShared;
use crate::atomic_option::AtomicOption;
use crate::control_signal::ControlSignal;
use crate::flows::account::Account;
use crate::flows::datagram::{self, DatagramFlow, DatagramWork};
use crate::flows::iperf3::{results, set_options, FlowSocket, ResultsContext, TestFlow};
use crate::flows::payload::{ByteBudget, Payload};
use crate::flows::stream::{self, PacedBlocks, StreamEnd, StreamFlow, StreamWork};
use crate::flows::thread_group::{ThreadGroup, Worker};
use crate::flows::{by_role, counters, moved, planned_directions, Role, Span, DRAIN_NS};
use crate::machine_meter::Moved;

/// The time limit for a client's next step after the test, and for its turn to open UDP flows.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// A client opens its UDP flow at once and does not repeat its hello: after this time it is lost, and other clients of its
/// address wait for their turn.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// How long after its planned end a test may go on: what iperf3's own server allows.
const OVERTIME_NS: u64 = 40_000_000_000;
/// After the client's end, this much silence on a TCP flow means that all has arrived, if the client's count does not
/// tell: it leaves out what was sent in the omitted time, ns.
const OMITTED_SILENCE_NS: u64 = 500_000_000;
/// A client that reads nothing, or acknowledges nothing, for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const PEER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a test checks whether its server has been stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of queued inputs beyond its flows.
const MOST_QUEUED: usize = 16;
/// How often the kernel's view of a sending TCP flow is sampled, ns.
const SAMPLE_NS: u64 = 1_000_000_000;

/// Why a test ends before its results.
struct Failure {
    /// The number that the client gets; `None` if the client itself has ended the test.
    number: Option<ErrorNumber>,
    error: io::Error,
}

impl From<io::Error> for Failure {
    /// An error of the control connection.
    fn from(error: io::Error) -> Self {
        Self { number: None, error }
    }
}

impl Failure {
    fn new(number: ErrorNumber, error: impl Into<io::Error>) -> Self {
        Self { number: Some(number), error: error.into() }
    }

    /// The bytes that tell the client.
    fn message(&self) -> Option<Vec<u8>> {
        self.number.map(|number| Iperf3Server::fail(number, errno(&self.error)))
    }
}

/// The system's number for an error that it did not return itself.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::InvalidData => libc::EPROTO,
        _ => 0,
    })
}

struct Test<'a> {
    control: Arc<TcpStream>,
    cookie: Cookie,
    client: SocketAddr,
    asked: Iperf3Parameters,
    /// The blocks of its TCP flows; `None` without a rate.
    paced: Option<PacedBlocks>,
    activity: &'a SessionActivity,
    open: Open,
    inputs: Receiver<Iperf3Input>,
    waker: SyncSender<Iperf3Input>,
    signal: Arc<ControlSignal>,
    server: &'a ControlSignal,
}

/// Returns what others see of a test that begins now. If they end it, its client gets a message.
pub fn activity(control: &Arc<TcpStream>) -> Arc<SessionActivity> {
    let control = Arc::clone(control);
    Arc::new(SessionActivity::new(monotonic_ns(), move || {
        net::send_now(&control, &Iperf3Server::terminate());
        let _ = control.shutdown(Shutdown::Both);
    }))
}

/// Runs a granted test to its end.
pub fn run(
    control: Arc<TcpStream>,
    client: SocketAddr,
    request: Iperf3Request,
    paced: Option<PacedBlocks>,
    place: &SessionPlace,
    shared: &ServerShared,
    server: &ControlSignal,
) -> io::Result<()> {
    control.set_nonblocking(false)?;
    control.set_write_timeout(Some(WRITE_TIMEOUT))?;
    net::give_up_after(&control, PEER_TIMEOUT)?;
    let Iperf3Request { cookie, asked, machine } = request;
    if let Some(gate) = &shared.gate {
        match gate.check(asked.authtoken.as_deref(), unix_s()) {
            Ok(user) => info!(%client, user, "iperf3 client logged in"),
            Err(reason) => {
                info!(%client, %reason, "iperf3 test refused");
                return (&*control).write_all(&Iperf3Server::fail(ErrorNumber::Authentication, libc::EACCES));
            }
        }
    }
    let open = as_session(&asked, shared.limits.longest_ms);
    let (waker, inputs) = mpsc::sync_channel(MOST_QUEUED + 2 * open.flows as usize);
    let Some(_registered) = shared.iperf3.register(cookie, waker.clone()) else {
        return (&*control).write_all(&Iperf3Server::fail(ErrorNumber::Accept, libc::EEXIST));
    };
    let (reader, answering) = (Arc::clone(&control), Arc::clone(&control));
    let inbox = waker.clone();
    std::thread::Builder::new().name("iperf3-reader".into()).spawn(move || forward_events(&reader, machine, &inbox))?;
    info!(%client, work = ?open.work, flows = open.flows, direction = ?open.direction, "iperf3 test opened");
    let (activity, signal) = (&*place.activity, Arc::default());
    let test = Test { control, cookie, client, asked, paced, activity, open, inputs, waker, signal, server };
    let result = test.serve(shared);
    let failure = result.as_ref().err().map(|failure| failure.error.to_string());
    if let Some(message) = result.as_ref().err().and_then(Failure::message) {
        // This fails if the client is gone.
        let _ = (&*answering).write_all(&message);
    }
    // The reading thread ends with the connection.
    let _ = answering.shutdown(Shutdown::Both);
    let (sent_bytes, received_bytes) = result.unwrap_or_default();
    info!(%client, sent_bytes, received_bytes, failure, "iperf3 test closed");
    Ok(())
}

impl Test<'_> {
    /// Returns the bytes sent and received.
    fn serve(mut self, shared: &ServerShared) -> Result<(u64, u64), Failure> {
        let roles: Vec<Role> =
            planned_directions(self.open.direction, self.open.flows).into_iter().map(server_role).collect();
        self.take_place()?;
        let (arrived, watch) = self.await_flows(&roles, shared)?;
        for socket in &arrived {
            set_options(socket, &self.asked).map_err(|(number, error)| Failure::new(number, error))?;
        }
        let congestion = arrived.iter().find_map(|socket| match socket {
            FlowSocket::Stream(stream) => net::congestion(stream),
            FlowSocket::Datagram(_) => None,
        });
        (&*self.control).write_all(&Iperf3Server::start())?;
        let at_ns = monotonic_ns();
        self.activity.enter(SessionStage::Running, at_ns);
        let longest_ns = self.open.duration_ms.saturating_mul(1_000_000).saturating_add(OVERTIME_NS);
        let span = Span { at_ns, end_ns: at_ns.saturating_add(longest_ns).min(u64::MAX / 2) };
        let movable = movable_socket(&arrived, &roles);
        let flows: Vec<TestFlow> = roles
            .into_iter()
            .zip(counters(arrived.len() as u32))
            .map(|(role, counters)| TestFlow { role, counters, expected: Arc::new(AtomicOption::none()) })
            .collect();
        let mut claims = Claims::new(watch, movable, &flows);
        let workers = self.workers(&flows, arrived, span);
        let waker = self.waker.clone();
        let threads = ThreadGroup::start(workers, &self.signal, move || {
            // If there is no room, the test is about to wake up anyway.
            let _ = waker.try_send(Iperf3Input::WorkerDone);
        });
        let threads = threads.map_err(|error| Failure::new(ErrorNumber::CreateFlows, error))?;
        let outcome = self.supervise(&flows, &threads, span, &mut claims);
        if outcome.is_err() {
            self.signal.abandon();
        }
        let reports = threads.join().map_err(|error| Failure::new(ErrorNumber::CreateFlows, error))?;
        let account = Account::of(reports);
        let sum = |count: fn(&SideReport) -> u64| account.rows.iter().map(count).sum::<u64>();
        let (sent, received) = (sum(|row| row.sent_bytes), sum(|row| row.received_bytes));
        let ending = outcome?;
        let length_s = ending.ended_ns.saturating_sub(span.at_ns + self.asked.omit_ns()) as f64 / 1e9;
        let context = ResultsContext {
            asked: &self.asked,
            length_s,
            omitted: ending.omitted.as_deref(),
            theirs: Some(&ending.of_client),
            congestion,
        };
        let results = results(&flows, &account, &context);
        let text = self.asked.get_server_output.then(|| {
            let version = env!("CARGO_PKG_VERSION");
            format!("leadline-agent {version}: {sent} bytes sent, {received} bytes received in {length_s:.2} s\n")
        });
        let output = Iperf3ServerOutput { text, document: None };
        (&*self.control).write_all(&Iperf3Server::results(&results, &output))?;
        let deadline = Instant::now() + STEP_TIMEOUT;
        // A client that closes without its last word has its figures.
        while let Ok(input) = self.input_until(deadline, ErrorNumber::Silence) {
            use Iperf3ServerEvent::{Done, Terminated};
            if matches!(input, Iperf3Input::Closed(_) | Iperf3Input::Event(Done | Terminated)) {
                break;
            }
        }
        Ok((sent, received))
    }

    /// Moves this thread, and with it the threads that it starts, to the CPU that the client names. As the server was
    /// started with a choice of CPUs, others are refused.
    fn take_place(&self) -> Result<(), Failure> {
        let Some(cpu) = self.asked.server_affinity else { return Ok(()) };
        let allowed = allowed_cpus().into_iter().find(|one| u64::from(*one) == cpu);
        let moved = allowed.ok_or(io::Error::from_raw_os_error(libc::EINVAL)).and_then(pin_to);
        moved.map_err(|error| Failure::new(ErrorNumber::Affinity, error))
    }

    /// Lets the client open its flows; they come in the order of their numbers. Each has its own time limit. UDP flows can
    /// be claimed again from then on.
    fn await_flows<'s>(
        &mut self,
        roles: &[Role],
        shared: &'s ServerShared,
    ) -> Result<(Vec<FlowSocket>, Option<ClaimWatch<'s>>), Failure> {
        let _turn = match self.asked.protocol() {
            Iperf3Protocol::Tcp => None,
            Iperf3Protocol::Udp => {
                let deadline = Instant::now() + STEP_TIMEOUT;
                let turn =
                    shared.iperf3.await_datagrams(self.client.ip(), self.cookie, &self.waker, deadline, self.server);
                Some(turn.map_err(|error| Failure::new(ErrorNumber::AcceptFlow, error))?)
            }
        };
        (&*self.control).write_all(&Iperf3Server::create_streams())?;
        let idle = flow_timeout(self.asked.protocol(), Duration::from_nanos(shared.idle_ns()));
        let mut deadline = Instant::now() + idle;
        let mut flows = Vec::with_capacity(roles.len());
        while flows.len() < roles.len() {
            let flow = match self.input_until(deadline, ErrorNumber::AcceptFlow)? {
                Iperf3Input::Stream(stream) => FlowSocket::Stream(stream),
                Iperf3Input::Datagram(socket) => FlowSocket::Datagram(socket),
                Iperf3Input::WorkerDone | Iperf3Input::Contender(_) => continue,
                Iperf3Input::Event(_) => return Err(Failure::new(ErrorNumber::Message, io::ErrorKind::InvalidData)),
                Iperf3Input::Closed(why) => return Err(closed(why)),
            };
            flows.push(flow);
            deadline = Instant::now() + idle;
        }
        let is_udp = self.asked.protocol() == Iperf3Protocol::Udp;
        let (client, cookie) = (self.client.ip(), self.cookie);
        // Before the turn is over, so that no hello is missed.
        let watch = is_udp.then(|| shared.iperf3.watch_claims(client, cookie, &self.waker, may_move(roles)));
        Ok((flows, watch))
    }

    fn workers(&self, flows: &[TestFlow], arrived: Vec<FlowSocket>, span: Span) -> Vec<(Role, Worker)> {
        let threads = admission::threads(&self.open);
        // A client that receives ends the test by what it has received; real datagrams may be lost on the way to it.
        let budget = self.asked.total_bytes().map(|bytes| Arc::new(ByteBudget::new(bytes)));
        let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
        for ((id, flow), arrived) in (0..).zip(flows).zip(arrived) {
            let (role, counters, expected) = (flow.role, Arc::clone(&flow.counters), Arc::clone(&flow.expected));
            match arrived {
                FlowSocket::Stream(socket) => {
                    let (expected, budget) = (Some(expected), budget.clone());
                    streams.push(StreamFlow { expected, budget, ..StreamFlow::new(id, socket, role, counters) });
                }
                FlowSocket::Datagram(socket) => {
                    datagrams.push(DatagramFlow { id, socket, role, counters, offset_ns: 0, expected });
                }
            }
        }
        let block_bytes = self.asked.block_bytes();
        let payload = if self.asked.repeating_payload { Payload::Digits } else { Payload::Random };
        let silence_ns = if self.asked.omit_ns() > 0 { OMITTED_SILENCE_NS } else { DRAIN_NS };
        let work = StreamWork {
            end: StreamEnd::Count { silence_ns },
            ends_when_spent: false,
            payload,
            send: if self.asked.zerocopy { SendMethod::Sendfile } else { SendMethod::Write },
            receive: if self.asked.skip_rx_copy { ReceiveMethod::Discard } else { ReceiveMethod::Copy },
            ..StreamWork::plain(block_bytes as usize, self.paced, SAMPLE_NS)
        };
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        for (role, group) in by_role(streams, threads, |flow| flow.role) {
            let work = work.clone();
            workers.push((role, Box::new(move |signal| stream::drive(group, work, span, signal, "iperf3-tcp"))));
        }
        let work = DatagramWork {
            format: DatagramFormat::Iperf3 { wide: self.asked.udp_counters_64bit },
            sizes: DatagramSizes::fixed(block_bytes),
            pace: packets_per_s(&self.asked).and_then(Pace::per_second),
            burst: self.asked.burst(),
            number: None,
            payload,
            gso: false,
        };
        for (role, group) in by_role(datagrams, threads, |flow| flow.role) {
            let work = work.clone();
            let drive = move |signal: &ControlSignal| datagram::drive(group, work, span, signal, "iperf3-udp", None);
            workers.push((role, Box::new(drive)));
        }
        workers
    }

    /// Waits for the client's end and its results.
    fn supervise(
        &mut self,
        flows: &[TestFlow],
        threads: &ThreadGroup,
        span: Span,
        claims: &mut Claims<'_>,
    ) -> Result<Ending, Failure> {
        let mut omitted: Option<Vec<FlowProgress>> = None;
        let omit_ns = span.at_ns.saturating_add(self.asked.omit_ns());
        let mut ended_ns = None;
        let mut results = None;
        let mut deadline_ns = span.end_ns;
        let mut moved_before = Moved::default();
        loop {
            let now = monotonic_ns();
            let moved_now = moved(flows.iter().map(|flow| &flow.counters));
            if std::mem::replace(&mut moved_before, moved_now) != moved_now {
                self.activity.touch(now);
            }
            if self.asked.omit_ns() > 0 && omitted.is_none() && now >= omit_ns {
                omitted = Some((0..).zip(flows).map(|(id, flow)| flow.counters.progress(id, true)).collect());
            }
            if let (Some(ended_ns), true) = (ended_ns, threads.done()) {
                if let Some(of_client) = results.take() {
                    return Ok(Ending { ended_ns, omitted, of_client });
                }
            }
            if now >= deadline_ns {
                return Err(Failure::new(ErrorNumber::Silence, io::ErrorKind::TimedOut));
            }
            let next_ns = if omitted.is_none() && omit_ns > now { omit_ns.min(deadline_ns) } else { deadline_ns };
            match self.inputs.recv_timeout(Duration::from_nanos(next_ns - now).min(POLL_INTERVAL)) {
                Ok(Iperf3Input::Event(Iperf3ServerEvent::Ended)) => {
                    // Now, because a client that exchanges results reads no errors.
                    if let Some(message) = claims.describe_lost_flow(flows) {
                        let error = io::Error::new(io::ErrorKind::InvalidData, message);
                        return Err(Failure::new(ErrorNumber::AcceptFlow, error));
                    }
                    ended_ns = Some(monotonic_ns());
                    deadline_ns = monotonic_ns() + STEP_TIMEOUT.as_nanos() as u64;
                    self.signal.stop();
                    (&*self.control).write_all(&Iperf3Server::ask_results())?;
                }
                Ok(Iperf3Input::Event(Iperf3ServerEvent::Results(of_client))) => {
                    self.expect(flows, &of_client);
                    results = Some(of_client);
                }
                Ok(Iperf3Input::Contender(port)) => claims.handle(port),
                Ok(Iperf3Input::Event(_)) => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
                Ok(Iperf3Input::Closed(why)) => return Err(closed(why)),
                Err(RecvTimeoutError::Disconnected) => return Err(closed(None)),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            if self.server.stopped() {
                let _ = (&*self.control).write_all(&Iperf3Server::terminate());
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
        }
    }

    /// Tells the receivers what the client sent. Bytes that it sent in the omitted time are not in its results;
    /// datagrams are.
    fn expect(&self, flows: &[TestFlow], of_client: &Iperf3Results) {
        for (place, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.role == Role::Receive) {
            let theirs = of_client.stream(stream_id(place));
            let sent = theirs.and_then(|stream| match self.asked.protocol() {
                Iperf3Protocol::Tcp if self.asked.omit_ns() > 0 => None,
                Iperf3Protocol::Tcp => u64::try_from(stream.bytes).ok(),
                Iperf3Protocol::Udp => u64::try_from(stream.packets).ok(),
            });
            match sent {
                Some(sent) => flow.expected.set(sent),
                // Unknown: what has arrived by now is all that can be waited for.
                None if self.asked.protocol() == Iperf3Protocol::Udp => {
                    flow.expected.set(flow.counters.received_units());
                }
                None => {}
            }
        }
    }

    fn input_until(&self, deadline: Instant, late: ErrorNumber) -> Result<Iperf3Input, Failure> {
        loop {
            if self.server.stopped() {
                let _ = (&*self.control).write_all(&Iperf3Server::terminate());
                return Err(io::Error::from(io::ErrorKind::Interrupted).into());
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(Failure::new(late, io::ErrorKind::TimedOut));
            }
            match self.inputs.recv_timeout(remaining.min(POLL_INTERVAL)) {
                Ok(input) => return Ok(input),
                Err(RecvTimeoutError::Disconnected) => return Err(closed(None)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// How long a test waits for its next flow.
fn flow_timeout(protocol: Iperf3Protocol, idle: Duration) -> Duration {
    match protocol {
        Iperf3Protocol::Tcp => idle,
        Iperf3Protocol::Udp => idle.min(HELLO_TIMEOUT),
    }
}

/// The end of a test, as the client told it.
struct Ending {
    ended_ns: u64,
    /// The counters when the omitted time was over.
    omitted: Option<Vec<FlowProgress>>,
    of_client: Box<Iperf3Results>,
}

fn server_role(direction: Direction) -> Role {
    match direction {
        Direction::Down => Role::Send,
        Direction::Up | Direction::Both => Role::Receive,
    }
}

/// The client is gone, or sends what cannot be read.
fn closed(why: Option<Iperf3Error>) -> Failure {
    match why {
        // While a client waits for results, it reads no states.
        Some(error @ (Iperf3Error::TooLong { .. } | Iperf3Error::Invalid(_))) => {
            io::Error::new(io::ErrorKind::InvalidData, error).into()
        }
        Some(error) => Failure::new(ErrorNumber::of(&error), io::Error::new(io::ErrorKind::InvalidData, error)),
        None => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
    }
}

/// Reads the control connection until it ends, and forwards its events.
fn forward_events(mut control: &TcpStream, mut machine: Iperf3Server, inbox: &SyncSender<Iperf3Input>) {
    let mut piece = [0; 4096];
    loop {
        loop {
            match machine.next_event() {
                Ok(Some(event)) => {
                    if inbox.send(Iperf3Input::Event(event)).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    let _ = inbox.send(Iperf3Input::Closed(Some(error)));
                    return;
                }
            }
        }
        match control.read(&mut piece) {
            Ok(read) if read > 0 => machine.receive(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    let _ = inbox.send(Iperf3Input::Closed(None));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_hello_ends_the_turn_of_its_client_before_the_idle_time() {
        let idle = Duration::from_secs(60);
        assert_eq!(flow_timeout(Iperf3Protocol::Tcp, idle), idle);
        assert_eq!(flow_timeout(Iperf3Protocol::Udp, idle), HELLO_TIMEOUT);
        assert_eq!(flow_timeout(Iperf3Protocol::Udp, Duration::from_secs(1)), Duration::from_secs(1));
    }
}
