//! The flows of request-response against scripted peers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};

use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_testkit::until;
use leadline_transport::{Header, HeaderKind};

use super::*;
use crate::control_signal::ControlSignal;
use crate::flows::WorkerReport;
use crate::metering::Collector;

const LATENCY: usize = 0;
const LATENCY_CENSORED: usize = 1;
const SERVICE: usize = 2;
const CONNECT: usize = 3;
const TOKEN: u64 = 1;

fn spec(timeout_ms: u32) -> RrSpec {
    RrSpec {
        target: leadline_wire::Target {
            host: String::new(),
            port: 0,
            ip_version: None,
            key: None,
            iperf3_login: None,
            iperf3_options: None,
        },
        protocol: Protocol::Tcp,
        flows: 1,
        threads: 1,
        duration_ms: 1,
        number: None,
        warmup_ms: 0,
        request_bytes: 64,
        response_bytes: 64,
        timeout_ms,
        bind: None,
        interval_ms: 100,
        connect: false,
        outstanding: 1,
        rate_per_s: None,
        busy_poll: false,
        dscp: None,
        histogram_interval_ms: None,
    }
}

/// Runs one flow against a peer that answers this many requests and then is silent.
fn against_silence(
    answers: usize,
    timeout_ms: u32,
    most: Option<u64>,
    length_ns: u64,
) -> (Span, WorkerReport, Vec<Histogram>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let peer = std::thread::spawn(move || {
        let mut request = [0; 64];
        for _ in 0..answers {
            far.read_exact(&mut request).and_then(|()| far.write_all(&request)).unwrap();
        }
        // Open until the client has closed it.
        let _ = far.read_to_end(&mut Vec::new());
    });
    let result = driven(FlowSocket::Tcp(near), timeout_ms, most, length_ns);
    peer.join().unwrap();
    result
}

/// Runs one flow over this socket: returns its report and its histograms.
fn driven(
    socket: FlowSocket,
    timeout_ms: u32,
    number: Option<u64>,
    length_ns: u64,
) -> (Span, WorkerReport, Vec<Histogram>) {
    run_flow(FlowPath::Persistent(socket), &spec(timeout_ms), number, length_ns)
}

/// Runs one flow of this load: returns its report and its histograms.
fn run_flow(
    path: FlowPath,
    spec: &RrSpec,
    number: Option<u64>,
    length_ns: u64,
) -> (Span, WorkerReport, Vec<Histogram>) {
    let at_ns = monotonic_ns();
    let span = Span { at_ns, end_ns: at_ns + length_ns };
    let flow = ReadyFlow { id: 0, counters: Arc::default(), number, path };
    let flows = vec![flow.start(spec, checked(spec).unwrap(), span)];
    let (out, rolled) = mpsc::channel();
    let recorder = Recorder::new(METRICS.len(), 0, out);
    let work = ThreadWork::new(spec, TOKEN);
    let report = driver::drive(flows, work, span, &ControlSignal::default(), "rr".to_owned(), recorder).unwrap();
    let mut collector = Collector::new(METRICS);
    rolled.iter().for_each(|one| collector.take(one));
    (span, report, (0..METRICS.len()).map(|metric| collector.total(metric)).collect())
}

#[test]
fn the_last_request_of_a_rate_has_its_interval() {
    const LENGTH_NS: u64 = 300_000_000;
    for (number, over_ns) in [(Some(3), 150_000_000), (None, LENGTH_NS)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let peer = std::thread::spawn(move || {
            let mut request = [0; 64];
            while far.read_exact(&mut request).and_then(|()| far.write_all(&request)).is_ok() {}
        });
        let at_a_rate = RrSpec { rate_per_s: Some(20.0), ..spec(60_000) };
        let path = FlowPath::Persistent(FlowSocket::Tcp(near));
        let (span, report, _) = run_flow(path, &at_a_rate, number, LENGTH_NS);
        peer.join().unwrap();
        let row = &report.flows[0];
        let answered = row.received_units.unwrap() + row.unsent_units.unwrap();
        assert_eq!(answered, number.unwrap_or(6));
        // Later only if the machine delayed the last response.
        assert!(row.end_ns >= Some(span.at_ns + over_ns), "{row:?}");
    }
}

