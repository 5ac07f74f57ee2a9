//! The server's end of sessions: who may have one, the flows that arrive for it, and its course until the report.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leadline_pace::Pace;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::process::random_u64;
use leadline_transport::{
    encode_frame, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Open, Refusal, SideReport, Work, HEADER_BYTES,
    MAGIC,
};
use leadline_wire::{Direction, LoadReport, Side};

use super::lock;
use crate::flows::answer::{self, AnswerFlow, AnswerSocket, AnswerWork};
use crate::flows::crew::{Crew, Worker};
use crate::flows::datagram::{self, answer_hello, DatagramFlow, DatagramWork, UNKNOWN};
use crate::flows::stream::{self, StreamFlow, StreamWork};
use crate::flows::{counters, deal_out, Role, Span, WorkerReport, DRAIN_NS};
use crate::gate::Gate;
use crate::load::planned_directions;
use crate::load::threads::FlowCounters;

/// What one client may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest test, ms.
    pub longest_ms: u64,
    /// The most flows.
    pub most_flows: u32,
}

/// Where a session's data flows are handed in, by its token.
pub type Directory = Arc<Mutex<HashMap<u64, Sender<Heard>>>>;

/// Connections that are being introduced or have a session: a bound on our threads.
const MOST_CONNECTIONS: usize = 4096;
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a client to open its flows and to name the start.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
const LARGEST_BLOCK_BYTES: u32 = 16 << 20;
const LISTEN_TURN_NS: u64 = 100_000_000;

/// What a session hears, from its control connection and from the listeners.
pub enum Heard {
    /// The client's message, and when it was read.
    Message(FromClient, u64),
    /// A TCP flow of that number.
    Stream(u32, TcpStream),
    /// A UDP flow of that number.
    Datagram(u32, UdpSocket),
    /// A worker has ended.
    WorkerDone,
    /// The control connection has ended.
    Gone,
}

