//! The responder's loops against real sockets on loopback, over io_uring and over epoll. The tests compare counts and
//! orders; delays and stalls can only be too long, which a clock shows without chance.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use leadline_http::{Behaviour, Response, ResponseParser, Stalls};
use leadline_sys::{clock::monotonic_ns, tcp};
use leadline_testkit::until;
use leadline_tls::{ClientTls, ServerTls, TlsClient, TlsOptions, TlsVersion};

use super::limits::tests::occupancy;
use super::limits::{Limits, LIMITS};
use super::{listen_within, Engine, Service};
use crate::control_signal::ControlSignal;

/// Makes a test of each function, for each engine.
macro_rules! on_both_engines {
    ($($test:ident),+ $(,)?) => {
        mod io_uring {
            $(#[test] fn $test() { super::$test(super::Engine::Best); })+
        }
        mod epoll {
            $(#[test] fn $test() { super::$test(super::Engine::Epoll); })+
        }
    };
}

on_both_engines!(
    connections_beyond_the_limit_are_closed_and_there_is_room_again_after,
    a_full_server_closes_the_longest_idle_connection_of_the_peer_that_has_most,
    bodies_to_a_peer_keep_to_its_rate_over_all_of_its_connections,
    a_silent_connection_is_closed,
    pipelined_answers_come_in_order_and_not_before_their_time,
    long_bodies_arrive_whole_over_slow_readers,
    a_delayed_answer_delays_no_other_connection,
    connections_close_after_their_number_of_answers,
    a_peer_that_does_not_read_is_paused_and_resumed,
    a_peer_that_ends_its_side_still_gets_its_answer,
    many_connections_are_spread_over_threads_and_all_counted,
    nothing_moves_during_a_stall,
    tls_answers_and_counts_its_handshakes,
    tls_garbage_is_counted_and_closed,
    the_largest_holder_of_memory_is_closed_and_others_are_served,
);

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const MS: u64 = 1_000_000;

struct Server {
    address: SocketAddr,
    signal: Arc<ControlSignal>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal.stop();
    }
}

fn plain() -> Service {
    Service { threads: Some(2), ..Service::on(Vec::new()) }
}

fn serve(engine: Engine, limits: Limits, service: Service) -> Server {
    let occupancy = occupancy(limits.connections, limits.connections, None);
    serve_with(engine, limits, Service { occupancy, ..service })
}

/// Starts a server whose occupancy is the service's own.
fn serve_with(engine: Engine, limits: Limits, mut service: Service) -> Server {
    let listener = tcp::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let signal = Arc::new(ControlSignal::default());
    if service.tls.is_some() { &mut service.secure } else { &mut service.plain }.push(listener);
    listen_within(limits, engine, service, &signal).unwrap();
    Server { address, signal }
}

impl Server {
    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Returns one of the server's counters.
    fn counted(&self, name: &str) -> u64 {
        let (stats, name) = (self.stats(), format!("\"{name}\":"));
        let value = stats.split(&name).nth(1).unwrap_or_else(|| panic!("{name} in {stats}"));
        value.split(|end: char| !end.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    fn stats(&self) -> String {
        let mut socket = self.connect();
        socket.write_all(b"GET /_leadline/stats HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Reads this many responses, and checks that nothing else arrives with them.
fn responses(socket: &mut impl Read, wanted: usize) -> Vec<Response> {
    let (mut parser, mut found, mut buffer) = (ResponseParser::new(false), Vec::new(), vec![0; 9000]);
    while found.len() < wanted {
        let read = socket.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {} of {wanted}", found.len());
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let fed = parser.feed(rest).unwrap();
            found.extend(fed.response);
            rest = &rest[fed.consumed..];
        }
    }
    assert_eq!(found.len(), wanted);
    found
}

/// Whether a request on this connection is answered.
fn is_answered(mut socket: &TcpStream) -> bool {
    socket.write_all(GET).is_ok() && matches!(socket.read(&mut [0; 4096]), Ok(read) if read > 0)
}

fn connections_beyond_the_limit_are_closed_and_there_is_room_again_after(engine: Engine) {
    let server = serve(engine, Limits { connections: 2, ..LIMITS }, plain());
    let (first, second) = (server.connect(), server.connect());
    assert!(is_answered(&first) && is_answered(&second));
    assert!(!is_answered(&server.connect()));
    assert!(is_answered(&first), "open connections stay open");
    drop(first);
    while !is_answered(&server.connect()) {}
}

fn a_full_server_closes_the_longest_idle_connection_of_the_peer_that_has_most(engine: Engine) {
    // On one thread, which knows all connections.
    let service = Service { occupancy: occupancy(5, 4, None), threads: Some(1), ..plain() };
    let server = serve_with(engine, LIMITS, service);
    let connect = |last| {
        let from = Ipv4Addr::new(127, 0, 0, last);
        tcp::connect(server.address, Some(from.into()), Duration::from_secs(60)).unwrap()
    };
    let greedy: Vec<TcpStream> = (0..4).map(|_| connect(2)).collect();
    assert!(greedy.iter().all(is_answered));
    assert!(!is_answered(&connect(2)), "a share is kept for others");
    let modest = connect(3);
    assert!(is_answered(&modest) && greedy[1..].iter().all(is_answered), "the first one is idle longest now");
    let third = connect(4);
    assert!(is_answered(&third));
    assert_eq!((&greedy[0]).read(&mut [0; 1]).unwrap_or(0), 0, "it was closed");
    assert!(greedy[1..].iter().all(is_answered) && is_answered(&modest));
    drop((modest, third));
    until("the counter", || (server.counted("displaced") == 1).then_some(()));
}

/// A machine that is late can only make it slower.
fn bodies_to_a_peer_keep_to_its_rate_over_all_of_its_connections(engine: Engine) {
    const RATE_BPS: u64 = 20_000_000;
    const BYTES: u64 = 600_000;
    let occupancy = occupancy(100, 100, Some(RATE_BPS));
    let server = serve_with(engine, LIMITS, Service { occupancy, ..plain() });
    let began_ns = monotonic_ns();
    let (mut one, mut other) = (server.connect(), server.connect());
    let targets = [format!("/?size={BYTES}"), format!("/?size={BYTES}&chunked=1"), "/?size=10".to_owned()];
    for socket in [&mut one, &mut other] {
        socket.write_all(&targets.each_ref().map(|target| get(target)).concat()).unwrap();
    }
    for socket in [&mut one, &mut other] {
        let sizes: Vec<u64> = responses(socket, 3).iter().map(|response| response.body_bytes).collect();
        assert_eq!(sizes, [BYTES, BYTES, 10]);
    }
    let least_ns = 4 * BYTES * 8 * 1_000 / (RATE_BPS / 1_000_000) - 100 * MS;
    let took_ns = monotonic_ns() - began_ns;
    assert!(took_ns >= least_ns, "{took_ns} ns, at least {least_ns}");
}

fn a_silent_connection_is_closed(engine: Engine) {
    let server = serve(engine, Limits { idle_ns: 10 * MS, ..LIMITS }, plain());
    let mut silent = server.connect();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "it was closed, and not reset");
    let mut half = server.connect();
    half.write_all(&GET[..9]).unwrap();
    assert!(half.read(&mut [0; 16]).map_or(true, |read| read == 0), "half a request does not keep it open");
    let patient = serve(engine, Limits { idle_ns: 500 * MS, ..LIMITS }, plain());
    // If this thread does not run before it sends its request, it is silent itself.
    until("waiting for a response that is not due is no silence", || {
        let mut owed = patient.connect();
        owed.write_all(&get("/?delay=2s")).ok()?;
        let mut first = [0; 12];
        owed.read_exact(&mut first).ok()?;
        assert_eq!(&first, b"HTTP/1.1 200");
        Some(())
    });
}

fn pipelined_answers_come_in_order_and_not_before_their_time(engine: Engine) {
    let server = serve(engine, LIMITS, plain());
    let mut socket = server.connect();
    let before_ns = monotonic_ns();
    socket
        .write_all(&[get("/?status=201&delay=30ms"), get("/?status=202"), get("/?status=203&delay=5ms")].concat())
        .unwrap();
    let statuses: Vec<u16> = responses(&mut socket, 3).iter().map(|response| response.status).collect();
    assert_eq!(statuses, [201, 202, 203]);
    assert!(monotonic_ns() - before_ns >= 30 * MS);
    assert_eq!((server.counted("delayed"), server.counted("requests")), (2, 3));
}

fn long_bodies_arrive_whole_over_slow_readers(engine: Engine) {
    let server = serve(engine, LIMITS, plain());
    let mut socket = server.connect();
    let targets =
        ["/?size=20000000", "/?size=10000000&chunked=1", "/?size=5000", "/?size=4096&chunked=1", "/?size=70000"];
    socket.write_all(&targets.map(get).concat()).unwrap();
    let sizes: Vec<u64> = responses(&mut socket, targets.len()).iter().map(|response| response.body_bytes).collect();
    assert_eq!(sizes, [20_000_000, 10_000_000, 5_000, 4_096, 70_000]);
    assert_eq!(server.counted("status_2xx"), 5);
    assert!(server.counted("bytes_sent") > 30_079_096);
}

fn a_delayed_answer_delays_no_other_connection(engine: Engine) {
    let server = serve(engine, LIMITS, Service { threads: Some(1), ..plain() });
    let (mut slow, quick) = (server.connect(), server.connect());
    slow.write_all(&get("/?delay=1000s")).unwrap();
    for _ in 0..100 {
        assert!(is_answered(&quick));
    }
    slow.shutdown(Shutdown::Both).unwrap();
    assert_eq!(server.counted("status_2xx"), 100);
}

fn connections_close_after_their_number_of_answers(engine: Engine) {
    let behaviour = Behaviour { close_after: Some(3), ..Behaviour::default() };
    let server = serve(engine, LIMITS, Service { behaviour, ..plain() });
    let mut socket = server.connect();
    socket.write_all(&GET.repeat(5)).unwrap();
    let keep_alive: Vec<bool> = responses(&mut socket, 3).iter().map(|response| response.keep_alive).collect();
    assert_eq!(keep_alive, [true, true, false]);
    assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0, "closed in good order, though more had been sent");
    assert_eq!(server.counted("requests"), 3);
}

fn a_peer_that_does_not_read_is_paused_and_resumed(engine: Engine) {
    let server = serve(engine, LIMITS, plain());
    let mut socket = server.connect();
    let one = get("/?size=4096");
    let many = one.repeat(1000);
    let mut sent = 0;
    socket.set_nonblocking(true).unwrap();
    // Until both sides' buffers are full, and stay full during other work.
    let mut refused = 0;
    while refused < 50 {
        match socket.write(&many[sent % one.len()..]) {
            Ok(bytes) => (sent, refused) = (sent + bytes, 0),
            Err(_) => {
                refused += 1;
                assert!(is_answered(&server.connect()));
            }
        }
    }
    socket.set_nonblocking(false).unwrap();
    let missing = (one.len() - sent % one.len()) % one.len();
    let rest = one[one.len() - missing..].to_vec();
    let requests = (sent + missing) / one.len();
    let mut writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&rest).unwrap());
        assert!(responses(&mut socket, requests).iter().all(|response| response.body_bytes == 4096));
    });
}