#[test]
fn a_transaction_that_times_out_leaves_its_age_and_no_latency() {
    const TIMEOUT_NS: u64 = 20_000_000;
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.connect(peer.local_addr().unwrap()).unwrap();
    let (_, udp, histograms) = driven(FlowSocket::Udp(near), 20, Some(3), LONG_NS);
    assert_eq!(udp.errors, BTreeMap::from([("timeout".to_owned(), 3)]));
    assert_eq!((histograms[LATENCY].count(), histograms[LATENCY_CENSORED].count()), (0, 3));
    // A bucket's lowest value may be 0.1 % below the recorded one.
    assert!(histograms[LATENCY_CENSORED].quantile_ns(0.0) >= Some(TIMEOUT_NS / 1000 * 999));
    until("the peer answers two requests within the timeout", || {
        let (_, tcp, histograms) = against_silence(2, 20, None, LONG_NS);
        assert_eq!(tcp.flows[0].received_units, Some(histograms[LATENCY].count()));
        assert_eq!(histograms[LATENCY_CENSORED].count(), 1);
        (histograms[LATENCY].count() == 2).then_some(())
    });
}

#[test]
fn a_silence_that_lasts_to_the_end_belongs_to_the_flow() {
    until("the peer answers one request within the time", || {
        let (span, report, _) = against_silence(1, 2000, None, 1_000_000_000);
        let flow = &report.flows[0];
        // Without a first response, the silence is older than the timeout allows, or nothing was sent.
        (flow.received_units == Some(1) && flow.sent_units == Some(2)).then(|| {
            assert_eq!(flow.end_ns, Some(span.end_ns));
            assert_eq!(report.errors, one_error("timeout", 1));
        })
    });
}

#[test]
fn a_slow_peer_keeps_its_latency_when_the_time_is_over() {
    const TAKES_NS: u64 = 900_000_000;
    until("a request is sent within the time", || {
        let (socket, peer) = scripted(|mut far| {
            let mut request = [0; 64];
            while far.read_exact(&mut request).is_ok() {
                leadline_sys::clock::sleep_until(monotonic_ns() + TAKES_NS);
                let _ = far.write_all(&request);
            }
        });
        let (_, report, histograms) = driven(socket, 50_000, None, 1_000_000_000);
        peer.join().unwrap();
        // The outstanding transaction is waited for at the end: no transaction remains with a known age only.
        assert_eq!(report.flows[0].received_units, Some(histograms[LATENCY].count()));
        assert_eq!(histograms[LATENCY_CENSORED].count(), 0);
        let least_ns = histograms[LATENCY].quantile_ns(0.0)?;
        assert!(least_ns >= TAKES_NS / 1000 * 999, "{:?}", histograms[LATENCY]);
        Some(())
    });
}

#[test]
fn a_flow_ends_with_its_number_or_its_failure() {
    let (span, report, _) = against_silence(5, 50_000, Some(5), LONG_NS);
    assert_eq!(report.flows[0].received_units, Some(5));
    assert!(report.flows[0].end_ns.unwrap() < span.end_ns);
    let (span, report, _) = against_silence(0, 1, None, LONG_NS);
    assert!(report.flows[0].end_ns.unwrap() < span.end_ns && report.errors["timeout"] == 1);
}

/// A connection whose far end runs this script.
fn scripted(script: impl FnOnce(TcpStream) + Send + 'static) -> (FlowSocket, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (FlowSocket::Tcp(near), std::thread::spawn(move || script(far)))
}

/// A UDP socket whose far end runs this script.
fn scripted_datagrams(script: impl FnOnce(UdpSocket) + Send + 'static) -> (FlowSocket, std::thread::JoinHandle<()>) {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (FlowSocket::Udp(near), std::thread::spawn(move || script(far)))
}

fn receive(far: &UdpSocket) -> Header {
    let mut request = [0; 100];
    let read = far.recv(&mut request).unwrap();
    assert_eq!(read, 64);
    Header::parse(&request).unwrap()
}

fn answer(far: &UdpSocket, header: Header, bytes: usize) {
    let mut response = [0; 100];
    Header { kind: HeaderKind::Response, ..header }.write(&mut response);
    far.send(&response[..bytes]).unwrap();
}

