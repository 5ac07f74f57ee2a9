//! The listener on the session port. One thread reads the introductions of all new connections, with limits of time
//! and number: a malformed, half-open or slow connection costs a descriptor for a while and no thread. A granted
//! session gets its own threads. A data flow goes to the session with its token, and a UDP flow only after its client
//! has proven its address.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_transport::iperf3::{is_hello, HELLO_ANSWER};
use leadline_transport::{FromServer, Header, HeaderKind, HelloAnswer, SessionRequest, HEADER_BYTES};
use tracing::{debug, info, warn};

use super::admission::admit;
use super::iperf3;
use super::iperf3_request;
use super::iperf3_tests::Iperf3Input;
use super::occupancy::{Notice, SessionPlace};
use super::pending::{send, Iperf3Request, Opened, PendingConnection, PendingTable};
use super::session;
use super::shared::{ServerShared, SessionInput};
use super::shares::peer_of;
use crate::control_signal::ControlSignal;
use crate::flows::datagram::answer_hello;
use crate::locking::lock;

/// Connections, or datagrams, that are accepted before the other kind.
const PER_ROUND: usize = 256;
const LISTEN_POLL_NS: u64 = 100_000_000;
/// The pause when no descriptor is left for a new connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

const LISTENER: u64 = 0;
const DATAGRAMS: u64 = 1;

/// Accepts until the signal stops it; the thread has closed the port when it ends.
pub fn listen(
    listener: TcpListener,
    socket: UdpSocket,
    shared: Arc<ServerShared>,
    signal: Arc<ControlSignal>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    socket.set_nonblocking(true)?;
    let poll = Poll::new(PER_ROUND)?;
    poll.add(&listener, LISTENER, Interest::Read)?;
    poll.add(&socket, DATAGRAMS, Interest::Read)?;
    let (most, of_peer) = (shared.budget.pending, shared.budget.pending_of_peer);
    let pending = PendingTable::new(DATAGRAMS + 1, most, of_peer);
    // Introductions that have arrived are read before their connections would have to make room for further ones.
    let per_turn = (of_peer as usize / 2).clamp(1, PER_ROUND);
    let notice = Notice::default();
    let mut session_listener = SessionListener { listener, socket, shared, signal, poll, pending, per_turn, notice };
    std::thread::Builder::new()
        .name("session-listener".into())
        .spawn(move || while !session_listener.signal.stopped() && session_listener.run_once().is_ok() {})
}

struct SessionListener {
    listener: TcpListener,
    socket: UdpSocket,
    shared: Arc<ServerShared>,
    signal: Arc<ControlSignal>,
    poll: Poll,
    /// Pending connections, by their token in the poll.
    pending: PendingTable<PendingConnection>,
    /// Connections that are accepted before those that have arrived are read.
    per_turn: usize,
    /// Limits what the log says about a lack of descriptors.
    notice: Notice,
}

