//! The client's end of a session: control connection, clock comparison, data flows, the server's progress and report.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::net;
use leadline_transport::{
    encode_frame, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Open, SideReport, HEADER_BYTES, MAGIC,
};
use leadline_wire::{ErrorReport, FlowProgress, IpVersion, LoadReport, Side, Target};

use crate::events::{input_error, peer_error, system_error};

/// How long the server may take for each step before the start.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may be silent beyond its interval.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);
const CLOCK_EXCHANGES: u32 = 16;
const HELLO_INTERVAL: Duration = Duration::from_millis(100);
const HELLO_ATTEMPTS: usize = 50;

/// What comes from the server while the flows run; times are mapped to this host's clock.
pub enum FromPeer {
    /// Its counters at an instant.
    Progress(u64, Vec<FlowProgress>),
    /// Units that its senders sent, in the downward flows' order.
    Sent(Vec<u64>),
    /// Its figures.
    Report(Vec<SideReport>, LoadReport, BTreeMap<String, u64>),
    /// It broke the protocol or went away.
    Lost(ErrorReport),
}

/// A session that the server has granted.
pub struct Session {
    control: TcpStream,
    decoder: FrameDecoder,
    server: SocketAddr,
    bind: Option<IpAddr>,
    /// What flows introduce themselves with.
    pub token: u64,
    /// The server's clock minus ours, ns.
    offset_ns: i64,
    /// How long each of its messages may take, whole.
    patience: Duration,
}

/// The address of a name, of the family asked for.
pub fn resolve(target: &Target) -> Result<SocketAddr, ErrorReport> {
    resolve_host(&target.host, target.port, target.ip_version)
}

/// As `resolve`, from the parts.
pub fn resolve_host(host: &str, port: u16, ip_version: Option<IpVersion>) -> Result<SocketAddr, ErrorReport> {
    Ok(resolve_all(host, port, ip_version)?.0)
}

/// As `resolve_host`, with what other addresses there are.
pub fn resolve_all(
    host: &str,
    port: u16,
    ip_version: Option<IpVersion>,
) -> Result<(SocketAddr, Vec<SocketAddr>), ErrorReport> {
    let fits = |address: &SocketAddr| match ip_version {
        Some(IpVersion::V4) => address.is_ipv4(),
        Some(IpVersion::V6) => address.is_ipv6(),
        None => true,
    };
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| ErrorReport {
        code: "unknown_host".into(),
        ..system_error(&format!("looking up {host}"), &error)
    })?;
    let first = addresses.find(fits).ok_or_else(|| {
        let family = if ip_version == Some(IpVersion::V6) { "IPv6" } else { "IPv4" };
        input_error("no_address", format!("{host} has no {family} address"))
    })?;
    Ok((first, addresses.filter(fits).collect()))
}

/// A local address as written.
pub fn parse_bind(bind: Option<&str>) -> Result<Option<IpAddr>, ErrorReport> {
    bind.map(|text| text.parse().map_err(|_| input_error("bad_address", format!("bind: {text} is not an IP address"))))
        .transpose()
}

/// Why there is no connection to a responder. Where the host answers and the port does not, the responder is missing.
fn unreached(doing: &str, error: &io::Error) -> ErrorReport {
    let mut report = system_error(doing, error);
    if error.kind() == io::ErrorKind::ConnectionRefused {
        report.message = format!("{doing}: connection refused; is `leadline serve` running there, on this port?");
    }
    report
}

impl Session {
    /// Ask the server for a session and compare clocks.
    pub fn open(target: &Target, bind: Option<&str>, open: Open) -> Result<Self, ErrorReport> {
        let server = resolve(target)?;
        let bind = parse_bind(bind)?;
        let doing = format!("connecting to {server}");
        let control = net::connect_tcp(server, bind, STEP_TIMEOUT).map_err(|error| unreached(&doing, &error))?;
        control.set_write_timeout(Some(STEP_TIMEOUT)).map_err(|error| system_error(&doing, &error))?;
        let decoder = FrameDecoder::default();
        let mut session = Self { control, decoder, server, bind, token: 0, offset_ns: 0, patience: STEP_TIMEOUT };
        session.control.write_all(MAGIC).map_err(|error| system_error(&doing, &error))?;
        session.say(&FromClient::Open(open))?;
        match session.hear()? {
            FromServer::Accepted { token } => session.token = token,
            FromServer::Refused(refusal) => return Err(peer_error(&refusal.code, refusal.message)),
            _ => return Err(session.out_of_turn()),
        }
        session.offset_ns = session.compare_clocks()?;
        Ok(session)
    }

