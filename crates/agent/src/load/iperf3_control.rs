//! The control connection to a real `iperf3 -s`: its handshake with time limits, and its events afterwards. The protocol is
//! a machine of `leadline_transport::iperf3`.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use leadline_sys::clock::unix_s;
use leadline_sys::tcp::OpeningOptions;
use leadline_sys::{net, tcp};
use leadline_transport::iperf3::{
    meaning, token, Cookie, Iperf3Client, Iperf3ClientEvent, Iperf3Parameters, COOKIE_BYTES, HELLO,
};
use leadline_wire::{ErrorReport, Target};
use tracing::info;

use super::session::{parse_bind, resolve};
use crate::events::{input_error, peer_error, system_error};
use crate::flows::iperf3::FlowSocket;
use crate::keys;
use crate::patience::patience;

/// The time limit of the server for each step of the handshake.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// iperf3's hello of a UDP flow has no repetition; a server creates a flow for each.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// A control connection of a test.
pub struct Control {
    stream: TcpStream,
    machine: Iperf3Client,
    cookie: Cookie,
    /// The server's address.
    pub server: SocketAddr,
    bind: Option<IpAddr>,
    /// Local port of the first flow, if it is not the host's choice.
    local_port: Option<u16>,
}

impl Control {
    /// Connects, and passes the parameters on; the server then waits for the flows.
    pub fn open(target: &Target, bind: Option<&str>, asked: &Iperf3Parameters) -> Result<Self, ErrorReport> {
        if target.key.is_some() {
            return Err(input_error("bad_key", "iperf3 has no shared key: leave out --key-file, or the peer"));
        }
        let login = target.iperf3_login.as_ref().map(|login| token(login, unix_s())).transpose();
        let authtoken = login.map_err(|error| input_error("bad_login", format!("login at iperf3: {error}")))?;
        let server = resolve(target)?;
        let bind = parse_bind(bind)?;
        let doing = format!("connecting to iperf3 at {server}");
        let stream = tcp::connect(server, bind, patience(STEP_TIMEOUT)).map_err(|error| {
            let mut report = system_error(&doing, &error);
            if error.kind() == io::ErrorKind::ConnectionRefused {
                report.message = format!("{doing}: connection refused; is `iperf3 -s` running there, on this port?");
            }
            report
        })?;
        stream.set_write_timeout(Some(patience(STEP_TIMEOUT))).map_err(|error| system_error(&doing, &error))?;
        let cookie = fresh_cookie()?;
        let local_port = target.iperf3_options.and_then(|options| options.local_port);
        let mut control = Self { stream, machine: Iperf3Client::default(), cookie, server, bind, local_port };
        control.send(cookie.bytes())?;
        control.step(&Iperf3ClientEvent::SendParameters)?;
        control.send(&Iperf3Parameters { authtoken, ..asked.clone() }.encode())?;
        control.step(&Iperf3ClientEvent::CreateStreams).map_err(|error| control.explained(error))?;
        info!(%server, "iperf3 has taken the parameters");
        Ok(control)
    }

    /// Opens one TCP flow; `place` is its place among the flows.
    pub fn connect_stream(&self, place: u32, options: &OpeningOptions) -> Result<FlowSocket, ErrorReport> {
        let local = self.local(place)?;
        let doing = format!("opening a flow to iperf3 at {}{}", self.server, from_port(local));
        let failed = |error: io::Error| system_error(&doing, &error);
        let mut stream =
            tcp::connect_with(self.server, Some(local), patience(STEP_TIMEOUT), options).map_err(failed)?;
        stream.write_all(self.cookie.bytes()).map_err(failed)?;
        Ok(FlowSocket::Stream(stream))
    }