impl SessionListener {
    fn run_once(&mut self) -> io::Result<()> {
        let ready: Vec<Ready> = self.poll.wait(Some(monotonic_ns() + LISTEN_POLL_NS))?.collect();
        for source in ready {
            match source.token {
                LISTENER => self.accept(),
                DATAGRAMS => accept_datagrams(&self.socket, &self.shared),
                token => self.receive(token),
            }
        }
        let now = monotonic_ns();
        let idle_ns = self.shared.idle_ns();
        while let Some((token, oldest)) = self.pending.oldest() {
            if now < oldest.since_ns.saturating_add(idle_ns) {
                break;
            }
            debug!("connection closed: it has not asked for a session in time");
            self.pending.remove(token);
        }
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..self.per_turn {
            let (stream, client) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                    if !matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
                        self.make_room(&error);
                    }
                    return;
                }
            };
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            let token = self.pending.insert(peer_of(client.ip()), PendingConnection::new(stream, monotonic_ns()));
            let added = self.pending.find(token).map(|one| self.poll.add(&one.stream, token, Interest::Read));
            if !matches!(added, Some(Ok(()))) {
                self.pending.remove(token);
            }
        }
    }

    /// Most likely no descriptor is left: a pending connection makes room, or else what the largest holder has.
    fn make_room(&mut self, error: &io::Error) {
        if let Some(unsaid) = self.notice.take(monotonic_ns()) {
            warn!(%error, pending = !self.pending.is_empty(), unsaid, "connections cannot be accepted: others are closed");
        }
        if self.pending.is_empty() {
            self.shared.occupancy.free_descriptor();
        } else {
            self.pending.evict_one();
        }
        std::thread::sleep(EXHAUSTED_PAUSE);
    }

    fn receive(&mut self, token: u64) {
        // An evicted connection may still be among the ready ones.
        let Some(connection) = self.pending.find(token) else { return };
        let mut opened = connection.receive(self.shared.key.as_ref());
        if let Ok(Opened::Iperf3(cookie)) = opened {
            if !self.shared.iperf3.knows(&cookie) {
                opened = self.shared.ask_iperf3(connection, cookie);
            }
        }
        if matches!(opened, Ok(Opened::Incomplete)) {
            return;
        }
        let Some(PendingConnection { mut stream, .. }) = self.pending.remove(token) else { return };
        let Ok(client) = stream.peer_addr() else { return };
        match opened {
            Ok(Opened::Request(request)) => {
                // This fails if the client has closed the connection.
                let _ = self.poll.remove(&stream).and_then(|()| self.open_session(stream, client, *request));
            }
            Ok(Opened::Refused(refusal)) => {
                info!(%client, code = refusal.code, reason = refusal.message, "session refused");
                let _ = send(&mut stream, &FromServer::Refused(refusal));
            }
            Ok(Opened::Flow(header)) if header.kind == HeaderKind::Address => self.note_address(header, client),
            Ok(Opened::Flow(header)) => {
                let session = lock(&self.shared.sessions).get(&header.token).map(|entry| entry.inbox.clone());
                if let (Some(session), Ok(())) = (session, self.poll.remove(&stream)) {
                    // If the session's inbox is full, the client did not announce the flow.
                    let _ = session.try_send(SessionInput::Stream(header.flow, stream));
                }
            }
            Err(error) => debug!(%client, %error, "connection closed before it asked for anything"),
            Ok(Opened::Iperf3Request(request)) => {
                // This fails if the client has closed the connection.
                let _ = self.poll.remove(&stream).and_then(|()| self.open_iperf3_test(stream, client, *request));
            }
            Ok(Opened::Iperf3Refused(bytes, reason)) => {
                info!(%client, reason, "iperf3 test refused");
                let _ = stream.write_all(&bytes);
            }
            Ok(Opened::Iperf3(cookie)) => {
                if self.poll.remove(&stream).is_ok() {
                    self.shared.iperf3.deliver(&cookie, stream);
                }
            }
            Ok(Opened::Incomplete) => {}
        }
    }

    /// Records a proven address: a TCP connection cannot be opened from a forged one, so datagrams of the session may
    /// come from it too.
    fn note_address(&self, header: Header, client: SocketAddr) {
        if let Some(entry) = lock(&self.shared.sessions).get_mut(&header.token) {
            if entry.addresses.len() < entry.most_addresses && !entry.addresses.contains(&client.ip()) {
                entry.addresses.push(client.ip());
            }
        }
    }

    fn open_session(&self, control: TcpStream, client: SocketAddr, request: SessionRequest) -> io::Result<()> {
        let control = Arc::new(control);
        let activity = session::activity(&control);
        let admitted =
            admit(&request.open, &self.shared.limits, client.ip(), &self.shared.occupancy, Arc::clone(&activity));
        let share = match admitted {
            Ok(share) => share,
            Err(refusal) => {
                info!(%client, code = refusal.code, reason = refusal.message, "session not admitted");
                return send(&mut &*control, &FromServer::Refused(refusal));
            }
        };
        let (shared, signal) = (Arc::clone(&self.shared), Arc::clone(&self.signal));
        std::thread::Builder::new().name("session".into()).spawn(move || {
            let place = SessionPlace { share, activity };
            // A client that disconnects or sends garbage is not an error of the server; its session ends.
            let _ = session::run(control, client, request, &place, &shared, &signal);
        })?;
        Ok(())
    }
}

