//! Access to a responder: it sends UDP only to a client with a proven address, it grants sessions only to a client
//! with the key, and no peer can use up the resources of others.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use crate::support::{answer, rr, target, tcp, udp, until, Agent, PATIENCE};
use leadline_transport::{
    encode_frame, ClientSession, Credentials, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Hex32, Open,
    SharedKey, Work, HEADER_BYTES, MAGIC,
};
use leadline_wire::{Direction, StreamOptions};
use serde_json::{json, Value};

const TCP: Work = Work::Tcp { block_bytes: 4096, rate_bps: None, options: StreamOptions::DEFAULT };
const UDP: Work = Work::Udp { datagram_bytes: 1400, rate_pps: Some(100_000.0), number: None };
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 77));

fn open(work: Work) -> Open {
    Open {
        work,
        flows: 1,
        threads: 1,
        direction: Direction::Down,
        duration_ms: 1000,
        congestion: None,
        interval_ms: 100,
        takes_turns: false,
        datagrams: leadline_transport::DatagramOptions::default(),
    }
}

fn serve(server: &mut Agent, changes: &Value) -> u16 {
    let mut workload = json!({"kind": "serve", "bind": ["127.0.0.1"], "port": 0, "http_port": null, "https_port": null,
        "answer": answer(), "longest_ms": 60_000, "most_flows": 64});
    for (key, value) in changes.as_object().unwrap() {
        workload[key] = value.clone();
    }
    server.prepare("serve", &workload);
    server.prepared("serve").1.unwrap()
}

/// The first data flow of a session, which sends nothing.
fn stream_flow(from: IpAddr, port: u16, token: u64) -> TcpStream {
    let mut stream = leadline_sys::tcp::connect((HERE, port).into(), Some(from), PATIENCE).unwrap();
    let mut introduction = [0; HEADER_BYTES];
    Header { kind: HeaderKind::Stream, token, flow: 0, sequence: 0, sent_ns: 0 }.write(&mut introduction);
    stream.write_all(&introduction).unwrap();
    stream
}

fn limits(changes: &Value) -> Value {
    let mut limits = serde_json::to_value(leadline_wire::PeerLimits::default()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        limits[key] = value.clone();
    }
    json!({"per_peer": limits})
}

/// A control connection from an address that the test selects.
struct Control {
    stream: TcpStream,
    decoder: FrameDecoder,
}