/// Only a defect takes this long.
const LONG_NS: u64 = 300_000_000_000;

fn one_error(name: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(name.to_owned(), count)])
}

#[test]
fn several_requests_are_outstanding_at_once() {
    let (socket, peer) = scripted(|mut far| {
        let mut requests = [0; 4 * 64];
        // A flow with fewer than four outstanding would wait for ever here.
        for _ in 0..25 {
            far.read_exact(&mut requests).unwrap();
            far.write_all(&requests).unwrap();
        }
        let _ = far.read_to_end(&mut Vec::new());
    });
    let spec = RrSpec { outstanding: 4, ..spec(60_000) };
    let (_, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, Some(100), LONG_NS);
    peer.join().unwrap();
    let row = &report.flows[0];
    assert_eq!((row.sent_units, row.received_units, histograms[LATENCY].count()), (Some(100), Some(100), 100));
    assert!(report.errors.is_empty());
}

#[test]
fn timeout_of_a_connection_leaves_the_age_of_each_outstanding_transaction() {
    let (socket, peer) = scripted(|mut far| {
        far.read_exact(&mut [0; 4 * 64]).unwrap();
        let _ = far.read_to_end(&mut Vec::new());
    });
    let spec = RrSpec { outstanding: 4, ..spec(20) };
    let (_, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, Some(100), LONG_NS);
    peer.join().unwrap();
    assert_eq!(report.errors, one_error("timeout", 4));
    assert_eq!((histograms[LATENCY].count(), histograms[LATENCY_CENSORED].count()), (0, 4));
}

#[test]
fn reset_fails_each_outstanding_transaction() {
    let (socket, peer) = scripted(|mut far| {
        far.read_exact(&mut [0; 4 * 64]).unwrap();
        leadline_sys::net::reset(&far).unwrap();
    });
    let spec = RrSpec { outstanding: 4, ..spec(60_000) };
    let (span, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, None, LONG_NS);
    peer.join().unwrap();
    assert_eq!(report.errors, one_error("connection_reset", 4));
    assert_eq!(histograms[LATENCY_CENSORED].count(), 4);
    assert!(report.flows[0].end_ns.unwrap() < span.end_ns);
}

#[test]
fn answer_that_was_not_asked_for_ends_a_connection() {
    for extra in [1, 64] {
        let (socket, peer) = scripted(move |mut far| {
            far.read_exact(&mut [0; 64]).unwrap();
            far.write_all(&vec![0; 64 + extra]).unwrap();
            let _ = far.read_to_end(&mut Vec::new());
        });
        let (_, report, _) = driven(socket, 60_000, Some(1000), LONG_NS);
        peer.join().unwrap();
        assert_eq!(report.errors.values().sum::<u64>(), 1, "{:?}", report.errors);
        assert!(report.errors.contains_key("unasked_answer"), "{:?}", report.errors);
    }
}

#[test]
fn peer_that_closes_ends_the_flow() {
    let (socket, peer) = scripted(|mut far| {
        far.read_exact(&mut [0; 64]).unwrap();
        far.write_all(&[0; 10]).unwrap();
    });
    let (_, report, _) = driven(socket, 60_000, None, LONG_NS);
    peer.join().unwrap();
    assert_eq!(report.errors.values().sum::<u64>(), 1);
    assert_eq!(report.flows[0].received_units, Some(0));
}

#[test]
fn repeated_late_and_wrong_datagrams_are_distinguished() {
    let (socket, peer) = scripted_datagrams(|far| {
        let first = receive(&far);
        answer(&far, Header { sequence: 7, ..first }, 64);
        answer(&far, Header { token: 99, ..first }, 64);
        far.send(b"no header").unwrap();
        answer(&far, first, 64);
        answer(&far, first, 64);
        let second = receive(&far);
        answer(&far, second, 60);
        let third = receive(&far);
        answer(&far, second, 64);
        answer(&far, third, 64);
    });
    let (_, report, histograms) = driven(socket, 60_000, Some(3), LONG_NS);
    peer.join().unwrap();
    let row = &report.flows[0];
    assert_eq!((row.received_units, histograms[LATENCY].count()), (Some(2), 2));
    assert_eq!((row.strays, row.duplicate_answers, row.late_answers), (Some(1), Some(1), Some(1)));
    assert_eq!(report.errors, one_error("wrong_length", 1));
}