impl SessionListener {
    fn open_iperf3_test(&self, control: TcpStream, client: SocketAddr, request: Iperf3Request) -> io::Result<()> {
        let control = Arc::new(control);
        let activity = iperf3::activity(&control);
        let limits = &self.shared.limits;
        let open = iperf3_request::as_session(&request.asked, limits.longest_ms);
        let admitted = iperf3_request::check_bursts(&request.asked, limits.per_peer.rate_bps).and_then(|paced| {
            let share = admit(&open, limits, client.ip(), &self.shared.occupancy, Arc::clone(&activity))?;
            Ok((paced, share))
        });
        let (paced, share) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                info!(%client, code = refusal.code, reason = refusal.message, "iperf3 test not admitted");
                return (&*control).write_all(&iperf3_request::refusal(&refusal, &request.asked));
            }
        };
        let (shared, signal) = (Arc::clone(&self.shared), Arc::clone(&self.signal));
        std::thread::Builder::new().name("iperf3".into()).spawn(move || {
            let place = SessionPlace { share, activity };
            // As with a session: a client that disconnects or sends garbage ends its test alone.
            let _ = iperf3::run(control, client, request, paced, &place, &shared, &signal);
        })?;
        Ok(())
    }
}

/// A datagram of a client that has no socket of its own yet.
struct Datagram {
    bytes: [u8; HEADER_BYTES],
    length: usize,
    client: SocketAddr,
}

impl Datagram {
    /// Reads the next one.
    fn receive(socket: &UdpSocket) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        let (length, client) = socket.recv_from(&mut bytes)?;
        Ok(Self { bytes, length, client })
    }
}

/// Opens the UDP flows that clients ask for, each with its own socket.
fn accept_datagrams(listener: &UdpSocket, shared: &ServerShared) {
    let mut waiting = VecDeque::new();
    for _ in 0..PER_ROUND {
        match Datagram::receive(listener) {
            Ok(datagram) => waiting.push_back(datagram),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // The error belongs to an earlier response, not to the next packet.
            Err(_) => continue,
        }
        while let Some(datagram) = waiting.pop_front() {
            if is_hello(&datagram.bytes[..datagram.length]) {
                accept_iperf3_flow(listener, datagram.client, shared, &mut waiting);
            } else {
                accept_flow(listener, &datagram, shared, &mut waiting);
            }
        }
    }
}

/// Opens a UDP flow of an iperf3 test. A client at this address has asked for it on its control connection, and the
/// answer is as short as the question. A second hello of an open flow is a duplicate; one from another port, when all flows
/// are open, shows that one of both was forged, and the test decides.
fn accept_iperf3_flow(
    listener: &UdpSocket,
    client: SocketAddr,
    shared: &ServerShared,
    waiting: &mut VecDeque<Datagram>,
) {
    let Some(test) = shared.iperf3.claim(client) else {
        if let Some(claim) = shared.iperf3.contend(client) {
            // If the test's inbox is full, it hears of others.
            let _ = claim.inbox.try_send(Iperf3Input::Contender(client));
            let _ = claim.is_answered.then(|| listener.send_to(&HELLO_ANSWER, client));
        }
        return;
    };
    if let Ok(socket) = flow_socket(listener, client, waiting) {
        let answered = socket.send(&HELLO_ANSWER).is_ok();
        // If the test's inbox is full, the client did not announce the flow.
        let _ = answered.then(|| test.try_send(Iperf3Input::Datagram(socket)));
    }
}

