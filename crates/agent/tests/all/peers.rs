//! Peers that hold all that they can of a server with few descriptors: others are served meanwhile.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{answer, rr, sum, target, udp, Agent, PATIENCE};
use leadline_transport::{encode_frame, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Open, Work};
use leadline_transport::{DatagramOptions, HEADER_BYTES, MAGIC};
use leadline_wire::{Direction, Event, StreamOptions};
use serde_json::json;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const GREEDY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const MODEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

/// A server that may open this many files.
struct Server {
    agent: Agent,
    sessions: SocketAddr,
    http: SocketAddr,
}

impl Server {
    fn start(files: u32) -> Self {
        let program = format!("ulimit -n {files} && exec {}", env!("CARGO_BIN_EXE_leadline-agent"));
        let mut command = Command::new("sh");
        command.args(["-c", &program]).env("LEADLINE_LOG", "serve=warn").stderr(Stdio::piped());
        let mut agent = Agent::spawn(&mut command);
        let workload = json!({"kind": "serve", "bind": ["127.0.0.1"], "port": 0, "http_port": 0, "https_port": null,
            "answer": answer(), "longest_ms": 60_000, "most_flows": 64});
        agent.prepare("serve", &workload);
        let (port, http_port) = agent.wait("its ports", |event| match event {
            Event::Prepared { port, http_port, .. } => port.zip(*http_port),
            _ => None,
        });
        Self { agent, sessions: (HERE, port).into(), http: (HERE, http_port).into() }
    }

