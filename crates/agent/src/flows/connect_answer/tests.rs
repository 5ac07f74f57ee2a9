//! Tests of the port of transactions with a connection each.

use std::time::Duration;

use super::*;

const WORK: AnswerWork = AnswerWork { token: 9, request_bytes: 10, response_bytes: 20, outstanding: 1 };
const UDP_WORK: AnswerWork = AnswerWork { request_bytes: HEADER_BYTES, response_bytes: 60, ..WORK };
const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Runs a server while `client` talks to its port; returns the server's report.
fn served(protocol: Protocol, client: impl FnOnce(SocketAddr)) -> WorkerReport {
    let port = ConnectPort::open(LOCAL, protocol, LOCAL).unwrap();
    let at = SocketAddr::new(LOCAL, port.number().unwrap());
    let signal = Arc::new(ControlSignal::default());
    let stop = Arc::clone(&signal);
    let now = monotonic_ns();
    let span = Span { at_ns: now, end_ns: now + 60_000_000_000 };
    let work = if protocol == Protocol::Udp { UDP_WORK } else { WORK };
    let server = std::thread::spawn(move || drive(port, work, vec![Arc::default()], span, &signal).unwrap());
    client(at);
    stop.stop();
    server.join().unwrap()
}

fn request(kind: HeaderKind, token: u64, flow: u32, bytes: usize) -> Vec<u8> {
    let mut request = vec![0; HEADER_BYTES + bytes];
    Header { kind, token, flow, sequence: 5, sent_ns: 0 }.write(&mut request);
    request
}