/// Opens a UDP flow of a session. A source address is easily forged. A datagram from an unproven address is not answered
/// at all; from a proven address, only a sender that returns a nonce gets more than this nonce, in a packet no longer
/// than its own.
fn accept_flow(listener: &UdpSocket, datagram: &Datagram, shared: &ServerShared, waiting: &mut VecDeque<Datagram>) {
    let client = datagram.client;
    let parsed = Header::parse(&datagram.bytes[..datagram.length]);
    let Ok(hello @ Header { kind: HeaderKind::Hello, .. }) = parsed else {
        if let Some(test) = shared.iperf3.contend_by_data(client) {
            let _ = test.try_send(Iperf3Input::Contender(client));
        }
        return;
    };
    let session = lock(&shared.sessions)
        .get(&hello.token)
        .filter(|entry| entry.addresses.contains(&client.ip()))
        .map(|entry| entry.inbox.clone());
    let Some(session) = session else { return };
    if let HelloAnswer::Challenge(challenge) = shared.check.handle_hello(&hello, client) {
        let mut packet = [0; HEADER_BYTES];
        challenge.write(&mut packet);
        // A response that cannot be sent counts like a lost one: the client asks again.
        let _ = listener.send_to(&packet, client);
        return;
    }
    if let Ok(socket) = flow_socket(listener, client, waiting) {
        answer_hello(&socket, hello);
        // A session that has just ended needs no flows, and if its inbox is full, the client did not announce the
        // flow.
        let _ = session.try_send(SessionInput::Datagram(hello.flow, socket));
    }
}

/// Creates the socket of a client's flow. What other clients sent to it before it was connected joins `waiting`.
fn flow_socket(listener: &UdpSocket, client: SocketAddr, waiting: &mut VecDeque<Datagram>) -> io::Result<UdpSocket> {
    let socket = net::udp_socket(listener.local_addr()?, None, true)?;
    connect_flow(&socket, client, waiting)?;
    Ok(socket)
}

/// Connects a socket to a flow's client. Between its creation and this, it shares the port's datagrams with the listener:
/// those of other clients join `waiting`, since iperf3 does not repeat its hello. The client itself sends nothing but
/// duplicates before it has an answer.
fn connect_flow(socket: &UdpSocket, client: SocketAddr, waiting: &mut VecDeque<Datagram>) -> io::Result<()> {
    socket.connect(client)?;
    socket.set_nonblocking(true)?;
    for _ in 0..PER_ROUND {
        match Datagram::receive(socket) {
            Ok(datagram) if datagram.client != client => waiting.push_back(datagram),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            _ => {}
        }
    }
    socket.set_nonblocking(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_that_another_clients_new_socket_received_is_kept() {
        let listener = net::udp_socket("127.0.0.1:0".parse().unwrap(), None, true).unwrap();
        let at = listener.local_addr().unwrap();
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        // The newest socket of a port gets what no other one is connected for.
        let socket = net::udp_socket(at, None, true).unwrap();
        other.send_to(b"9876", at).unwrap();
        one.send_to(b"9876", at).unwrap();
        let mut waiting = VecDeque::new();
        connect_flow(&socket, one.local_addr().unwrap(), &mut waiting).unwrap();
        listener.set_nonblocking(true).unwrap();
        let kept: Vec<_> = waiting.iter().map(|datagram| (datagram.client, datagram.length)).collect();
        assert_eq!(kept, [(other.local_addr().unwrap(), 4)]);
        assert!(Datagram::receive(&listener).is_err(), "the new socket got it");
        // From now on, the listener receives the others' datagrams.
        other.send_to(b"9876", at).unwrap();
        assert_eq!(Datagram::receive(&listener).unwrap().client, other.local_addr().unwrap());
    }
}