    fn files(&self) -> usize {
        self.agent.weight().1
    }
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let stream = leadline_sys::tcp::connect(to, Some(IpAddr::V4(from)), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether a request on this connection is answered; if not, the server has closed it.
fn is_answered(mut stream: &TcpStream) -> bool {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
        && matches!(stream.read(&mut [0; 4096]), Ok(read) if read > 0)
}

/// A session of one flow, and its control connection.
struct Session {
    control: TcpStream,
    decoder: FrameDecoder,
    flow: Option<TcpStream>,
}

impl Session {
    /// Asks for a session, and opens its flow if it is granted and a flow is wanted; otherwise returns the refusal.
    fn open(from: Ipv4Addr, server: &Server, has_flow: bool) -> Result<Self, String> {
        let control = connect(from, server.sessions);
        let mut session = Self { control, decoder: FrameDecoder::default(), flow: None };
        let open = Open {
            work: Work::Tcp { block_bytes: 4096, rate_bps: None, options: StreamOptions::DEFAULT },
            flows: 1,
            threads: 1,
            direction: Direction::Up,
            duration_ms: 1000,
            congestion: None,
            interval_ms: 100,
            takes_turns: false,
            datagrams: DatagramOptions::default(),
        };
        let opening = encode_frame(&FromClient::Open { open: Box::new(open), nonce: None }).unwrap();
        session.control.write_all(&[MAGIC, &opening].concat()).unwrap();
        let token = match session.receive() {
            Some(FromServer::Accepted { token, .. }) => token,
            Some(FromServer::Refused(refusal)) => return Err(refusal.code),
            other => panic!("{other:?}"),
        };
        if has_flow {
            let mut flow = connect(from, server.sessions);
            let mut preface = [0; HEADER_BYTES];
            Header { kind: HeaderKind::Stream, token, flow: 0, sequence: 0, sent_ns: 0 }.write(&mut preface);
            flow.write_all(&preface).unwrap();
            session.flow = Some(flow);
            assert_eq!(session.receive(), Some(FromServer::Ready { port: None }));
        }
        Ok(session)
    }

    /// Opens sessions until one is refused; returns them and the name of the refusal.
    fn open_all(from: Ipv4Addr, server: &Server, has_flow: bool) -> (Vec<Self>, String) {
        let mut sessions = Vec::new();
        loop {
            match Self::open(from, server, has_flow) {
                Ok(session) => sessions.push(session),
                Err(code) => return (sessions, code),
            }
        }
    }

    fn receive(&mut self) -> Option<FromServer> {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return Some(message);
            }
            match self.control.read(&mut piece) {
                Ok(0) => return None,
                Ok(read) => self.decoder.feed(&piece[..read]),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Whether the server has closed it.
    fn is_closed(&self) -> bool {
        self.control.set_nonblocking(true).unwrap();
        let closed =
            !matches!(self.control.peek(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        self.control.set_nonblocking(false).unwrap();
        closed
    }
}

#[test]
fn an_address_with_all_connections_leaves_http_and_sessions_to_another() {
    let mut server = Server::start(1024);
    let idle: Vec<TcpStream> = (0..2000).map(|_| connect(GREEDY, server.http)).collect();
    let silent: Vec<TcpStream> = (0..2000).map(|_| connect(GREEDY, server.sessions)).collect();
    let (sessions, refused) = Session::open_all(GREEDY, &server, true);
    assert!(!sessions.is_empty() && ["too_many_files", "too_many_sessions"].contains(&refused.as_str()), "{refused}");
    assert!(server.files() < 1024);
    let modest = connect(MODEST, server.http);
    assert!(is_answered(&modest), "HTTP");
    assert!(Session::open(MODEST, &server, true).is_ok(), "a session");
    let mut client = Agent::start();
    let outcome = client.run(&rr(&target("127.0.0.1", server.sessions.port()), &json!({"number": 20})));
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    // Those beyond the limit were closed on arrival.
    let closed = idle.iter().filter(|connection| !is_answered(connection)).count();
    assert!((1001..2000).contains(&closed), "{closed}");
    server.agent.clock_works();
    drop((idle, silent, sessions));
}

#[test]
fn sessions_without_flows_make_room_for_another_address_when_the_server_is_full() {
    let server = Server::start(512);
    let (with_flows, refused) = Session::open_all(GREEDY, &server, true);
    assert_eq!(refused, "too_many_files");
    // The second address gets its part of what the first one has, until both have the same.
    let (mut without, refused) = Session::open_all(MODEST, &server, false);
    assert!(without.len() > 2 && refused == "too_many_files", "{} {refused}", without.len());
    let count_open = |sessions: &[Session]| sessions.iter().filter(|session| !session.is_closed()).count();
    let open = count_open(&with_flows);
    assert!(open > 2 && open.abs_diff(without.len()) <= 1, "{open} and {}", without.len());
    let third = Session::open(OTHER, &server, true).unwrap();
    let displaced = without[0].receive();
    assert!(matches!(&displaced, Some(FromServer::Refused(refusal)) if refusal.code == "displaced"), "{displaced:?}");
    assert_eq!(without[0].receive(), None);
    assert_eq!((count_open(&with_flows), count_open(&without[1..])), (open, without.len() - 1));
    assert!(!third.is_closed());
}

#[test]
fn without_descriptors_the_longest_idle_connection_makes_room_and_the_log_says_so() {
    let mut server = Server::start(2048);
    let idle: Vec<TcpStream> = (0..300).map(|_| connect(GREEDY, server.http)).collect();
    assert!(idle.iter().all(is_answered));
    // From now on the process may have fewer files than it has open.
    let process = server.agent.pid().to_string();
    let limited = Command::new("prlimit").args(["--pid", &process, "--nofile=128"]).status().unwrap();
    assert!(limited.success());
    for _ in 0..3 {
        assert!(is_answered(&connect(MODEST, server.http)), "HTTP");
    }
    // A session needs several; each of them is accepted once one of those connections was closed.
    assert!(Session::open(MODEST, &server, true).is_ok(), "a session");
    let closed = idle.iter().filter(|connection| !is_answered(connection)).count();
    assert!((1..300).contains(&closed), "{closed}");
    server.agent.kill();
    let log = server.agent.stderr();
    let lines = log.lines().filter(|line| line.contains("the longest idle HTTP connection"));
    let lines: Vec<&str> = lines.collect();
    assert!((1..=2).contains(&lines.len()) && lines[0].contains("peer=127.0.0.2"), "{log}");
}

#[test]
fn forged_hello_of_the_clients_address_does_not_take_an_iperf3_flow() {
    let server = Server::start(1024);
    let forger = UdpSocket::bind((HERE, 0)).unwrap();
    forger.connect(server.sessions).unwrap();
    forger.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let is_over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let forging = scope.spawn(|| {
            // Most likely it comes before the client's hello; if not, it claims the flow that is open already.
            while !is_over.load(Ordering::Relaxed) {
                forger.send(b"9876").unwrap();
                if forger.recv(&mut [0; 16]).is_ok() {
                    return true;
                }
            }
            false
        });
        let mut client = Agent::start();
        let asked = json!({"peer": "iperf3", "rate_pps": 200.0, "duration_ms": 1500});
        let outcome = client.run(&udp(&target("127.0.0.1", server.sessions.port()), &asked));
        is_over.store(true, Ordering::Relaxed);
        assert!(forging.join().unwrap(), "a forged hello was answered");
        outcome
    });
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    assert!(sum(&outcome, |flow| flow.received_units.unwrap_or(0)) > 0, "{outcome:?}");
}
