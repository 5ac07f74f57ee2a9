//! The client's end of a session: control connection, clock comparison, data flows, and the server's progress and
//! report.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use leadline_sys::clock::{identity, monotonic_ns};
use leadline_sys::tcp::OpeningOptions;
use leadline_sys::{net, tcp};
use leadline_transport::{
    encode_frame, ClientSession, ClockDifference, FromClient, Header, HeaderKind, Open, SessionError, SessionEvent,
    SideReport, HEADER_BYTES,
};
use leadline_wire::{ErrorReport, FlowProgress, LoadReport, Target};
use tracing::{debug, info};

use crate::events::{input_error, peer_error, system_error};
use crate::keys;
use crate::load::net::names::look_up;
use crate::patience::patience;

/// The time limit of the server for each step before the start.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may be silent beyond its interval.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);
const HELLO_INTERVAL: Duration = Duration::from_millis(100);
const HELLO_ATTEMPTS: u32 = 50;
/// A time limit of 0 would be none.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The server's messages while the flows run; times are mapped to this host's clock.
pub enum FromPeer {
    /// The server's counters at an instant.
    Progress(u64, Vec<FlowProgress>),
    /// Units that its senders sent, in the order of the downward flows.
    Sent(Vec<u64>),
    /// The server's figures.
    Report(Vec<SideReport>, Box<LoadReport>, BTreeMap<String, u64>),
    /// The server broke the protocol or disconnected.
    Lost(ErrorReport),
}

/// A session that the server has granted.
pub struct Session {
    control: TcpStream,
    machine: ClientSession,
    server: SocketAddr,
    bind: Option<IpAddr>,
    /// The token with which flows introduce themselves.
    pub token: u64,
    /// The time limit of each complete message.
    patience: Duration,
    /// Whether the server has sent anything.
    heard: bool,
}

/// Returns the address of a name, of the required family.
pub fn resolve(target: &Target) -> Result<SocketAddr, ErrorReport> {
    look_up(&target.host, target.port, target.ip_version).map(|addresses| addresses.first())
}

/// Reads a local address.
pub fn parse_bind(bind: Option<&str>) -> Result<Option<IpAddr>, ErrorReport> {
    bind.map(|text| text.parse().map_err(|_| input_error("bad_address", format!("bind: {text} is not an IP address"))))
        .transpose()
}

/// Returns why there is no connection to a responder. If the host refuses the connection, no responder runs on this
/// port.
fn unreached(doing: &str, error: &io::Error) -> ErrorReport {
    let mut report = system_error(doing, error);
    if error.kind() == io::ErrorKind::ConnectionRefused {
        report.message = format!("{doing}: connection refused; is `leadline serve` running there, on this port?");
    }
    report
}

/// Returns why a flow was not opened. A kernel without MPTCP does not know the protocol.
fn unopened(doing: &str, options: &OpeningOptions, error: &io::Error) -> ErrorReport {
    match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL) if options.mptcp => {
            input_error("no_mptcp", format!("{doing}: this host's kernel has no MPTCP, or net.mptcp.enabled is 0"))
        }
        _ => system_error(doing, error),
    }
}

impl Session {
    /// Requests a session from the server, proves the key if there is one, and compares clocks.
    pub fn open(target: &Target, bind: Option<&str>, open: Open) -> Result<Self, ErrorReport> {
        let server = resolve(target)?;
        let bind = parse_bind(bind)?;
        let key = keys::shared(target.key.as_ref())?;
        let machine = ClientSession::new(open, keys::credentials(key.as_ref())?);
        let machine = machine.map_err(|error| input_error("too_long", error.to_string()))?;
        debug!(%server, host = target.host, has_key = key.is_some(), "asking for a session");
        let doing = format!("connecting to {server}");
        let control = tcp::connect(server, bind, patience(STEP_TIMEOUT)).map_err(|error| unreached(&doing, &error))?;
        control.set_write_timeout(Some(patience(STEP_TIMEOUT))).map_err(|error| system_error(&doing, &error))?;
        let patience = patience(STEP_TIMEOUT);
        let mut session = Self { control, machine, server, bind, token: 0, patience, heard: false };
        match session.receive()? {
            SessionEvent::Granted { token } => session.token = token,
            _ => return Err(session.out_of_turn()),
        }
        if let Some(clock) = identity() {
            session.machine.compare_identity(&clock);
        }
        info!(%server, "session granted");
        Ok(session)
    }

    /// Opens one TCP data connection and introduces it.
    pub fn connect_stream(&self, flow: u32) -> Result<TcpStream, ErrorReport> {
        self.connect_stream_with(flow, &OpeningOptions::default())
    }

