//! Hostile clients at the session port: whatever they send or leave out, the server does not crash, releases their
//! resources, and continues to serve others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::support::{rr, target, until, Agent, PATIENCE};
use leadline_transport::{
    encode_frame, FrameDecoder, FromClient, FromServer, Header, HeaderKind, Hex32, Open, Work, HEADER_BYTES, MAGIC,
};
use leadline_wire::{Direction, Protocol, StreamOptions};
use serde_json::json;

const TCP: Work = Work::Tcp { block_bytes: 4096, rate_bps: None, options: StreamOptions::DEFAULT };
const UDP: Work = Work::Udp { datagram_bytes: 100, rate_pps: Some(100.0), number: None };
const RR: Work =
    Work::Rr { protocol: Protocol::Tcp, request_bytes: 1, response_bytes: 1 << 20, connect: false, outstanding: 1 };

fn open(work: Work, flows: u32) -> Open {
    Open {
        work,
        flows,
        threads: 8,
        direction: Direction::Up,
        duration_ms: 50_000,
        congestion: None,
        interval_ms: 10,
        takes_turns: false,
        datagrams: leadline_transport::DatagramOptions::default(),
    }
}

/// A control connection of a hostile client.
struct Control {
    stream: TcpStream,
    decoder: FrameDecoder,
    server: SocketAddr,
    token: u64,
}

impl Control {
    fn open(port: u16, open: Open) -> Self {
        let mut control = Self::asking(port, open);
        let FromServer::Accepted { token, proof: None, .. } = control.receive() else { panic!("not accepted") };
        control.token = token;
        control
    }

    fn asking(port: u16, open: Open) -> Self {
        let stream = connect(port);
        let server = stream.peer_addr().unwrap();
        let mut control = Self { stream, decoder: FrameDecoder::default(), server, token: 0 };
        control.stream.write_all(MAGIC).unwrap();
        control.send(&FromClient::Open { open: Box::new(open), nonce: None });
        control
    }

    fn send(&mut self, message: &FromClient) {
        self.stream.write_all(&encode_frame(message).unwrap()).unwrap();
    }