fn a_peer_that_ends_its_side_still_gets_its_answer(engine: Engine) {
    let server = serve(engine, LIMITS, plain());
    let mut socket = server.connect();
    socket.write_all(&get("/?delay=5ms")).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("by the mark\n"), "{text}");
}

fn many_connections_are_spread_over_threads_and_all_counted(engine: Engine) {
    let server = serve(engine, LIMITS, Service { threads: Some(3), ..plain() });
    let sockets: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for _ in 0..10 {
        assert!(sockets.iter().all(is_answered));
    }
    let stats = server.stats();
    for field in ["\"requests\":1000,", "\"threads\":3,", "\"by_status\":{\"200\":1000}"] {
        assert!(stats.contains(field), "{field} in {stats}");
    }
    assert!(stats.contains(if engine == Engine::Best { "\"engine\":\"" } else { "\"engine\":\"epoll: " }));
}

/// Responses may be late, but none is made inside a stall: the server's own clock shows when each was made.
fn nothing_moves_during_a_stall(engine: Engine) {
    let (every_ns, length_ns) = (50 * MS, 20 * MS);
    let server = serve(engine, LIMITS, Service { stalls: Stalls::new(every_ns, length_ns), ..plain() });
    let mut socket = server.connect();
    let mut last = 0;
    while last < 3 * every_ns {
        socket.write_all(&get("/_leadline/stats")).unwrap();
        let mut buffer = [0; 4096];
        let read = socket.read(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let number = |name: &str| -> u64 {
            let value = text.split(&format!("\"{name}\":")).nth(1).unwrap();
            value.split(|end: char| !end.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        last = number("now_ns") - number("started_ns");
        assert_eq!(number("stalls"), last / every_ns);
        assert!(last < every_ns || last % every_ns >= length_ns, "answered {} ns into a stall", last % every_ns);
    }
}

fn the_largest_holder_of_memory_is_closed_and_others_are_served(engine: Engine) {
    const HEAD_BYTES: usize = 40 << 10;
    const MEMORY_BYTES: usize = 1 << 20;
    let server = serve(engine, Limits { memory_bytes: MEMORY_BYTES, ..LIMITS }, plain());
    // A request that has not ended, and is not too long yet.
    let head = [b"GET / HTTP/1.1\r\nX: ", &[b'x'; HEAD_BYTES][..]].concat();
    let hostile: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = server.connect();
            // It may be closed before all is written.
            let _ = socket.write_all(&head);
            socket
        })
        .collect();
    let most_left = MEMORY_BYTES / HEAD_BYTES;
    while server.counted("shed") < (hostile.len() - most_left) as u64 {}
    assert!(is_answered(&server.connect()), "a connection with little memory");
    drop(hostile);
    // Their memory is released.
    let whole = [&head[..], b"\r\n\r\n"].concat();
    let is_served = || {
        let mut socket = server.connect();
        socket.write_all(&whole).is_ok() && matches!(socket.read(&mut [0; 4096]), Ok(read) if read > 0)
    };
    while !is_served() {}
}

/// A TLS client over a blocking socket.
struct Secure {
    socket: TcpStream,
    tls: TlsClient,
}

impl Secure {
    fn push(&mut self) {
        let mut out = Vec::new();
        self.tls.take_output(&mut out);
        self.socket.write_all(&out).unwrap();
    }
}

impl Read for Secure {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = self.tls.read(buffer).unwrap();
            if read > 0 || self.tls.peer_closed() {
                return Ok(read);
            }
            let mut input = [0; 4096];
            let read = self.socket.read(&mut input)?;
            self.tls.receive(&input[..read]).unwrap();
            self.push();
        }
    }
}

