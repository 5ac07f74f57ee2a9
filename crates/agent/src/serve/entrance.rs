//! The session port's door. Newcomers introduce themselves here, all on one thread and for a bounded time and number: what is
//! garbage, half open or slow costs a descriptor for a while and no thread. A granted session gets its threads; a data flow
//! is handed to the session whose token it knows.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_transport::{
    encode_frame, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Open, Refusal, HEADER_BYTES, MAGIC,
};

use super::admission::{admit, Budget, Limits};
use super::lock;
use super::session::{self, Heard};
use crate::flows::datagram::answer_hello;
use crate::gate::Gate;

/// What all listeners of one server share.
#[derive(Debug)]
pub struct House {
    /// What one client may ask for.
    pub limits: Limits,
    /// Where sessions' data flows are handed in, by token.
    pub directory: Mutex<HashMap<u64, SyncSender<Heard>>>,
    budget: Arc<Budget>,
    sessions: AtomicUsize,
}

impl House {
    /// Without sessions yet.
    pub fn new(limits: Limits) -> Self {
        let (directory, budget, sessions) = Default::default();
        Self { limits, directory, budget, sessions }
    }
}

/// Sessions at once: a bound on our threads.
const MOST_SESSIONS: usize = 1024;
/// Connections at once that have not introduced themselves; the oldest makes room for the next.
const MOST_NEWCOMERS: usize = 2048;
const INTRODUCTION_NS: u64 = 10_000_000_000;
/// The longest request for a session, bytes.
const OPEN_BYTES: usize = 4096;
/// Connections, and datagrams, that are taken before the other kind has its turn.
const PER_TURN: usize = 256;
const LISTEN_TURN_NS: u64 = 100_000_000;
/// Rest when there is no descriptor left for a new connection.
const EXHAUSTED_REST: Duration = Duration::from_millis(20);

const LISTENER: u64 = 0;
const DATAGRAMS: u64 = 1;

/// Accept until the gate stops; the thread has closed the port when it ends.
pub fn listen(
    listener: TcpListener,
    socket: UdpSocket,
    house: Arc<House>,
    gate: Arc<Gate>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let poll = Poll::new(PER_TURN)?;
    poll.add(&listener, LISTENER, Interest::Read)?;
    poll.add(&socket, DATAGRAMS, Interest::Read)?;
    let newcomers = BTreeMap::new();
    let mut entrance = Entrance { listener, socket, house, gate, poll, newcomers, next_token: DATAGRAMS + 1 };
    std::thread::Builder::new()
        .name("session-listener".into())
        .spawn(move || while !entrance.gate.stopped() && entrance.turn().is_ok() {})
}

struct Entrance {
    listener: TcpListener,
    socket: UdpSocket,
    house: Arc<House>,
    gate: Arc<Gate>,
    poll: Poll,
    /// By their token in the poll, which grows: the oldest comes first.
    newcomers: BTreeMap<u64, Newcomer>,
    next_token: u64,
}

/// A connection that has not yet said what it is.
struct Newcomer {
    stream: TcpStream,
    since_ns: u64,
    first: [u8; HEADER_BYTES],
    length: usize,
    /// Of a control connection whose request is being read.
    decoder: Option<FrameDecoder>,
}

/// What a newcomer turned out to be.
enum Introduced {
    NotYet,
    Control(Open, FrameDecoder),
    Flow(Header),
}