    /// Opens one UDP flow, as above: the server answers its hello.
    pub fn connect_datagram(&self, place: u32) -> Result<FlowSocket, ErrorReport> {
        let local = self.local(place)?;
        let doing = format!("opening a UDP flow to iperf3 at {}{}", self.server, from_port(local));
        let failed = |error: io::Error| system_error(&doing, &error);
        let socket = net::udp_socket(local, Some(self.server), false).map_err(failed)?;
        socket.set_read_timeout(Some(patience(HELLO_TIMEOUT))).map_err(failed)?;
        socket.send(&HELLO).map_err(failed)?;
        match receive_hello(&socket) {
            Ok(()) => Ok(FlowSocket::Datagram(socket)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let message = format!("{doing}: no answer over UDP, though TCP came through");
                Err(peer_error("udp_unanswered", message))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the local address of a flow; its port is 0 if the host chooses one.
    fn local(&self, place: u32) -> Result<SocketAddr, ErrorReport> {
        let any = if self.server.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let port = match self.local_port {
            None => 0,
            Some(first) => u16::try_from(u32::from(first).saturating_add(place)).map_err(|_| {
                input_error("bad_port", format!("flow {place} after local port {first} has no port: 65535 is the last"))
            })?,
        };
        Ok(SocketAddr::new(self.bind.unwrap_or(any), port))
    }

    /// Waits for the server's start.
    pub fn await_start(&mut self) -> Result<(), ErrorReport> {
        self.step(&Iperf3ClientEvent::Start)?;
        self.step(&Iperf3ClientEvent::Running)
    }

    /// Sends bytes of the protocol.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ErrorReport> {
        let sent = (&self.stream).write_all(bytes);
        sent.map_err(|error| system_error(&format!("speaking to iperf3 at {}", self.server), &error))
    }

    /// Ends the test: the server need not wait for anything more.
    pub fn give_up(&mut self) {
        // This fails if the server is gone already.
        let _ = (&self.stream).write_all(&Iperf3Client::terminate());
    }

    /// Receives the server's next event until an instant; `None` if there is none by then.
    pub fn receive(&mut self, deadline: Instant) -> Result<Option<Iperf3ClientEvent>, ErrorReport> {
        let doing = format!("waiting for iperf3 at {}", self.server);
        let mut piece = [0; 16 * 1024];
        loop {
            let event = self.machine.next_event().map_err(|error| {
                peer_error("protocol", format!("iperf3 at {} answers nonsense: {error}", self.server))
            })?;
            if let Some(event) = event {
                return self.accepted(event).map(Some);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(remaining)).map_err(|error| system_error(&doing, &error))?;
            match self.stream.read(&mut piece) {
                Ok(0) => {
                    let last = self.machine.closed().map_or(Ok(()), |event| self.accepted(event).map(drop));
                    last?;
                    return Err(peer_error("closed_early", format!("iperf3 at {} closed the connection", self.server)));
                }
                Ok(read) => self.machine.receive(&piece[..read]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(system_error(&doing, &error)),
            }
        }
    }

    /// Receives one event of the handshake.
    fn step(&mut self, wanted: &Iperf3ClientEvent) -> Result<(), ErrorReport> {
        match self.receive(Instant::now() + patience(STEP_TIMEOUT))? {
            Some(event) if event == *wanted => Ok(()),
            Some(_) => Err(peer_error("protocol", format!("iperf3 at {} answers out of turn", self.server))),
            None => {
                let doing = format!("waiting for iperf3 at {}", self.server);
                Err(system_error(&doing, &io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// Says what it means that a server closes the connection instead of an answer to the parameters: iperf3 3.21 sends no
    /// error to a client whose login it refuses.
    fn explained(&self, mut error: ErrorReport) -> ErrorReport {
        if error.code == "closed_early" {
            let why = "as a newer server does if it requires a user and a password, or does not accept these";
            error.message =
                format!("iperf3 at {} closed the connection when it had the parameters, {why}", self.server);
        }
        error
    }

    /// Returns the event, or the error that it is.
    fn accepted(&self, event: Iperf3ClientEvent) -> Result<Iperf3ClientEvent, ErrorReport> {
        let server = self.server;
        match event {
            Iperf3ClientEvent::Denied => {
                let message = format!("iperf3 at {server} is busy with another test: it serves one client at a time");
                Err(peer_error("server_busy", message))
            }
            Iperf3ClientEvent::Terminated => {
                Err(peer_error("server_terminated", format!("iperf3 at {server} has ended the test")))
            }
            Iperf3ClientEvent::Failed { error, errno } => {
                let what = meaning(error).map_or_else(|| format!("error {error}"), str::to_owned);
                let why =
                    errno.filter(|errno| *errno > 0).map(|errno| format!(" ({})", io::Error::from_raw_os_error(errno)));
                Err(peer_error("server_error", format!("iperf3 at {server}: {what}{}", why.unwrap_or_default())))
            }
            event => Ok(event),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // This fails only if the connection is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Waits for the answer to a hello. The answers of old versions differ, and all of them have four bytes.
fn receive_hello(socket: &UdpSocket) -> io::Result<()> {
    let mut answer = [0; 64];
    let deadline = Instant::now() + patience(HELLO_TIMEOUT);
    while Instant::now() < deadline {
        match socket.recv(&mut answer) {
            Ok(4) => return Ok(()),
            // Datagrams of another length do not extend the deadline.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// The part of an error that names the local port, if it was chosen.
fn from_port(local: SocketAddr) -> String {
    if local.port() == 0 {
        String::new()
    } else {
        format!(" from port {}", local.port())
    }
}

fn fresh_cookie() -> Result<Cookie, ErrorReport> {
    let random = [keys::fresh_nonce()?.0, keys::fresh_nonce()?.0].concat();
    let Some(random) = random.first_chunk::<{ COOKIE_BYTES - 1 }>() else {
        unreachable!("two nonces are longer than a cookie")
    };
    Ok(Cookie::from_random(random))
}