#[test]
fn stalled_peer_delays_no_due_time() {
    // All requests are due within 200 ms of the first one, and all after the stalled one wait for its end.
    const STALLED: u64 = 20;
    const STALL_END_NS: u64 = 300_000_000;
    until("the client sends in time and other responses are quick", || {
        let (socket, peer) = scripted(|mut far| {
            let (mut request, mut begun_ns) = ([0; 64], None);
            for index in 0..100 {
                far.read_exact(&mut request).unwrap();
                let begun_ns = *begun_ns.get_or_insert_with(monotonic_ns);
                if index == STALLED {
                    leadline_sys::clock::sleep_until(begun_ns + STALL_END_NS);
                }
                far.write_all(&request).unwrap();
            }
            let _ = far.read_to_end(&mut Vec::new());
        });
        let spec = RrSpec { rate_per_s: Some(500.0), ..spec(60_000) };
        let (_, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, Some(100), LONG_NS);
        peer.join().unwrap();
        assert_eq!(report.flows[0].received_units, Some(100));
        let slow = |metric: usize| {
            let slow = histograms[metric].recorded().filter(|(value_ns, _)| *value_ns > STALL_END_NS / 4);
            slow.map(|(_, count)| count).sum::<u64>()
        };
        assert!(slow(LATENCY) >= 99 - STALLED, "{}", slow(LATENCY));
        // One request waited for its response; those that were due meanwhile waited for their turn.
        (slow(SERVICE) * 2 < slow(LATENCY) && report.flows[0].due_while_busy > Some(50)).then_some(())
    });
}

#[test]
fn silent_peer_leaves_due_requests_unsent() {
    let (socket, peer) = scripted(|mut far| {
        let _ = far.read_to_end(&mut Vec::new());
    });
    let spec = RrSpec { rate_per_s: Some(1000.0), outstanding: 2, ..spec(20) };
    let (_, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, Some(10), LONG_NS);
    peer.join().unwrap();
    let row = &report.flows[0];
    assert_eq!(row.unsent_units.unwrap() + report.errors["timeout"], 10);
    assert_eq!(row.unsent_units, row.unsent_while_busy);
    assert!(histograms[LATENCY_CENSORED].count() >= 1);
}

fn destination(to: SocketAddr, protocol: Protocol) -> FlowPath {
    let ports = SourcePorts::new(&local_port_range(), 7);
    FlowPath::Connecting(Arc::new(Destination { to, from: None, protocol, ports }))
}

fn connecting_spec(protocol: Protocol) -> RrSpec {
    RrSpec { connect: true, protocol, ..spec(60_000) }
}

/// Accepts connections and gives each to the script, with its number.
fn scripted_connections(
    count: usize,
    script: impl Fn(usize, TcpStream) + Send + 'static,
) -> (FlowPath, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        for index in 0..count {
            script(index, listener.accept().unwrap().0);
        }
    });
    (destination(to, Protocol::Tcp), peer)
}

#[test]
fn each_transaction_has_a_connection() {
    let (path, peer) = scripted_connections(50, |index, mut far| {
        let mut request = [0; 40 + 64];
        far.read_exact(&mut request).unwrap();
        let header = Header::parse(&request).unwrap();
        assert_eq!((header.kind, header.token, header.sequence), (HeaderKind::Stream, TOKEN, index as u64));
        far.write_all(&request[..64]).unwrap();
    });
    let (_, report, histograms) = run_flow(path, &connecting_spec(Protocol::Tcp), Some(50), LONG_NS);
    peer.join().unwrap();
    let row = &report.flows[0];
    assert_eq!((row.sent_units, row.received_units, row.connections_opened), (Some(50), Some(50), Some(50)));
    assert_eq!((row.sent_bytes, row.received_bytes), (50 * 64, 50 * 64), "the preface is no payload");
    assert_eq!((histograms[LATENCY].count(), histograms[CONNECT].count()), (50, 50));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn failed_connections_are_counted_by_their_cause() {
    let (path, peer) = scripted_connections(4, |index, mut far| {
        let mut request = [0; 40 + 64];
        far.read_exact(&mut request).unwrap();
        match index {
            0 => leadline_sys::net::reset(&far).unwrap(),
            1 => far.write_all(&[0; 10]).unwrap(),
            2 => far.write_all(&[0; 65]).unwrap(),
            _ => far.write_all(&[0; 64]).unwrap(),
        }
    });
    let (_, report, histograms) = run_flow(path, &connecting_spec(Protocol::Tcp), Some(4), LONG_NS);
    peer.join().unwrap();
    assert_eq!((histograms[LATENCY].count(), histograms[LATENCY_CENSORED].count()), (1, 3));
    let causes: Vec<&str> = report.errors.keys().map(String::as_str).collect();
    assert_eq!(causes, ["closed_early", "connection_reset", "unasked_answer"]);
    assert_eq!(report.flows[0].received_units, Some(1));
}

#[test]
fn refused_connections_end_with_their_number() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    drop(listener);
    let path = destination(to, Protocol::Tcp);
    let (_, report, _) = run_flow(path, &connecting_spec(Protocol::Tcp), Some(3), LONG_NS);
    assert_eq!(report.errors, one_error("connection_refused", 3));
}