    /// Open one TCP data connection and introduce it.
    pub fn connect_stream(&self, flow: u32) -> Result<TcpStream, ErrorReport> {
        let doing = format!("opening flow {flow} to {}", self.server);
        let mut stream =
            net::connect_tcp(self.server, self.bind, STEP_TIMEOUT).map_err(|error| system_error(&doing, &error))?;
        let mut preface = [0; HEADER_BYTES];
        self.header(HeaderKind::Stream, flow).write(&mut preface);
        stream.write_all(&preface).map_err(|error| system_error(&doing, &error))?;
        Ok(stream)
    }

    /// Open one UDP flow and introduce it until the server answers.
    pub fn connect_datagram(&self, flow: u32) -> Result<UdpSocket, ErrorReport> {
        let doing = format!("opening UDP flow {flow} to {}", self.server);
        let failed = |error: io::Error| system_error(&doing, &error);
        let any = if self.server.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
        let local = SocketAddr::new(self.bind.unwrap_or(any), 0);
        let socket = net::udp_socket(local, Some(self.server), false).map_err(failed)?;
        socket.set_read_timeout(Some(HELLO_INTERVAL)).map_err(failed)?;
        let mut hello = [0; HEADER_BYTES];
        self.header(HeaderKind::Hello, flow).write(&mut hello);
        let mut answer = [0; HEADER_BYTES];
        for _ in 0..HELLO_ATTEMPTS {
            socket.send(&hello).map_err(failed)?;
            match socket.recv(&mut answer) {
                Ok(read) => match Header::parse(&answer[..read]) {
                    Ok(header) if header.kind == HeaderKind::HelloAck && header.token == self.token => {
                        return Ok(socket)
                    }
                    _ => {}
                },
                Err(error) if was_cut_short(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let message = format!("{doing}: no answer over UDP to {HELLO_ATTEMPTS} attempts, though TCP came through");
        Err(peer_error("udp_unanswered", message))
    }

    /// Wait until the server has all flows.
    pub fn await_ready(&mut self) -> Result<(), ErrorReport> {
        match self.hear()? {
            FromServer::Ready {} => Ok(()),
            FromServer::Refused(refusal) => Err(peer_error(&refusal.code, refusal.message)),
            _ => Err(self.out_of_turn()),
        }
    }

    /// Tell the server when to begin, on our clock.
    pub fn begin(&mut self, at_ns: u64) -> Result<(), ErrorReport> {
        let at_ns = at_ns.saturating_add_signed(self.offset_ns);
        self.say(&FromClient::Begin { at_ns })
    }

    /// Hear the server in a thread of its own until its report, or until nobody listens (`tell` says false); the returned
    /// handle still speaks to it.
    pub fn listen(
        self,
        interval: Duration,
        tell: impl Fn(FromPeer) -> bool + Send + 'static,
    ) -> Result<Speaker, ErrorReport> {
        let doing = "listening to the server";
        let control = self.control.try_clone().map_err(|error| system_error(doing, &error))?;
        // The server is heard from every interval; only silence far beyond that means that it has gone.
        let reader = Self { control, patience: REPORT_TIMEOUT + interval, ..self };
        let speaker = Speaker { control: self.control };
        std::thread::Builder::new().spawn(move || reader.relay(&tell)).map_err(|error| system_error(doing, &error))?;
        Ok(speaker)
    }

    fn relay(mut self, tell: &impl Fn(FromPeer) -> bool) {
        loop {
            let item = match self.hear() {
                Ok(FromServer::Progress { t_ns, flows }) => FromPeer::Progress(self.local(t_ns), flows),
                Ok(FromServer::Sent { units }) => FromPeer::Sent(units),
                Ok(FromServer::Report { flows, load, errors }) => {
                    let map = |flow: SideReport| SideReport {
                        start_ns: flow.start_ns.map(|t_ns| self.local(t_ns)),
                        end_ns: flow.end_ns.map(|t_ns| self.local(t_ns)),
                        ..flow
                    };
                    let load = LoadReport { side: Side::Peer, ..load };
                    FromPeer::Report(flows.into_iter().map(map).collect(), load, errors)
                }
                Ok(_) => FromPeer::Lost(self.out_of_turn()),
                Err(error) => FromPeer::Lost(error),
            };
            let last = matches!(item, FromPeer::Report(..) | FromPeer::Lost(_));
            if !tell(item) || last {
                return;
            }
        }
    }

    /// The offset with the smallest round trip of several: theta = ((t2-t1)+(t3-t4))/2 (RFC 5905, 8), its error at most
    /// half of that round trip.
    fn compare_clocks(&mut self) -> Result<i64, ErrorReport> {
        let mut best: Option<(u64, i64)> = None;
        for id in 0..CLOCK_EXCHANGES {
            let asked_ns = monotonic_ns();
            self.say(&FromClient::Clock { id })?;
            let FromServer::Clock { received_ns, sent_ns, .. } = self.hear()? else { return Err(self.out_of_turn()) };
            let answered_ns = monotonic_ns();
            let round_trip = (answered_ns - asked_ns).saturating_sub(sent_ns.saturating_sub(received_ns));
            let twice = i128::from(received_ns) - i128::from(asked_ns) + i128::from(sent_ns) - i128::from(answered_ns);
            let offset = i64::try_from(twice / 2).map_err(|_| self.out_of_turn())?;
            if best.is_none_or(|(least, _)| round_trip < least) {
                best = Some((round_trip, offset));
            }
        }
        best.map(|(_, offset)| offset).ok_or_else(|| self.out_of_turn())
    }

    fn local(&self, server_ns: u64) -> u64 {
        server_ns.saturating_add_signed(self.offset_ns.saturating_neg())
    }

    fn header(&self, kind: HeaderKind, flow: u32) -> Header {
        Header { kind, token: self.token, flow, sequence: 0, sent_ns: monotonic_ns() }
    }

    fn say(&mut self, message: &FromClient) -> Result<(), ErrorReport> {
        say(&mut self.control, message)
    }

    /// The next whole message. A byte now and then buys the server no time.
    fn hear(&mut self) -> Result<FromServer, ErrorReport> {
        let deadline = Instant::now() + self.patience;
        let doing = format!("waiting for {}", self.server);
        let failed = |error: io::Error| system_error(&doing, &error);
        let mut piece = [0; 16 * 1024];
        loop {
            match self.decoder.next_message() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(peer_error("protocol", format!("{} answers nonsense: {error}", self.server))),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            self.control.set_read_timeout(Some(left)).map_err(failed)?;
            match self.control.read(&mut piece) {
                Ok(0) => return Err(peer_error("closed_early", format!("{} closed the session", self.server))),
                Ok(read) => self.decoder.feed(&piece[..read]),
                Err(error) if was_cut_short(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn out_of_turn(&self) -> ErrorReport {
        peer_error("protocol", format!("{} answers out of turn", self.server))
    }
}

/// Whether a wait with a time limit ended without an answer: its time was over, or the process was stopped meanwhile and goes on
/// (SIGSTOP and SIGCONT, a suspended machine), which ends such a wait even where no signal is handled (signal(7)).
fn was_cut_short(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The sending half of a session's control connection.
pub struct Speaker {
    control: TcpStream,
}

impl Speaker {
    /// Say something to the server.
    pub fn say(&mut self, message: &FromClient) -> Result<(), ErrorReport> {
        say(&mut self.control, message)
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // Ends the relaying thread too. Fails only when the connection is closed already.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }
}

fn say(control: &mut TcpStream, message: &FromClient) -> Result<(), ErrorReport> {
    let frame = encode_frame(message).map_err(|error| input_error("too_long", error.to_string()))?;
    control.write_all(&frame).map_err(|error| system_error("speaking to the server", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_byte_now_and_then_buys_the_server_no_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let control = TcpStream::connect(server).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(&1000u32.to_be_bytes()).unwrap();
        let dripping = std::thread::spawn(move || {
            let mut dripped = 0;
            while dripped < 1000 && far.write_all(b" ").is_ok() {
                dripped += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            dripped
        });
        let patience = Duration::from_millis(100);
        let decoder = FrameDecoder::default();
        let mut session = Session { control, decoder, server, bind: None, token: 0, offset_ns: 0, patience };
        assert_eq!(session.hear().unwrap_err().code, "timeout");
        drop(session);
        assert!(dripping.join().unwrap() < 1000);
    }

    #[test]
    fn a_name_gives_all_its_addresses_and_each_once() {
        let system: Vec<SocketAddr> = ("localhost", 80).to_socket_addrs().unwrap().collect();
        let (first, others) = resolve_all("localhost", 80, None).unwrap();
        assert_eq!([vec![first], others].concat(), system);
        let (only, others) = resolve_all("127.0.0.1", 80, Some(IpVersion::V4)).unwrap();
        assert_eq!((only, others), (SocketAddr::from(([127, 0, 0, 1], 80)), Vec::new()));
    }
}