impl Control {
    fn asking(from: IpAddr, port: u16, open: Open, nonce: Option<Hex32>) -> Self {
        let server = SocketAddr::new(HERE, port);
        let stream = leadline_sys::tcp::connect(server, Some(from), PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut control = Self { stream, decoder: FrameDecoder::default() };
        control.stream.write_all(MAGIC).unwrap();
        control.send(&FromClient::Open { open: Box::new(open), nonce });
        control
    }

    fn send(&mut self, message: &FromClient) {
        self.stream.write_all(&encode_frame(message).unwrap()).unwrap();
    }

    /// Returns the next message; `None` when the server has closed the connection.
    fn receive(&mut self) -> Option<FromServer> {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(read) => self.decoder.feed(&piece[..read]),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn token(&mut self) -> u64 {
        match self.receive() {
            Some(FromServer::Accepted { token, .. }) => token,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the name of a refusal, after which nothing arrives.
    fn refusal(&mut self) -> String {
        match self.receive() {
            Some(FromServer::Refused(refusal)) => {
                assert!(self.receive().is_none(), "nothing but the refusal");
                refusal.code
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A UDP socket that sends hellos.
struct Flow {
    socket: UdpSocket,
    token: u64,
}

impl Flow {
    fn at(from: IpAddr, port: u16, token: u64) -> Self {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        socket.connect((HERE, port)).unwrap();
        Self { socket, token }
    }

    fn hello(&self, sequence: u64) {
        let mut packet = [0; HEADER_BYTES];
        Header { kind: HeaderKind::Hello, token: self.token, flow: 0, sequence, sent_ns: 0 }.write(&mut packet);
        self.socket.send(&packet).unwrap();
    }

    /// Returns the next packet's length and header.
    fn answer(&self) -> (usize, Header) {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut packet = [0; 2000];
        let read = self.socket.recv(&mut packet).unwrap();
        (read, Header::parse(&packet[..read]).unwrap())
    }

    /// Returns the number of received bytes.
    fn received(&self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let mut packet = [0; 2000];
        std::iter::from_fn(|| self.socket.recv(&mut packet).ok()).sum()
    }
}

#[test]
fn a_hello_from_another_address_than_the_sessions_is_not_answered() {
    let mut server = Agent::start();
    let port = serve(&mut server, &json!({}));
    let mut control = Control::asking(HERE, port, open(UDP), None);
    let token = control.token();
    let (other, own) = (Flow::at(ELSEWHERE, port, token), Flow::at(HERE, port, token));
    for sequence in 0..50 {
        other.hello(sequence);
    }
    own.hello(0);
    let (length, challenge) = own.answer();
    assert_eq!((length, challenge.kind), (HEADER_BYTES, HeaderKind::Challenge));
    // The session's own nonce is useless for another session.
    other.hello(challenge.sequence);
    own.hello(challenge.sequence);
    assert_eq!(own.answer().1.kind, HeaderKind::HelloAck);
    assert_eq!(control.receive(), Some(FromServer::Ready { port: None }));
    assert_eq!(other.received(), 0, "responses arrive in the order of the requests");
}

#[test]
fn until_the_nonce_is_returned_no_more_bytes_go_out_than_came_in() {
    let mut server = Agent::start();
    let port = serve(&mut server, &json!({}));
    let mut control = Control::asking(HERE, port, open(UDP), None);
    let token = control.token();
    let flow = Flow::at(HERE, port, token);
    let mut nonces = Vec::new();
    for sequence in [0, 1, u64::MAX, 0] {
        flow.hello(sequence);
        let (length, header) = flow.answer();
        assert_eq!((length, header.kind), (HEADER_BYTES, HeaderKind::Challenge));
        nonces.push(header.sequence);
    }
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]), "the nonce belongs to the address: {nonces:?}");
    // Another port of the same address needs its own proof.
    let neighbour = Flow::at(HERE, port, token);
    neighbour.hello(nonces[0]);
    assert_eq!(neighbour.answer().1.kind, HeaderKind::Challenge);
    assert_eq!((flow.received(), neighbour.received()), (0, 0), "nothing else arrived");
}

#[test]
fn an_address_that_a_tcp_connection_has_shown_may_bring_flows() {
    let mut server = Agent::start();
    let port = serve(&mut server, &json!({}));
    let mut control = Control::asking(HERE, port, open(UDP), None);
    let token = control.token();
    let mut shows = leadline_sys::tcp::connect((HERE, port).into(), Some(ELSEWHERE), PATIENCE).unwrap();
    let mut preface = [0; HEADER_BYTES];
    Header { kind: HeaderKind::Address, token, flow: 0, sequence: 0, sent_ns: 0 }.write(&mut preface);
    shows.write_all(&preface).unwrap();
    assert_eq!(shows.read(&mut [0; 1]).unwrap(), 0, "the server has read it");
    let flow = Flow::at(ELSEWHERE, port, token);
    flow.hello(0);
    let (_, challenge) = flow.answer();
    assert_eq!(challenge.kind, HeaderKind::Challenge, "but not without the nonce");
    flow.hello(challenge.sequence);
    assert_eq!(flow.answer().1.kind, HeaderKind::HelloAck);
    assert_eq!(control.receive(), Some(FromServer::Ready { port: None }));
}

const KEY: &[u8] = b"a key that both know";
const KEY_BASE64: &str = "YSBrZXkgdGhhdCBib3RoIGtub3c=";
const OTHER_BASE64: &str = "YW5vdGhlciBrZXk=";

fn with_key(port: u16, key: &str) -> Value {
    let mut target = target("127.0.0.1", port);
    target["key"] = json!(key);
    target
}

#[test]
fn tests_with_the_key_are_served() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &json!({"key": KEY_BASE64}));
    let target = with_key(port, KEY_BASE64);
    let changes = json!({"duration_ms": 50_000});
    for (workload, flows) in [
        (tcp(&target, &changes), 1),
        (udp(&target, &changes), 1),
        (udp(&target, &json!({"duration_ms": 50_000, "direction": "both"})), 2),
        (rr(&target, &json!({"duration_ms": 50_000, "protocol": "udp"})), 1),
    ] {
        client.begin("load", &workload);
        client.all_moving(flows);
        client.send(&json!({"type": "stop", "trial": "t", "task": null}));
        let outcome = client.finished("load");
        assert!(outcome.errors.is_empty(), "{outcome:?}");
        assert!(outcome.flows.iter().all(|flow| flow.received_bytes > Some(0)), "{outcome:?}");
    }
}

#[test]
fn a_client_without_the_key_receives_only_the_refusal() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &json!({"key": KEY_BASE64}));
    // The key is checked before any limit: this request would be too long, too.
    let endless = Open { duration_ms: u64::MAX, ..open(TCP) };
    assert_eq!(Control::asking(HERE, port, endless, None).refusal(), "key_required");
    let mut guessing = Control::asking(HERE, port, open(TCP), Some(Hex32([1; 32])));
    assert!(matches!(guessing.receive(), Some(FromServer::Challenge { .. })));
    guessing.send(&FromClient::Prove { proof: Hex32([2; 32]) });
    assert_eq!(guessing.refusal(), "wrong_key");
    for (key, code) in [(None, "key_required"), (Some(OTHER_BASE64), "wrong_key")] {
        let target = key.map_or_else(|| target("127.0.0.1", port), |key| with_key(port, key));
        client.prepare("load", &tcp(&target, &json!({})));
        let failure = client.failure();
        assert_eq!(failure.code, code);
        assert!(!failure.message.contains('\n') && !failure.message.contains(OTHER_BASE64), "{}", failure.message);
    }
}

#[test]
fn a_replayed_session_is_refused() {
    let mut server = Agent::start();
    let port = serve(&mut server, &json!({"key": KEY_BASE64}));
    let credentials = Credentials { key: SharedKey::new(KEY).unwrap(), nonce: Hex32([1; 32]) };
    let mut honest = ClientSession::new(open(TCP), Some(credentials)).unwrap();
    let mut stream = TcpStream::connect((HERE, port)).unwrap();
    let mut recorded = Vec::new();
    let mut piece = [0; 4096];
    loop {
        stream.write_all(honest.output()).unwrap();
        recorded.extend_from_slice(honest.output());
        let has_proven = recorded.windows(5).any(|word| word == b"prove");
        honest.sent(usize::MAX);
        if has_proven {
            break;
        }
        let read = stream.read(&mut piece).unwrap();
        honest.receive(&piece[..read]);
        assert!(honest.next_event(0).unwrap().is_none());
    }
    let read = stream.read(&mut piece).unwrap();
    honest.receive(&piece[..read]);
    honest.next_event(0).unwrap();
    let mut replay = TcpStream::connect((HERE, port)).unwrap();
    replay.write_all(&recorded).unwrap();
    let mut answers = Vec::new();
    replay.read_to_end(&mut answers).unwrap();
    let answers = String::from_utf8_lossy(&answers).into_owned();
    assert!(
        answers.contains("challenge") && answers.contains("wrong_key") && !answers.contains("accepted"),
        "{answers}"
    );
}

#[test]
fn a_client_with_a_key_leaves_a_server_that_has_another_or_none() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &json!({}));
    client.prepare("load", &tcp(&with_key(port, KEY_BASE64), &json!({})));
    assert_eq!(client.failure().code, "no_key");
    client.prepare("load", &tcp(&with_key(port, "no base64!"), &json!({})));
    assert_eq!(client.failure().code, "bad_key");
}