/// Accept until the gate stops.
pub fn listen(
    listener: TcpListener,
    socket: UdpSocket,
    limits: Limits,
    directory: Directory,
    gate: Arc<Gate>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let mut poll = Poll::new(2)?;
    poll.add(&listener, 0, Interest::Read)?;
    poll.add(&socket, 1, Interest::Read)?;
    let connections = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("session-listener".into()).spawn(move || {
        while !gate.stopped() {
            // The set of ready sources does not matter: both are non-blocking and looked at in turn.
            if poll.wait(Some(monotonic_ns() + LISTEN_TURN_NS)).map(|ready| ready.count()).is_err() {
                return;
            }
            while let Ok((stream, _)) = listener.accept() {
                if connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (directory, gate, connections) = (Arc::clone(&directory), Arc::clone(&gate), Arc::clone(&connections));
                std::thread::spawn(move || {
                    // A stranger that breaks off or talks nonsense is not our failure; its connection just ends.
                    let _ = introduce(stream, limits, &directory, &gate);
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
            accept_datagrams(&socket, &directory);
        }
    })?;
    Ok(())
}

/// Hand every flow that says hello to its session, with a socket of its own.
fn accept_datagrams(listener: &UdpSocket, directory: &Directory) {
    let mut packet = [0; HEADER_BYTES];
    loop {
        let (read, client) = match listener.recv_from(&mut packet) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // Refusals of earlier answers are reported here; they say nothing about the next packet.
            Err(_) => continue,
        };
        let Ok(hello @ Header { kind: HeaderKind::Hello, .. }) = Header::parse(&packet[..read]) else { continue };
        let Some(session) = lock(directory).get(&hello.token).cloned() else { continue };
        let socket = listener.local_addr().and_then(|local| net::udp_socket(local, Some(client), true));
        if let Ok(socket) = socket {
            answer_hello(&socket, hello);
            // A session that has just ended needs no flows.
            let _ = session.send(Heard::Datagram(hello.flow, socket));
        }
    }
}

/// Find out what a new connection is: a session's control, or one of its flows.
fn introduce(mut stream: TcpStream, limits: Limits, directory: &Directory, gate: &Arc<Gate>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(INTRODUCTION_TIMEOUT))?;
    stream.set_write_timeout(Some(INTRODUCTION_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let mut first = [0; HEADER_BYTES];
    stream.read_exact(&mut first[..MAGIC.len()])?;
    if &first[..MAGIC.len()] == MAGIC {
        return Session::run(stream, limits, directory, gate);
    }
    stream.read_exact(&mut first[MAGIC.len()..])?;
    if let Ok(header @ Header { kind: HeaderKind::Stream, .. }) = Header::parse(&first) {
        if let Some(session) = lock(directory).get(&header.token) {
            let _ = session.send(Heard::Stream(header.flow, stream));
        }
    }
    Ok(())
}

struct Session {
    control: TcpStream,
    open: Open,
    token: u64,
    heard: Receiver<Heard>,
    waker: Sender<Heard>,
    gate: Arc<Gate>,
}

/// A flow that has arrived.
enum Arrived {
    Stream(TcpStream),
    Datagram(UdpSocket),
}

/// One flow of the running session.
struct Served {
    id: u32,
    direction: Direction,
    counters: Arc<FlowCounters>,
    /// The client's count of sent datagrams.
    expected: Arc<AtomicU64>,
}

impl Session {
    /// From the first message to the report.
    fn run(control: TcpStream, limits: Limits, directory: &Directory, server: &Arc<Gate>) -> io::Result<()> {
        let (waker, heard) = mpsc::channel();
        let reader = control.try_clone()?;
        reader.set_read_timeout(None)?;
        let tell = waker.clone();
        std::thread::spawn(move || relay(reader, &tell));
        let mut control = control;
        let open = match heard.recv_timeout(INTRODUCTION_TIMEOUT) {
            Ok(Heard::Message(FromClient::Open(open), _)) => open,
            _ => return control.shutdown(std::net::Shutdown::Both),
        };
        if let Some(refusal) = refuse(&open, limits) {
            say(&mut control, &FromServer::Refused(refusal))?;
            return control.shutdown(std::net::Shutdown::Write);
        }
        let token = random_u64()?;
        lock(directory).insert(token, waker.clone());
        let gate = Arc::new(Gate::default());
        let session = Self { control, open, token, heard, waker, gate };
        let finish = session.control.try_clone();
        let result = session.course(server);
        lock(directory).remove(&token);
        if let Ok(control) = finish {
            // Lets the client read the report, then ends the relaying thread.
            let _ = control.shutdown(std::net::Shutdown::Both);
        }
        result
    }

    fn course(mut self, server: &Gate) -> io::Result<()> {
        say(&mut self.control, &FromServer::Accepted { token: self.token })?;
        let directions = planned_directions(self.open.direction, self.open.flows);
        let arrived = self.gather(directions.len())?;
        say(&mut self.control, &FromServer::Ready {})?;
        let at_ns = self.await_begin()?;
        let span = Span { at_ns, end_ns: at_ns.saturating_add(self.open.duration_ms * 1_000_000).min(u64::MAX - DRAIN_NS) };
        let served: Vec<Served> = (0..)
            .zip(directions)
            .zip(counters(arrived.len() as u32))
            .map(|((id, direction), counters)| {
                Served { id, direction, counters, expected: Arc::new(AtomicU64::new(UNKNOWN)) }
            })
            .collect();
        let workers = self.workers(&served, arrived, span)?;
        let waker = self.waker.clone();
        let crew = Crew::start(workers, &self.gate, move || {
            let _ = waker.send(Heard::WorkerDone);
        });
        let outcome = self.conduct(&served, &crew, server);
        if outcome.is_err() {
            self.gate.stop();
        }
        let reports = crew.join()?;
        outcome?;
        let (flows, load) = report(reports);
        say(&mut self.control, &FromServer::Report { flows, load })
    }

    /// Wait for every flow; clocks are compared meanwhile.
    fn gather(&mut self, count: usize) -> io::Result<Vec<Arrived>> {
        let deadline = Instant::now() + SETUP_TIMEOUT;
        let mut flows: Vec<Option<Arrived>> = (0..count).map(|_| None).collect();
        while flows.iter().any(Option::is_none) {
            match self.hear_until(deadline)? {
                Heard::Message(FromClient::Clock { id }, received_ns) => self.answer_clock(id, received_ns)?,
                Heard::Stream(id, stream) => place(&mut flows, id, Arrived::Stream(stream)),
                Heard::Datagram(id, socket) => place(&mut flows, id, Arrived::Datagram(socket)),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(flows.into_iter().flatten().collect())
    }

    fn await_begin(&mut self) -> io::Result<u64> {
        // A plan's agents all prepare before any of them starts, so this may take as long as the slowest host.
        let deadline = Instant::now() + SETUP_TIMEOUT * 10;
        loop {
            match self.hear_until(deadline)? {
                Heard::Message(FromClient::Begin { at_ns }, _) => return Ok(at_ns),
                // A hello that was sent again before its answer came through.
                Heard::Datagram(..) => {}
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn hear_until(&self, deadline: Instant) -> io::Result<Heard> {
        match self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Heard::Gone) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(heard) => Ok(heard),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn answer_clock(&mut self, id: u32, received_ns: u64) -> io::Result<()> {
        say(&mut self.control, &FromServer::Clock { id, received_ns, sent_ns: monotonic_ns() })
    }

    fn workers(&self, served: &[Served], arrived: Vec<Arrived>, span: Span) -> io::Result<Vec<(Role, Worker)>> {
        // The client asks for threads; more than there are CPUs would only disturb each other.
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        let threads = self.open.threads.clamp(1, cpus);
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        match self.open.work {
            Work::Tcp { block_bytes, rate_bps } => {
                let sample_ns = u64::from(self.open.interval_ms) * 1_000_000;
                let work = StreamWork { block_bytes: block_bytes as usize, rate_bps, sample_ns };
                let flows = self.streams(served, arrived)?;
                for (role, group) in by_role(flows, threads, |flow| flow.role) {
                    workers.push((role, Box::new(move |gate| stream::drive(group, work, span, gate, "tcp-serve"))));
                }
            }
            Work::Udp { datagram_bytes, rate_pps, number } => {
                let pace = rate_pps.and_then(Pace::per_second);
                let work = DatagramWork { token: self.token, datagram_bytes: datagram_bytes as usize, pace, number };
                let flows = served.iter().zip(arrived).filter_map(|(flow, arrived)| match arrived {
                    Arrived::Datagram(socket) => Some(DatagramFlow {
                        id: flow.id,
                        socket,
                        role: role_here(flow.direction),
                        counters: Arc::clone(&flow.counters),
                        expected: Arc::clone(&flow.expected),
                    }),
                    Arrived::Stream(_) => None,
                });
                for (role, group) in by_role(flows.collect(), threads, |flow| flow.role) {
                    let drive = move |gate: &Gate| datagram::drive(group, work, span, gate, "udp-serve", None);
                    workers.push((role, Box::new(drive)));
                }
            }
            Work::Rr { request_bytes, response_bytes, .. } => {
                let work = AnswerWork {
                    token: self.token,
                    request_bytes: request_bytes as usize,
                    response_bytes: response_bytes as usize,
                };
                let flows = served.iter().zip(arrived).map(|(flow, arrived)| AnswerFlow {
                    id: flow.id,
                    socket: match arrived {
                        Arrived::Stream(stream) => AnswerSocket::Tcp(stream),
                        Arrived::Datagram(socket) => AnswerSocket::Udp(socket),
                    },
                    counters: Arc::clone(&flow.counters),
                });
                for group in deal_out(flows.collect(), threads) {
                    let drive = move |gate: &Gate| answer::drive(group, work, span, gate, "rr-serve");
                    workers.push((Role::Receive, Box::new(drive)));
                }
            }
        }
        Ok(workers)
    }

    fn streams(&self, served: &[Served], arrived: Vec<Arrived>) -> io::Result<Vec<StreamFlow>> {
        let mut flows = Vec::new();
        for (flow, arrived) in served.iter().zip(arrived) {
            let Arrived::Stream(socket) = arrived else { return Err(io::ErrorKind::InvalidData.into()) };
            if let Some(name) = &self.open.congestion {
                net::set_congestion(&socket, name)?;
            }
            let role = role_here(flow.direction);
            flows.push(StreamFlow { id: flow.id, socket, role, counters: Arc::clone(&flow.counters) });
        }
        Ok(flows)
    }

    /// Report progress until the workers are done and the client has said its `end`.
    fn conduct(&mut self, served: &[Served], crew: &Crew, server: &Gate) -> io::Result<()> {
        let interval = Duration::from_millis(self.open.interval_ms.into());
        let has_units = !matches!(self.open.work, Work::Tcp { .. });
        let is_rr = matches!(self.open.work, Work::Rr { .. });
        let mut tick = Instant::now() + interval;
        let (mut ended, mut sent_said) = (false, false);
        while !(crew.done() && ended) {
            match self.heard.recv_timeout(tick.saturating_duration_since(Instant::now())) {
                Ok(Heard::Message(FromClient::Stop {}, _)) => self.gate.stop(),
                Ok(Heard::Message(FromClient::End { sent_units }, _)) => {
                    ended = true;
                    let upward = served.iter().filter(|flow| flow.direction == Direction::Up);
                    for (flow, sent) in upward.zip(sent_units) {
                        flow.expected.store(sent, Ordering::Relaxed);
                    }
                    if is_rr {
                        self.gate.stop();
                    }
                }
                Ok(Heard::Gone) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(RecvTimeoutError::Timeout) => {
                    tick += interval;
                    let flows = served.iter().map(|flow| flow.counters.progress(flow.id, has_units)).collect();
                    say(&mut self.control, &FromServer::Progress { t_ns: monotonic_ns(), flows })?;
                }
            }
            if crew.senders_done() && has_units && !is_rr && !sent_said {
                sent_said = true;
                let downward = served.iter().filter(|flow| flow.direction == Direction::Down);
                let units = downward.map(|flow| flow.counters.sent_units()).collect();
                say(&mut self.control, &FromServer::Sent { units })?;
            }
            if server.stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }
}

fn role_here(direction: Direction) -> Role {
    if direction == Direction::Down {
        Role::Send
    } else {
        Role::Receive
    }
}

/// Groups of flows that send and groups that receive.
fn by_role<F>(flows: Vec<F>, threads: u32, role: impl Fn(&F) -> Role) -> Vec<(Role, Vec<F>)> {
    let (sending, receiving): (Vec<F>, Vec<F>) = flows.into_iter().partition(|flow| role(flow) == Role::Send);
    let sending = deal_out(sending, threads).into_iter().map(|group| (Role::Send, group));
    let receiving = deal_out(receiving, threads).into_iter().map(|group| (Role::Receive, group));
    sending.chain(receiving).filter(|(_, group)| !group.is_empty()).collect()
}

/// A flow that comes again, or has a number beyond the session's, changes nothing.
fn place(flows: &mut [Option<Arrived>], id: u32, arrived: Arrived) {
    if let Some(slot @ None) = flows.get_mut(id as usize) {
        *slot = Some(arrived);
    }
}

/// Why a request is too much, or no sense.
fn refuse(open: &Open, limits: Limits) -> Option<Refusal> {
    let refusal = |code: &str, message: String| Some(Refusal { code: code.to_owned(), message });
    if open.flows == 0 || open.duration_ms == 0 || open.interval_ms < 10 {
        return refusal("bad_request", "flows and duration must be at least 1, the interval at least 10 ms".into());
    }
    if open.flows > limits.most_flows {
        return refusal("too_many_flows", format!("{} flows; this server allows {}", open.flows, limits.most_flows));
    }
    if open.duration_ms > limits.longest_ms {
        let message = format!("{} ms; this server allows tests of {} ms", open.duration_ms, limits.longest_ms);
        return refusal("too_long", message);
    }
    let (largest, least) = match open.work {
        Work::Tcp { block_bytes, .. } => (block_bytes, block_bytes),
        Work::Udp { datagram_bytes, .. } => (datagram_bytes, u32::from(datagram_bytes >= HEADER_BYTES as u32)),
        Work::Rr { request_bytes, response_bytes, .. } => {
            (request_bytes.max(response_bytes), request_bytes.min(response_bytes))
        }
    };
    if largest > LARGEST_BLOCK_BYTES || least == 0 {
        return refusal("bad_size", format!("sizes must lie between 1 and {LARGEST_BLOCK_BYTES} bytes"));
    }
    None
}

fn report(workers: Vec<WorkerReport>) -> (Vec<SideReport>, LoadReport) {
    let mut load =
        LoadReport { side: Side::Local, wall_s: 0.0, threads: Vec::new(), pushback: 0, late_p99_us: None, socket_drops: None };
    let mut flows = Vec::new();
    for worker in workers {
        load.wall_s = load.wall_s.max(worker.thread.wall_s);
        load.threads.push(worker.thread);
        load.pushback += worker.pushback;
        flows.extend(worker.flows);
    }
    let drops: Vec<u64> = flows.iter().filter_map(|flow: &SideReport| flow.socket_drops).collect();
    load.socket_drops = (!drops.is_empty()).then(|| drops.iter().sum());
    (flows, load)
}

/// Read the control connection until it ends.
fn relay(mut control: TcpStream, tell: &Sender<Heard>) {
    let mut decoder = FrameDecoder::default();
    let mut piece = [0; 4096];
    loop {
        let read = match control.read(&mut piece) {
            Ok(read) if read > 0 => read,
            _ => break,
        };
        let received_ns = monotonic_ns();
        decoder.feed(&piece[..read]);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => {
                    if tell.send(Heard::Message(message, received_ns)).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => {
                    let _ = tell.send(Heard::Gone);
                    return;
                }
            }
        }
    }
    let _ = tell.send(Heard::Gone);
}

fn say(control: &mut TcpStream, message: &FromServer) -> io::Result<()> {
    let frame = encode_frame(message).map_err(io::Error::other)?;
    control.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_wire::Protocol;

    fn open(work: Work) -> Open {
        Open { work, flows: 1, threads: 1, direction: Direction::Up, duration_ms: 1000, congestion: None, interval_ms: 100 }
    }

    #[test]
    fn what_a_client_may_ask_for_is_bounded() {
        let limits = Limits { longest_ms: 10_000, most_flows: 8 };
        let tcp = Work::Tcp { block_bytes: 1 << 17, rate_bps: None };
        assert_eq!(refuse(&open(tcp), limits), None);
        let code = |open: Open| refuse(&open, limits).map(|refusal| refusal.code);
        assert_eq!(code(Open { flows: 9, ..open(tcp) }).as_deref(), Some("too_many_flows"));
        assert_eq!(code(Open { duration_ms: 10_001, ..open(tcp) }).as_deref(), Some("too_long"));
        assert_eq!(code(Open { flows: 0, ..open(tcp) }).as_deref(), Some("bad_request"));
        let giant = Work::Rr { protocol: Protocol::Tcp, request_bytes: 1, response_bytes: u32::MAX };
        assert_eq!(code(open(giant)).as_deref(), Some("bad_size"));
        let empty = Work::Rr { protocol: Protocol::Tcp, request_bytes: 0, response_bytes: 1 };
        assert_eq!(code(open(empty)).as_deref(), Some("bad_size"));
    }
}