    /// The same with options of the connection.
    pub fn connect_stream_with(&self, flow: u32, options: &OpeningOptions) -> Result<TcpStream, ErrorReport> {
        let doing = format!("opening flow {flow} to {}", self.server);
        let from = self.bind.map(|address| SocketAddr::new(address, 0));
        let mut stream = tcp::connect_with(self.server, from, patience(STEP_TIMEOUT), options)
            .map_err(|error| unopened(&doing, options, &error))?;
        if options.mptcp && !tcp::is_mptcp(&stream) {
            let message =
                format!("{doing}: the server, or something on the path, does not speak MPTCP: it fell back to TCP");
            return Err(peer_error("no_mptcp", message));
        }
        let mut preface = [0; HEADER_BYTES];
        self.header(HeaderKind::Stream, flow).write(&mut preface);
        stream.write_all(&preface).map_err(|error| system_error(&doing, &error))?;
        Ok(stream)
    }

    /// Opens one UDP flow and introduces it until the server answers.
    pub fn connect_datagram(&self, flow: u32) -> Result<UdpSocket, ErrorReport> {
        let doing = format!("opening UDP flow {flow} to {}", self.server);
        let failed = |error: io::Error| system_error(&doing, &error);
        let any = if self.server.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let local = SocketAddr::new(self.bind.unwrap_or(any), 0);
        let socket = net::udp_socket(local, Some(self.server), false).map_err(failed)?;
        let mut hello = self.header(HeaderKind::Hello, flow);
        let (mut packet, mut answer) = ([0; HEADER_BYTES], [0; HEADER_BYTES]);
        let given_up = Instant::now() + patience(HELLO_INTERVAL * HELLO_ATTEMPTS);
        let (mut attempts, mut next) = (0, Instant::now());
        while Instant::now() < given_up {
            // Packets that are no answer do not make it repeat the hello earlier.
            if Instant::now() >= next {
                (attempts, next) = (attempts + 1, Instant::now() + HELLO_INTERVAL);
                hello.write(&mut packet);
                socket.send(&packet).map_err(failed)?;
            }
            let remaining = next.saturating_duration_since(Instant::now()).max(SHORTEST_WAIT);
            socket.set_read_timeout(Some(remaining)).map_err(failed)?;
            match socket.recv(&mut answer) {
                Ok(read) => match Header::parse(&answer[..read]) {
                    Ok(header) if (header.token, header.flow) != (self.token, flow) => {}
                    Ok(Header { kind: HeaderKind::HelloAck, .. }) => return Ok(socket),
                    // Returning the nonce proves that this host receives what the server sends to this address.
                    Ok(Header { kind: HeaderKind::Challenge, sequence, .. }) => {
                        (hello.sequence, next) = (sequence, Instant::now());
                    }
                    _ => {}
                },
                Err(error) if was_cut_short(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let message = format!(
            "{doing}: no answer over UDP to {attempts} attempts, though TCP came through; a filter, or a NAT that gives UDP another address than TCP?"
        );
        Err(peer_error("udp_unanswered", message))
    }

    /// Waits until the server has all flows; returns the session's own port there, if it has one.
    pub fn await_ready(&mut self) -> Result<Option<u16>, ErrorReport> {
        match self.receive()? {
            SessionEvent::Ready { port } => Ok(port),
            _ => Err(self.out_of_turn()),
        }
    }

    /// The server's address.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// This host's address, if one was given.
    pub fn bind(&self) -> Option<IpAddr> {
        self.bind
    }

    /// Returns the difference of the server's clock.
    pub fn clock_difference(&self) -> Option<ClockDifference> {
        self.machine.clock_difference()
    }

    /// Sends the start to the server, as an instant of this host's clock.
    pub fn begin(&mut self, at_ns: u64) -> Result<(), ErrorReport> {
        self.machine.begin(at_ns).map_err(|error| self.failure(error))?;
        self.send_output()
    }

    /// Receives the server's messages on a separate thread until its report, or until `deliver` returns false. The
    /// returned handle can still send to the server.
    pub fn listen(
        self,
        interval: Duration,
        deliver: impl Fn(FromPeer) -> bool + Send + 'static,
    ) -> Result<ControlSender, ErrorReport> {
        let doing = "listening to the server";
        let control = self.control.try_clone().map_err(|error| system_error(doing, &error))?;
        // The server sends a message in every interval; only a silence far beyond that means that it is gone.
        let reader = Self { control, patience: patience(REPORT_TIMEOUT) + interval, ..self };
        let sender = ControlSender { control: self.control, server: self.server };
        std::thread::Builder::new()
            .spawn(move || reader.forward_messages(&deliver))
            .map_err(|error| system_error(doing, &error))?;
        Ok(sender)
    }

    fn forward_messages(mut self, deliver: &impl Fn(FromPeer) -> bool) {
        loop {
            let item = match self.receive() {
                Ok(SessionEvent::Progress { t_ns, flows }) => FromPeer::Progress(t_ns, flows),
                Ok(SessionEvent::Sent { units }) => FromPeer::Sent(units),
                Ok(SessionEvent::Report { flows, load, errors }) => FromPeer::Report(flows, load, errors),
                Ok(_) => FromPeer::Lost(self.out_of_turn()),
                Err(error) => FromPeer::Lost(error),
            };
            let last = matches!(item, FromPeer::Report(..) | FromPeer::Lost(_));
            if !deliver(item) || last {
                return;
            }
        }
    }

    fn header(&self, kind: HeaderKind, flow: u32) -> Header {
        Header { kind, token: self.token, flow, sequence: 0, sent_ns: monotonic_ns() }
    }

    /// Sends the machine's output.
    fn send_output(&mut self) -> Result<(), ErrorReport> {
        let output = self.machine.output();
        if !output.is_empty() {
            let doing = format!("speaking to {}", self.server);
            self.control.write_all(output).map_err(|error| system_error(&doing, &error))?;
            self.machine.sent(usize::MAX);
        }
        Ok(())
    }

    /// Receives the server's next event and sends the responses to it. Single bytes do not extend the deadline.
    fn receive(&mut self) -> Result<SessionEvent, ErrorReport> {
        let mut deadline = Instant::now() + self.patience;
        let doing = format!("waiting for {}", self.server);
        let failed = |error: io::Error| system_error(&doing, &error);
        let mut piece = [0; 16 * 1024];
        loop {
            match self.machine.next_event(monotonic_ns()) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(self.failure(error)),
            }
            if !self.machine.output().is_empty() {
                // A separate step with its own time limit.
                self.send_output()?;
                deadline = Instant::now() + self.patience;
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            self.control.set_read_timeout(Some(remaining)).map_err(failed)?;
            match self.control.read(&mut piece) {
                Ok(0) => return Err(self.closed()),
                Ok(read) => {
                    self.heard = true;
                    self.machine.receive(&piece[..read]);
                }
                Err(error) if was_cut_short(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// Returns why the session is over, in one line.
    fn failure(&self, error: SessionError) -> ErrorReport {
        let server = self.server;
        match error {
            SessionError::Refused(refusal) => {
                peer_error(&refusal.code, format!("{server} refuses: {}", refusal.message))
            }
            SessionError::InvalidMessage(error) => {
                peer_error("protocol", format!("{server} does not speak Leadline's protocol: {error}"))
            }
            SessionError::OutOfTurn => self.out_of_turn(),
            SessionError::Unproven => {
                let message =
                    format!("{server} does not know the key of --key-file: not the responder that was meant?");
                peer_error("unproven_server", message)
            }
        }
    }

    fn closed(&self) -> ErrorReport {
        let server = self.server;
        let message = if self.heard {
            format!("{server} closed the session before its end")
        } else {
            // A responder of another version does so: its first line differs.
            format!("{server} closed the session without an answer: is it `leadline serve`, of the same version?")
        };
        peer_error("closed_early", message)
    }

    fn out_of_turn(&self) -> ErrorReport {
        peer_error("protocol", format!("{} answers out of turn", self.server))
    }
}

/// Whether a wait with a time limit ended without a response: its time was over, or the process was stopped and
/// continued meanwhile (SIGSTOP and SIGCONT, a suspended machine), which ends such a wait even if no signal is
/// handled (signal(7)).
fn was_cut_short(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The sending half of a session's control connection.
pub struct ControlSender {
    control: TcpStream,
    server: SocketAddr,
}

impl ControlSender {
    /// Sends a message to the server.
    pub fn send(&mut self, message: &FromClient) -> Result<(), ErrorReport> {
        let frame = encode_frame(message).map_err(|error| input_error("too_long", error.to_string()))?;
        let doing = format!("speaking to {}", self.server);
        self.control.write_all(&frame).map_err(|error| system_error(&doing, &error))
    }
}

impl Drop for ControlSender {
    fn drop(&mut self) {
        // This also ends the relaying thread. It fails only if the connection is closed already.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn single_bytes_do_not_extend_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let control = TcpStream::connect(server).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(&1000u32.to_be_bytes()).unwrap();
        let dripping = std::thread::spawn(move || {
            let mut dripped = 0;
            while dripped < 1000 && far.write_all(b" ").is_ok() {
                dripped += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            dripped
        });
        let patience = Duration::from_millis(100);
        let open = leadline_transport::Open {
            work: leadline_transport::Work::Tcp {
                block_bytes: 1,
                rate_bps: None,
                options: leadline_wire::StreamOptions::DEFAULT,
            },
            flows: 1,
            threads: 1,
            direction: leadline_wire::Direction::Up,
            duration_ms: 1,
            congestion: None,
            interval_ms: 100,
            takes_turns: false,
            datagrams: leadline_transport::DatagramOptions::default(),
        };
        let machine = ClientSession::new(open, None).unwrap();
        let mut session = Session { control, machine, server, bind: None, token: 0, patience, heard: false };
        assert_eq!(session.receive().unwrap_err().code, "timeout");
        drop(session);
        assert!(dripping.join().unwrap() < 1000);
    }
}