#[test]
fn a_thousand_idle_sessions_of_one_peer_leave_another_one_served() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &limits(&json!({"sessions": 20, "idle_ms": 600_000})));
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let mut control = Control::asking(ELSEWHERE, port, open(TCP), None);
        match control.receive() {
            Some(FromServer::Accepted { token, .. }) => {
                // A session whose flow has arrived may be idle for minutes, however long the others take.
                held.push((stream_flow(ELSEWHERE, port, token), control));
            }
            Some(FromServer::Refused(refusal)) => {
                assert_eq!(refusal.code, "too_many_sessions");
                assert!(refusal.message.contains("127.0.0.77"), "{}", refusal.message);
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((held.len(), refused), (20, 980));
    // The same number of connections that send nothing displace only one another.
    let silent: Vec<TcpStream> = (0..1000)
        .map(|_| leadline_sys::tcp::connect((HERE, port).into(), Some(ELSEWHERE), PATIENCE).unwrap())
        .collect();
    let outcome = client.run(&rr(&target("127.0.0.1", port), &json!({"number": 50, "duration_ms": 50_000})));
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    drop(silent);
}

#[test]
fn an_idle_connection_is_closed_after_max_idle() {
    let mut server = Agent::start();
    let port = serve(&mut server, &limits(&json!({"idle_ms": 50})));
    let mut silent = TcpStream::connect((HERE, port)).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    // A client that does not run for that time before it asks for a session is idle, too.
    let mut idle = until("a session", || {
        let stream = TcpStream::connect((HERE, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut control = Control { stream, decoder: FrameDecoder::default() };
        let opening = FromClient::Open { open: Box::new(open(TCP)), nonce: None };
        control.stream.write_all(&[MAGIC, &encode_frame(&opening).unwrap()].concat()).ok()?;
        // Nothing is read here, which would fail on a closed connection.
        (control.stream.peek(&mut [0; 1]).ok()? > 0).then_some(control)
    });
    idle.token();
    assert_eq!(idle.refusal(), "idle");
}

#[test]
fn a_session_that_asks_for_more_than_the_rate_is_refused_in_one_line() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &limits(&json!({"rate_bps": 10_000_000, "flows": 2})));
    let target = target("127.0.0.1", port);
    let cases = [
        (tcp(&target, &json!({})), "too_fast"),
        (udp(&target, &json!({"rate_pps": 10_000.0})), "too_fast"),
        (tcp(&target, &json!({"rate_bps": 1_000_000, "flows": 3})), "too_many_flows"),
        (tcp(&target, &json!({"rate_bps": 1_000_000, "congestion": "no-such"})), "unknown_congestion"),
    ];
    for (workload, code) in cases {
        client.prepare("load", &workload);
        let failure = client.failure();
        assert_eq!(failure.code, code);
        assert!(!failure.message.contains('\n'), "{}", failure.message);
    }
    // Request-response states no rate: the session ends when the responses exceed the limit.
    client.begin("load", &rr(&target, &json!({"duration_ms": 50_000, "response_bytes": 1 << 20})));
    assert_eq!(client.failure().code, "too_fast");
    let outcome = client.run(&tcp(&target, &json!({"rate_bps": 1_000_000, "duration_ms": 200})));
    assert!(outcome.errors.is_empty(), "{outcome:?}");
}

#[test]
fn a_session_that_begins_in_the_past_is_refused_where_there_is_a_rate_to_catch_up_with() {
    let mut server = Agent::start();
    let port = serve(&mut server, &limits(&json!({"rate_bps": 1_000_000})));
    let paced = Open {
        duration_ms: 60_000,
        ..open(Work::Tcp { block_bytes: 1000, rate_bps: Some(1_000_000), options: StreamOptions::DEFAULT })
    };
    let mut control = Control::asking(HERE, port, paced, None);
    let token = control.token();
    let mut flow = TcpStream::connect((HERE, port)).unwrap();
    let mut preface = [0; HEADER_BYTES];
    Header { kind: HeaderKind::Stream, token, flow: 0, sequence: 0, sent_ns: 0 }.write(&mut preface);
    flow.write_all(&preface).unwrap();
    assert_eq!(control.receive(), Some(FromServer::Ready { port: None }));
    // The payload since then would be that of 58 s, all at once.
    let at_ns = leadline_sys::clock::monotonic_ns().saturating_sub(58_000_000_000);
    control.send(&FromClient::Begin { at_ns });
    assert_eq!(control.refusal(), "bad_start");
    assert_eq!(flow.read(&mut [0; 1]).unwrap(), 0, "nothing was sent");
}

#[test]
fn answers_keep_to_the_rate_with_rare_progress_reports() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let port = serve(&mut server, &limits(&json!({"rate_bps": 10_000_000})));
    let asked = json!({"duration_ms": 50_000, "response_bytes": 1 << 20, "interval_ms": 50_000});
    client.begin("load", &rr(&target("127.0.0.1", port), &asked));
    assert_eq!(client.failure().code, "too_fast");
}