impl Entrance {
    fn turn(&mut self) -> io::Result<()> {
        let ready: Vec<Ready> = self.poll.wait(Some(monotonic_ns() + LISTEN_TURN_NS))?.collect();
        for source in ready {
            match source.token {
                LISTENER => self.accept(),
                DATAGRAMS => accept_datagrams(&self.socket, &self.house),
                token => self.hear(token),
            }
        }
        let now = monotonic_ns();
        while self.newcomers.first_key_value().is_some_and(|(_, oldest)| now >= oldest.since_ns + INTRODUCTION_NS) {
            self.newcomers.pop_first();
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..PER_TURN {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                    if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
                        // No descriptors, most likely: those who have not introduced themselves make room.
                        self.newcomers.pop_first();
                        std::thread::sleep(EXHAUSTED_REST);
                    }
                    return;
                }
            };
            if self.newcomers.len() >= MOST_NEWCOMERS {
                self.newcomers.pop_first();
            }
            let token = self.next_token;
            self.next_token += 1;
            let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            if ready.and_then(|()| self.poll.add(&stream, token, Interest::Read)).is_ok() {
                let since_ns = monotonic_ns();
                let newcomer = Newcomer { stream, since_ns, first: [0; HEADER_BYTES], length: 0, decoder: None };
                self.newcomers.insert(token, newcomer);
            }
        }
    }

    fn hear(&mut self, token: u64) {
        // One that had to make room may still be among the ready ones.
        let Some(newcomer) = self.newcomers.get_mut(&token) else { return };
        let introduced = newcomer.hear();
        if matches!(introduced, Ok(Introduced::NotYet)) {
            return;
        }
        let Some(newcomer) = self.newcomers.remove(&token) else { return };
        let stream = newcomer.stream;
        match introduced {
            Ok(Introduced::Control(open, decoder)) => {
                // Fails when the client has gone already.
                let _ = self.poll.remove(&stream).and_then(|()| self.open_session(stream, open, decoder));
            }
            Ok(Introduced::Flow(header)) => {
                let session = lock(&self.house.directory).get(&header.token).cloned();
                if let (Some(session), Ok(())) = (session, self.poll.remove(&stream)) {
                    // A session that has no room for it did not ask for it.
                    let _ = session.try_send(Heard::Stream(header.flow, stream));
                }
            }
            Ok(Introduced::NotYet) | Err(_) => {}
        }
    }

    fn open_session(&self, mut control: TcpStream, open: Open, decoder: FrameDecoder) -> io::Result<()> {
        let refuse = |control: &mut TcpStream, refusal: Refusal| {
            let frame = encode_frame(&FromServer::Refused(refusal)).map_err(io::Error::other)?;
            // The connection's buffer is empty: it takes so little at once.
            control.write_all(&frame)
        };
        let share = match admit(&open, self.house.limits, &self.house.budget) {
            Ok(share) => share,
            Err(refusal) => return refuse(&mut control, refusal),
        };
        let Some(seat) = Seat::take(&self.house) else {
            let message = format!("{MOST_SESSIONS} sessions run already");
            return refuse(&mut control, Refusal { code: "too_many_sessions".into(), message });
        };
        let (house, gate) = (Arc::clone(&self.house), Arc::clone(&self.gate));
        std::thread::Builder::new().name("session".into()).spawn(move || {
            let (_seat, _share) = (seat, share);
            // A client that breaks off or talks nonsense is not our failure; its session just ends.
            let _ = session::run(control, open, decoder, &house, &gate);
        })?;
        Ok(())
    }
}

/// One of the sessions that may run.
struct Seat(Arc<House>);

impl Seat {
    fn take(house: &Arc<House>) -> Option<Self> {
        let seat = Self(Arc::clone(house));
        (house.sessions.fetch_add(1, Ordering::Relaxed) < MOST_SESSIONS).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Newcomer {
    /// Read on; an error ends the connection.
    fn hear(&mut self) -> io::Result<Introduced> {
        while self.decoder.is_none() {
            // Not a byte beyond what tells them apart: a flow's payload, or a request, may follow.
            let wanted = if self.length < MAGIC.len() { MAGIC.len() } else { HEADER_BYTES };
            match read(&mut self.stream, &mut self.first[self.length..wanted])? {
                None => return Ok(Introduced::NotYet),
                Some(read) => self.length += read,
            }
            if self.first[..self.length] == *MAGIC {
                self.decoder = Some(FrameDecoder::with_limit(OPEN_BYTES));
            } else if self.length == HEADER_BYTES {
                return match Header::parse(&self.first) {
                    Ok(header @ Header { kind: HeaderKind::Stream, .. }) => Ok(Introduced::Flow(header)),
                    _ => Err(io::ErrorKind::InvalidData.into()),
                };
            }
        }
        let mut piece = [0; 1024];
        while let Some(decoder) = &mut self.decoder {
            let Some(read) = read(&mut self.stream, &mut piece)? else { return Ok(Introduced::NotYet) };
            decoder.feed(&piece[..read]);
            match decoder.next_message().map_err(io::Error::other)? {
                Some(FromClient::Open(open)) => {
                    return Ok(Introduced::Control(open, self.decoder.take().unwrap_or_default()));
                }
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => {}
            }
        }
        Ok(Introduced::NotYet)
    }
}

/// `None` when nothing is there yet; the end of the stream is an error.
fn read(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => return Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Hand flows that say hello to their session, each with a socket of its own.
fn accept_datagrams(listener: &UdpSocket, house: &House) {
    let mut packet = [0; HEADER_BYTES];
    for _ in 0..PER_TURN {
        let (read, client) = match listener.recv_from(&mut packet) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // Refusals of earlier answers are reported here; they say nothing about the next packet.
            Err(_) => continue,
        };
        let Ok(hello @ Header { kind: HeaderKind::Hello, .. }) = Header::parse(&packet[..read]) else { continue };
        let Some(session) = lock(&house.directory).get(&hello.token).cloned() else { continue };
        let socket = listener.local_addr().and_then(|local| net::udp_socket(local, Some(client), true));
        if let Ok(socket) = socket {
            answer_hello(&socket, hello);
            // A session that has just ended needs no flows, and a full one did not ask for so many.
            let _ = session.try_send(Heard::Datagram(hello.flow, socket));
        }
    }
}