#[test]
fn silent_server_costs_the_timeout_and_no_more() {
    let (path, peer) = scripted_connections(2, |_, mut far| {
        let _ = far.read_to_end(&mut Vec::new());
    });
    let spec = RrSpec { timeout_ms: 20, ..connecting_spec(Protocol::Tcp) };
    let (_, report, histograms) = run_flow(path, &spec, Some(2), LONG_NS);
    peer.join().unwrap();
    assert_eq!(report.errors, one_error("timeout", 2));
    assert_eq!(histograms[LATENCY_CENSORED].count(), 2);
}

#[test]
fn each_datagram_transaction_has_a_source_port() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = far.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let mut ports = std::collections::BTreeSet::new();
        let mut request = [0; 64];
        for _ in 0..50 {
            let (_, from) = far.recv_from(&mut request).unwrap();
            ports.insert(from.port());
            let header = Header::parse(&request).unwrap();
            Header { kind: HeaderKind::Response, ..header }.write(&mut request);
            far.send_to(&request, from).unwrap();
        }
        ports.len()
    });
    let (_, report, _) = run_flow(destination(to, Protocol::Udp), &connecting_spec(Protocol::Udp), Some(50), LONG_NS);
    assert_eq!(peer.join().unwrap(), 50);
    assert_eq!((report.flows[0].received_units, report.flows[0].connections_opened), (Some(50), Some(50)));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn exhausted_source_ports_are_an_error_of_their_own() {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ports = SourcePorts::new(&(port..=port), 0);
    let to = far.local_addr().unwrap();
    let path = FlowPath::Connecting(Arc::new(Destination { to, from: None, protocol: Protocol::Udp, ports }));
    let (_, report, histograms) = run_flow(path, &connecting_spec(Protocol::Udp), Some(2), LONG_NS);
    assert_eq!(report.errors, one_error("source_ports_exhausted", 2));
    assert_eq!(histograms[LATENCY_CENSORED].count(), 2);
}

#[test]
fn polling_without_sleep_measures_the_same() {
    let spec = RrSpec { busy_poll: true, ..spec(60_000) };
    let (socket, peer) = scripted(|mut far| {
        let mut request = [0; 64];
        while far.read_exact(&mut request).is_ok() {
            far.write_all(&request).unwrap();
        }
    });
    let (_, report, histograms) = run_flow(FlowPath::Persistent(socket), &spec, Some(200), LONG_NS);
    peer.join().unwrap();
    assert_eq!((report.flows[0].received_units, histograms[LATENCY].count()), (Some(200), 200));
}

#[test]
fn marks_and_intervals_out_of_range_are_refused() {
    let refused = [
        RrSpec { dscp: Some(64), ..spec(1000) },
        RrSpec { dscp: Some(46), connect: true, ..spec(1000) },
        RrSpec { histogram_interval_ms: Some(9), ..spec(1000) },
    ];
    for spec in refused {
        assert_eq!(super::checked(&spec).unwrap_err().code, "bad_spec");
    }
    assert!(super::checked(&RrSpec { dscp: Some(46), histogram_interval_ms: Some(10), ..spec(1000) }).is_ok());
}