#[test]
fn parts_of_long_answers_are_held_to_the_rate() {
    [false, true].into_iter().for_each(hold_parts_to_the_rate);
}

/// Reads a part of a long answer on each flow; `connect` gives each transaction a connection of its own.
fn hold_parts_to_the_rate(connect: bool) {
    const FLOWS: u32 = 8;
    let mut server = Agent::start();
    let port = serve(&mut server, &limits(&json!({"rate_bps": 100_000})));
    let work = Work::Rr {
        protocol: leadline_wire::Protocol::Tcp,
        request_bytes: 1,
        response_bytes: 16 << 20,
        connect,
        outstanding: 1,
    };
    let mut control = Control::asking(HERE, port, Open { flows: FLOWS, duration_ms: 50_000, ..open(work) }, None);
    let token = control.token();
    let connected = |port: u16, flow: u32| {
        let mut stream = TcpStream::connect((HERE, port)).unwrap();
        let mut preface = [0; HEADER_BYTES];
        Header { kind: HeaderKind::Stream, token, flow, sequence: 0, sent_ns: 0 }.write(&mut preface);
        stream.write_all(&preface).unwrap();
        stream
    };
    // With a connection each, the only flow on the server's port marks the end of the clock queries.
    let marks = if connect { 1 } else { FLOWS };
    let mut flows: Vec<TcpStream> = (0..marks).map(|flow| connected(port, flow)).collect();
    let answer = control.receive();
    let Some(FromServer::Ready { port: own }) = answer else { panic!("{answer:?} is not ready") };
    if connect {
        flows.extend((0..FLOWS).map(|flow| connected(own.unwrap(), flow)));
    }
    control.send(&FromClient::Begin { at_ns: leadline_sys::clock::monotonic_ns() });
    let mut part = vec![0; 100_000];
    for flow in flows.iter_mut().rev().take(FLOWS as usize) {
        // It may be refused before its last flow has had a part; all flows are closed then.
        if flow.write_all(&[0]).and_then(|()| flow.read_exact(&mut part)).is_err() {
            break;
        }
    }
    let answer = std::iter::from_fn(|| control.receive()).find(|answer| !matches!(answer, FromServer::Progress { .. }));
    assert!(
        matches!(&answer, Some(FromServer::Refused(refusal)) if refusal.code == "too_fast"),
        "{connect}: {answer:?}"
    );
}