    fn receive(&mut self) -> FromServer {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = self.decoder.next_message().unwrap() {
                return message;
            }
            let read = self.stream.read(&mut piece).unwrap();
            assert!(read > 0, "closed");
            self.decoder.feed(&piece[..read]);
        }
    }

    fn flow(&self, flow: u32) -> TcpStream {
        let mut stream = TcpStream::connect(self.server).unwrap();
        stream.write_all(&preface(HeaderKind::Stream, self.token, flow)).unwrap();
        stream
    }

    /// Introduces a UDP flow until the server answers, as every client has to: a hello is lost if it arrives while
    /// the server has bound another flow's socket to the same port and not connected it yet.
    fn hello(&self, flow: u32) -> UdpSocket {
        self.hellos(flow).0
    }

    /// Like `hello`; also returns the number of attempts.
    fn hellos(&self, flow: u32) -> (UdpSocket, u64) {
        let (mut hellos, mut nonce) = (0, 0);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.server).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        until("an answer to the hello", || {
            hellos += 1;
            let mut hello = [0; HEADER_BYTES];
            let (kind, token) = (HeaderKind::Hello, self.token);
            Header { kind, token, flow, sequence: nonce, sent_ns: 0 }.write(&mut hello);
            socket.send(&hello).unwrap();
            let mut answer = [0; HEADER_BYTES];
            let read = socket.recv(&mut answer).ok()?;
            let header = Header::parse(&answer[..read]).ok()?;
            if header.kind == HeaderKind::Challenge {
                nonce = header.sequence;
            }
            (header.kind == HeaderKind::HelloAck).then_some(())
        });
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        (socket, hellos)
    }

    fn begin_in(&mut self, ns: u64) {
        let at_ns = leadline_sys::clock::monotonic_ns() + ns;
        self.send(&FromClient::Begin { at_ns });
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn preface(kind: HeaderKind, token: u64, flow: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    Header { kind, token, flow, sequence: 0, sent_ns: 0 }.write(&mut bytes);
    bytes
}

/// Waits until the server closes the connection; its last messages are discarded.
fn is_closed(stream: &mut TcpStream) {
    let mut piece = [0; 4096];
    while !matches!(stream.read(&mut piece), Ok(0) | Err(_)) {}
}

/// A server with its resources when it serves none. It serves once, so that what the first session leaves is seen.
struct Victim {
    server: Agent,
    client: Agent,
    port: u16,
    weight: (usize, usize),
}

impl Victim {
    fn new() -> Self {
        let (mut server, client) = (Agent::start(), Agent::start());
        let port = server.serve();
        // A thread that has not run yet has not opened its files.
        server.until_all_threads("wait", 'S');
        let weight = server.weight();
        let mut victim = Self { server, client, port, weight };
        victim.serves_others();
        victim
    }

    fn serves_others(&mut self) {
        let changes = json!({"number": 50, "duration_ms": 50_000});
        let outcome = self.client.run(&rr(&target("127.0.0.1", self.port), &changes));
        assert!(outcome.errors.is_empty(), "{outcome:?}");
    }

    /// Asserts that the server serves others meanwhile, and releases all resources once the hostile clients are gone.
    fn recovers(&mut self) {
        self.serves_others();
        let (server, weight) = (&self.server, self.weight);
        until("threads and files as before", || (server.weight() <= weight).then_some(()));
        self.server.clock_works();
    }
}

#[test]
fn garbage_on_the_session_port_is_dropped() {
    let mut victim = Victim::new();
    let port = victim.port;
    let giant = [MAGIC, &u32::MAX.to_be_bytes(), b"{"].concat();
    let too_long = [MAGIC, &5000u32.to_be_bytes(), &[b' '; 5000]].concat();
    let no_request = [MAGIC, &encode_frame(&FromClient::Begin { at_ns: 0 }).unwrap()].concat();
    let no_message = [MAGIC, &[0, 0, 0, 2], b"{}"].concat();
    let strangers: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n",
        &[0; 100],
        &[0xff; 100],
        &giant,
        &too_long,
        &no_request,
        &no_message,
        &preface(HeaderKind::Stream, 12345, 0),
    ];
    for bytes in strangers {
        let mut stream = connect(port);
        // The server may close before everything is written.
        let _ = stream.write_all(bytes);
        is_closed(&mut stream);
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..20_000u64 {
        let packet = preface(HeaderKind::Hello, number, number as u32);
        let _ = socket.send_to(&packet[..number as usize % (HEADER_BYTES + 1)], ("127.0.0.1", port));
        let _ = socket.send_to(&packet, ("127.0.0.1", port));
    }
    victim.recovers();
}

#[test]
fn half_open_and_slow_connections_cost_no_thread_and_end() {
    let mut victim = Victim::new();
    let before = victim.server.weight().0;
    let mut silent: Vec<TcpStream> = (0..150).map(|_| connect(victim.port)).collect();
    let mut slow = connect(victim.port);
    slow.write_all(&MAGIC[..3]).unwrap();
    let mut slow_request = connect(victim.port);
    slow_request.write_all(MAGIC).unwrap();
    slow_request.write_all(&[0, 0, 1]).unwrap();
    // Connections are served in the order of arrival: when this one is, all earlier ones have been accepted.
    victim.serves_others();
    until("the session's end", || (victim.server.weight().0 <= before).then_some(()));
    slow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    // A byte now and then does not extend the deadline.
    until("the server's time limit", || {
        let alive = slow.write_all(&MAGIC[3..4]).is_ok();
        let closed = matches!(slow.read(&mut [0; 1]), Ok(0));
        (closed || !alive).then_some(())
    });
    is_closed(&mut slow_request);
    silent.iter_mut().for_each(is_closed);
    victim.recovers();
}

#[test]
fn sessions_out_of_order_end() {
    let mut victim = Victim::new();
    let port = victim.port;
    // A flow with a wrong introduction or token changes nothing; a message out of turn ends the session.
    let out_of_turn = [
        FromClient::End { sent_units: vec![u64::MAX; 3] },
        FromClient::Stop {},
        FromClient::Begin { at_ns: 0 },
        FromClient::Open { open: Box::new(open(TCP, 1)), nonce: None },
        FromClient::Prove { proof: Hex32([0; 32]) },
    ];
    for message in out_of_turn {
        let mut control = Control::open(port, open(TCP, 2));
        let _beyond = control.flow(77);
        let _largest = control.flow(u32::MAX);
        let (_twice, _again) = (control.flow(0), control.flow(0));
        let _wrong_kind = control.hello(1);
        control.send(&message);
        is_closed(&mut control.stream);
    }
    // A start that is too far in the future.
    let mut control = Control::open(port, open(TCP, 1));
    let _flow = control.flow(0);
    assert_eq!(control.receive(), FromServer::Ready { port: None });
    control.send(&FromClient::Begin { at_ns: u64::MAX });
    is_closed(&mut control.stream);
    // Longer than a frame may be, after a valid beginning.
    let mut control = Control::open(port, open(TCP, 1));
    control.stream.write_all(&(1u32 << 20).to_be_bytes()).unwrap();
    is_closed(&mut control.stream);
    victim.recovers();
}

#[test]
fn clients_that_go_away_at_any_point_leave_nothing() {
    let mut victim = Victim::new();
    let port = victim.port;
    for work in [TCP, UDP, RR] {
        for direction in [Direction::Up, Direction::Down, Direction::Both] {
            let ask = || Open { direction, ..open(work, 3) };
            drop(Control::asking(port, ask()));
            drop(Control::open(port, ask()));
            let mut control = Control::open(port, ask());
            let ways = if direction == Direction::Both { 6 } else { 3 };
            let (mut streams, mut sockets) = (Vec::new(), Vec::new());
            for flow in 0..ways {
                if work == UDP {
                    sockets.push(control.hello(flow));
                } else {
                    streams.push(control.flow(flow));
                }
            }
            assert_eq!(control.receive(), FromServer::Ready { port: None });
            // Before the start, and in the middle of the load: the client leaves flows open, or closes without an
            // end.
            control.begin_in(if direction == Direction::Up { 100_000_000_000 } else { 0 });
            if direction != Direction::Up {
                while !matches!(control.receive(), FromServer::Progress { .. }) {}
            }
            if work == RR {
                // Requests with unread responses: the server must not wait for the client to read.
                streams.iter_mut().for_each(|stream| stream.write_all(&[0; 1000]).unwrap());
            }
        }
    }
    victim.recovers();
}

#[test]
fn a_flooding_client_delays_only_itself() {
    let mut victim = Victim::new();
    let mut control = Control::open(victim.port, open(TCP, 1));
    control.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let frame = encode_frame(&FromClient::Clock { id: 1 }).unwrap().repeat(1000);
    // The responses fill the way back; then the server reads no more.
    let mut written = 0u64;
    while control.stream.write_all(&frame).is_ok() {
        written += frame.len() as u64;
        assert!(written < 200 << 20, "it reads without a limit");
    }
    victim.serves_others();
    drop(control);
    victim.recovers();
}

#[test]
fn server_side_errors_are_in_its_report() {
    let mut victim = Victim::new();
    let mut control = Control::open(victim.port, Open { direction: Direction::Down, ..open(TCP, 1) });
    let flow = control.flow(0);
    assert_eq!(control.receive(), FromServer::Ready { port: None });
    control.begin_in(0);
    assert!(flow.peek(&mut [0; 1]).unwrap() > 0);
    // Closed with unread payload: this is a reset, long before the flow's time is over.
    drop(flow);
    control.send(&FromClient::End { sent_units: Vec::new() });
    let errors = until("the report", || match control.receive() {
        FromServer::Report { errors, .. } => Some(errors),
        _ => None,
    });
    assert_eq!(errors.values().sum::<u64>(), 1, "{errors:?}");
    drop(control);
    victim.recovers();
}

#[test]
fn hostile_numbers_in_datagrams_are_only_counted() {
    let mut victim = Victim::new();
    let mut control = Control::open(victim.port, open(UDP, 1));
    let (socket, hellos) = control.hellos(0);
    assert_eq!(control.receive(), FromServer::Ready { port: None });
    control.begin_in(0);
    let mut packet = [0; 101];
    let mut send = |token, flow, sequence, sent_ns, length: usize| {
        Header { kind: HeaderKind::Data, token, flow, sequence, sent_ns }.write(&mut packet);
        socket.send(&packet[..length]).unwrap();
    };
    let token = control.token;
    for sequence in [0, u64::MAX, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 18) - 1, 7] {
        send(token, 0, sequence, u64::MAX - sequence, 100);
    }
    // Wrong datagrams: another token, another flow, another length.
    send(token ^ 1, 0, 1, 0, 100);
    send(token, 1, 2, 0, 100);
    send(token, 0, 3, 0, 101);
    send(token, 0, 4, 0, 40);
    until("all datagrams", || match control.receive() {
        FromServer::Progress { flows, .. } => (flows[0].received_units >= Some(2)).then_some(()),
        _ => None,
    });
    control.send(&FromClient::Stop {});
    control.send(&FromClient::End { sent_units: vec![u64::MAX - 1, 5, 6] });
    let report = until("the report", || match control.receive() {
        FromServer::Report { flows, .. } => Some(flows),
        _ => None,
    });
    assert_eq!(report.len(), 1);
    assert_eq!((report[0].received_units, report[0].received_bytes), (Some(2), 200));
    assert_eq!((report[0].stale, report[0].duplicates), (Some(3), Some(2)));
    // A hello that was repeated because the response was slow may arrive when its flow is running.
    assert!((4..4 + hellos).contains(&report[0].strays.unwrap()), "{report:?}");
    drop(control);
    victim.recovers();
}

#[test]
fn memory_for_sessions_is_limited_together() {
    let mut victim = Victim::new();
    let greedy = || Open {
        work: Work::Rr {
            protocol: Protocol::Tcp,
            request_bytes: 16 << 20,
            response_bytes: 16 << 20,
            connect: false,
            outstanding: 1,
        },
        ..open(TCP, 64)
    };
    let mut held = Vec::new();
    let refused = loop {
        let mut control = Control::asking(victim.port, greedy());
        match control.receive() {
            FromServer::Accepted { .. } => held.push(control),
            FromServer::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
        assert!(held.len() < 200);
    };
    assert_eq!(refused.code, "too_much_memory");
    victim.serves_others();
    drop(held);
    victim.recovers();
}