fn tls_answers_and_counts_its_handshakes(engine: Engine) {
    let (tls, certificate) = ServerTls::self_signed(&[]).unwrap();
    let server = serve(engine, LIMITS, Service { tls: Some(tls), ..plain() });
    let options = TlsOptions {
        verify: true,
        ca_pem: Some(&certificate),
        identity: None,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: &[],
        alpn: &[],
        server_name: "localhost",
        resumption: true,
        connections: 1,
        early_data: false,
    };
    let client = ClientTls::new(&options).unwrap();
    let mut text = String::new();
    for _ in 0..3 {
        let mut secure = Secure { socket: server.connect(), tls: TlsClient::new(&client).unwrap() };
        let targets = ["/?size=3000000", "/?size=500000&chunked=1", "/?delay=2ms", "/?size=0"];
        secure.tls.write(&targets.map(get).concat());
        secure.push();
        let sizes: Vec<u64> = responses(&mut secure, 4).iter().map(|response| response.body_bytes).collect();
        assert_eq!(sizes, [3_000_000, 500_000, 12, 0]);
        secure.tls.write(&get("/_leadline/stats?close"));
        secure.push();
        let mut buffer = [0; 4096];
        let read = secure.read(&mut buffer).unwrap();
        text = String::from_utf8_lossy(&buffer[..read]).into_owned();
    }
    for field in ["\"handshakes_full\":1,", "\"handshakes_resumed\":2,", "\"requests\":12,", "\"tls_failures\":0,"] {
        assert!(text.contains(field), "{field} in {text}");
    }
}

fn tls_garbage_is_counted_and_closed(engine: Engine) {
    let (tls, _) = ServerTls::self_signed(&[]).unwrap();
    let listener = tcp::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let plain_address = listener.local_addr().unwrap();
    let mut server = serve(engine, LIMITS, Service { tls: Some(tls), plain: vec![listener], ..plain() });
    let mut socket = server.connect();
    socket.write_all(GET).unwrap();
    socket.read_to_end(&mut Vec::new()).unwrap();
    drop(server.connect());
    server.address = plain_address;
    while server.counted("tls_failures") < 2 {}
    let stats = server.stats();
    assert!(stats.contains("\"tls_handshake_cut\":1") && stats.contains("\"requests\":0,"), "{stats}");
}