fn connected(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Sends these pieces over a connection of their own; returns the whole answer, empty if the server closed it.
fn exchange(at: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = connected(at);
    let mut answer = Vec::new();
    for piece in pieces {
        // The server may have closed the connection already.
        let _ = stream.write_all(piece);
    }
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn connection_is_answered_once_and_closed() {
    let report = served(Protocol::Tcp, |at| {
        let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
        assert_eq!(exchange(at, &[&whole]).len(), WORK.response_bytes);
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(exchange(at, &bytes).len(), WORK.response_bytes);
    });
    let row = &report.flows[0];
    assert_eq!((row.received_units, row.sent_units), (Some(2), Some(2)));
    assert_eq!((row.received_bytes, row.sent_bytes), (20, 40));
    assert!(report.errors.is_empty());
}

#[test]
fn request_may_arrive_in_two_pieces_of_any_length() {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
    for cut in 1..whole.len() {
        let mut client = connected(listener.local_addr().unwrap());
        // It blocks, so that each call reads one piece.
        let (stream, _) = listener.accept().unwrap();
        let mut connection = Connection::new(stream, 0);
        let (mut block, response) = (vec![0; whole.len() + 1], [0; 20]);
        client.write_all(&whole[..cut]).unwrap();
        assert_eq!(connection.serve(&mut block, &response, WORK, 1).unwrap(), Turn::default(), "cut at {cut}");
        assert_eq!(connection.received, cut);
        client.write_all(&whole[cut..]).unwrap();
        let turn = Turn { has_request: true, written_bytes: WORK.response_bytes, is_answered: true };
        assert_eq!(connection.serve(&mut block, &response, WORK, 1).unwrap(), turn, "cut at {cut}");
        assert_eq!(connection.flow, Some(0));
    }
}

#[test]
fn strangers_and_liars_get_no_answer_and_delay_no_client() {
    let report = served(Protocol::Tcp, |at| {
        // More silent connections than there is room for: the oldest make room.
        let silent: Vec<TcpStream> = (0..200).map(|_| connected(at)).collect();
        for bad in [
            request(HeaderKind::Stream, 8, 0, WORK.request_bytes),
            request(HeaderKind::Stream, WORK.token, 1, WORK.request_bytes),
            request(HeaderKind::Request, WORK.token, 0, WORK.request_bytes),
            request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes + 1),
            vec![b'x'; 4096],
        ] {
            assert_eq!(exchange(at, &[&bad]), b"", "{bad:?}");
        }
        drop(connected(at));
        let whole = request(HeaderKind::Stream, WORK.token, 0, WORK.request_bytes);
        assert_eq!(exchange(at, &[&whole]).len(), WORK.response_bytes);
        drop(silent);
    });
    assert_eq!(report.flows[0].received_units, Some(1));
    // One liar had the token, and one who also named a flow sent too much.
    assert_eq!(report.errors.values().sum::<u64>(), 1, "{:?}", report.errors);
}

#[test]
fn a_response_goes_on_while_its_client_reads_it_and_ends_when_it_does_not() {
    let work = AnswerWork { response_bytes: 16 << 20, ..WORK };
    let counters: Arc<FlowCounters> = Arc::default();
    let mut answering = Answering::new(work, vec![Arc::clone(&counters)]);
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let mut client = connected(listener.local_addr().unwrap());
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    client.write_all(&request(HeaderKind::Stream, work.token, 0, work.request_bytes)).unwrap();
    let index = answering.idle.pop().unwrap();
    answering.connections[index] = Some(Connection::new(stream, 1));
    answering.waiting.push_back((index, 1));
    let mut part = vec![0; 1 << 20];
    let mut now = 1;
    while counters.sent_bytes() < 8 << 20 {
        // Each part comes almost too late, and all together take longer than one may.
        now += PATIENCE_NS - 1;
        answering.drop_silent(now);
        let before = counters.sent_bytes();
        while counters.sent_bytes() == before {
            assert!(answering.serve_once(index, now), "{:?}", answering.errors);
            if counters.sent_bytes() == before {
                assert!(client.read(&mut part).unwrap() > 0);
            }
        }
        assert!(counters.sent_bytes() - before <= BYTES_PER_TURN as u64);
    }
    assert_eq!((counters.sent_units(), counters.received_units()), (0, 1), "the response is not complete");
    answering.drop_silent(now + PATIENCE_NS - 1);
    assert!(answering.connections[index].is_some() && answering.waiting.len() <= 2 * answering.connections.len());
    answering.drop_silent(now + PATIENCE_NS);
    assert!(answering.connections[index].is_none());
    assert_eq!(answering.errors, BTreeMap::from([("timeout".to_owned(), 1)]));
}

#[test]
fn a_port_without_descriptors_counts_one_error_until_it_accepts_again() {
    let mut answering = Answering::new(WORK, vec![Arc::default()]);
    let error = io::Error::from_raw_os_error(libc::EMFILE);
    let began = std::time::Instant::now();
    (0..3).for_each(|_| answering.starve(&error));
    assert!(began.elapsed() >= 3 * STARVED_REST, "it rests");
    assert_eq!(answering.errors.values().sum::<u64>(), 1);
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let clients: Vec<TcpStream> = (0..2).map(|_| connected(listener.local_addr().unwrap())).collect();
    answering.accept(&listener, &Poll::new(PER_TURN).unwrap()).unwrap();
    assert_eq!(answering.waiting.len(), 2);
    answering.starve(&error);
    assert_eq!((answering.waiting.len(), answering.errors.values().sum::<u64>()), (1, 2));
    drop(clients);
}

#[test]
fn only_whole_requests_of_the_session_get_datagrams() {
    let report = served(Protocol::Udp, |at| {
        let socket = UdpSocket::bind((LOCAL, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        for bad in [
            request(HeaderKind::Request, 8, 0, 0),
            request(HeaderKind::Request, WORK.token, 1, 0),
            request(HeaderKind::Data, WORK.token, 0, 0),
            request(HeaderKind::Request, WORK.token, 0, 3),
            vec![0; 4],
        ] {
            socket.send_to(&bad, at).unwrap();
        }
        let mut good = request(HeaderKind::Request, WORK.token, 0, 0);
        good[39] = 77;
        good.truncate(UDP_WORK.request_bytes);
        socket.send_to(&good, at).unwrap();
        let mut answer = [0; 100];
        let read = socket.recv(&mut answer).unwrap();
        let header = Header::parse(&answer[..read]).unwrap();
        assert_eq!((read, header.kind, header.sequence, header.sent_ns), (60, HeaderKind::Response, 5, 77));
    });
    assert_eq!(report.flows[0].received_units, Some(1));
}
