//! The loops against real sockets on loopback: the agent's own responder, and servers that misbehave in one way each.
//! The tests compare counts, which do not depend on speed. Every other end of a request is tested with the machine in
//! virtual time, in `leadline_http::client`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_sys::{clock, net, tcp};
use leadline_wire::{DnsPolicy, HttpRequest, HttpRoute, HttpSpec, HttpTimeouts, Outcome, RateStage, SocketOptions};

use super::{prepare, prepare_with, rate_per_s};
use crate::control_signal::ControlSignal;
use crate::events::Events;
use crate::load::net::io_backend::Engine;
use crate::serve::http::{listen, Service};
use crate::task::Task;

/// Makes a test of each function, for each engine.
macro_rules! on_both_engines {
    ($($test:ident),+ $(,)?) => {
        mod io_uring {
            $(#[test] fn $test() { super::$test(super::Engine::IoUring); })+
        }
        mod epoll {
            $(#[test] fn $test() { super::$test(super::Engine::Epoll); })+
        }
    };
}

mod routes;
mod stub;

#[test]
fn a_late_report_of_progress_covers_more_time() {
    let rates = [(1000, 1_000_000_000), (1500, 1_500_000_000), (500, 500_000_000)];
    assert_eq!(rates.map(|(responses, took_ns)| rate_per_s(responses, took_ns)), [Some(1000); 3]);
    assert_eq!((rate_per_s(1, 0), rate_per_s(u64::MAX, 1)), (None, None), "no rate is made up");
}

/// Only a defect takes this long.
const LONG_MS: u64 = 300_000;
const TIMEOUT_MS: u32 = 180_000;

on_both_engines!(
    client_and_server_count_the_same_in_a_closed_loop,
    client_and_server_count_the_same_when_time_ends_the_load,
    an_open_loop_sends_what_is_due,
    requests_due_just_before_the_end_are_sent,
    long_bodies_in_both_directions_arrive_complete,
    a_stopped_load_returns_partial_figures,
    each_server_misbehaviour_has_its_error_name,
    unannounced_closes_count_as_reset_or_closed_early,
    more_connections_than_one_batch_all_open,
);

fn spec(server: SocketAddr, number: Option<u64>) -> HttpSpec {
    HttpSpec {
        requests: vec![request(server, "/")],
        script: None,
        ip_version: None,
        connections: 4,
        threads: 2,
        cpus: Vec::new(),
        duration_ms: LONG_MS,
        number,
        warmup_ms: 0,
        rate: Vec::new(),
        requests_per_connection: None,
        redirects: 0,
        timeouts: HttpTimeouts { connect_ms: TIMEOUT_MS, response_ms: TIMEOUT_MS },
        route: HttpRoute { bind: Vec::new(), resolve: Vec::new(), dns: DnsPolicy::Run, unix_socket: None, proxy: None },
        socket: SocketOptions::default(),
        tls: None,
        interval_ms: 100,
    }
}

fn request(server: SocketAddr, target: &str) -> HttpRequest {
    HttpRequest {
        url: format!("http://{server}{target}"),
        method: "GET".to_owned(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    }
}

/// Returns a rate of this many requests per second that lasts longer than any test.
fn rate(per_s: f64) -> Vec<RateStage> {
    vec![RateStage { from_per_s: per_s, to_per_s: per_s, duration_ms: LONG_MS }]
}

fn run(engine: Engine, spec: HttpSpec) -> Outcome {
    run_with(engine, spec, Arc::default())
}

fn run_with(engine: Engine, spec: HttpSpec, signal: Arc<ControlSignal>) -> Outcome {
    let task = task(signal);
    let outcome = prepare_with(spec, Some(engine), &task).unwrap().run(0, &task).unwrap();
    assert_eq!(outcome.generator.engine.as_deref(), Some(engine.name()));
    assert_eq!(outcome.generator.engine_reason.is_some(), engine == Engine::Epoll);
    outcome
}

fn task(signal: Arc<ControlSignal>) -> Task {
    let events = Events::to(Box::new(std::io::sink()));
    Task { trial: "t".to_owned(), name: "http".to_owned(), signal, events }
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = tcp::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Starts the agent's own responder; the signal stops it.
fn responder() -> (SocketAddr, Arc<ControlSignal>) {
    let (listener, address) = listener();
    let signal = Arc::new(ControlSignal::default());
    listen(Service::on(vec![listener]), &signal).unwrap();
    (address, signal)
}

/// Starts a server that treats every connection alike, on a thread that lives as long as the tests.
fn server(behave: impl Fn(TcpStream) + Copy + Send + 'static) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || behave(socket));
        }
    });
    address
}

/// Reads one complete request; requests of these tests end with an empty line.
fn read_request(socket: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return false,
        }
    }
    true
}

fn server_counts(server: SocketAddr) -> BTreeMap<String, u64> {
    let mut socket = TcpStream::connect(server).unwrap();
    socket.write_all(b"GET /_leadline/stats HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let stats: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    stats.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

/// Returns the server's counters once it has read this many requests: at the end of a load, requests may still be in
/// transit.
fn server_counts_after(server: SocketAddr, requests: u64) -> BTreeMap<String, u64> {
    let deadline_ns = clock::monotonic_ns() + 180_000_000_000;
    loop {
        let counts = server_counts(server);
        if counts["requests"] >= requests || clock::monotonic_ns() > deadline_ns {
            return counts;
        }
        std::thread::yield_now();
    }
}

fn histogram_count(outcome: &Outcome, metric: &str) -> u64 {
    outcome.histograms.iter().filter(|histogram| histogram.metric == metric).map(|histogram| histogram.count).sum()
}

/// Asserts that every request that was due is counted exactly once.
fn assert_accounted(outcome: &Outcome) {
    let counts = &outcome.counts;
    let requests_failed: u64 = outcome.errors.values().sum();
    let ended = counts["responses"] + counts["unanswered"] + counts["unsent"] + requests_failed;
    assert_eq!(counts["requests_due"], ended, "{counts:?} {:?}", outcome.errors);
}

fn client_and_server_count_the_same_in_a_closed_loop(engine: Engine) {
    let (address, signal) = responder();
    let outcome = run(engine, spec(address, Some(5001)));
    assert_eq!(outcome.counts["responses"], 5001);
    assert_eq!(outcome.counts["status_2xx"], 5001);
    assert_eq!(outcome.counts["body_bytes"], 5001 * 12);
    assert_eq!(outcome.counts["connections_opened"], 4);
    assert_eq!(server_counts(address)["requests"], 5001);
    for metric in ["latency", "service", "late"] {
        assert_eq!(histogram_count(&outcome, metric), 5001, "{metric}");
    }
    assert_eq!(histogram_count(&outcome, "connect"), 4);
    assert_eq!(outcome.flows.len(), 2);
    assert!(outcome.errors.is_empty());
    assert_accounted(&outcome);
    signal.stop();
}

fn client_and_server_count_the_same_when_time_ends_the_load(engine: Engine) {
    let (address, signal) = responder();
    let outcome = run(engine, HttpSpec { duration_ms: 100, connections: 32, ..spec(address, None) });
    let sent = outcome.counts["requests_sent"];
    assert_eq!(server_counts_after(address, sent)["requests"], sent);
    assert_accounted(&outcome);
    signal.stop();
}

fn an_open_loop_sends_what_is_due(engine: Engine) {
    let (address, signal) = responder();
    let outcome = run(engine, HttpSpec { rate: rate(20_000.0), ..spec(address, Some(2000)) });
    assert_eq!(outcome.counts["requests_due"], 2000);
    assert_eq!(outcome.counts["responses"], 2000);
    assert_eq!(server_counts(address)["requests"], 2000);
    assert!(outcome.generator.late_p99_us.is_some());
    signal.stop();
}

fn requests_due_just_before_the_end_are_sent(engine: Engine) {
    // The second request is due a quarter of a microsecond before the end; no wait ends early enough for it.
    let (address, signal) = responder();
    let two = HttpSpec { rate: rate(20.0001), duration_ms: 50, threads: 1, ..spec(address, None) };
    let before_ns = clock::monotonic_ns();
    let outcome = run(engine, two);
    let took_ns = clock::monotonic_ns() - before_ns;
    let sent = outcome.counts["requests_sent"];
    assert_eq!((outcome.counts["requests_due"], sent + outcome.counts["unsent"]), (2, 2));
    // A request is counted and not sent if its thread could not run until a tenth of a second after the end, or if the
    // response to the first one, on the only connection, took until the end.
    let busy = outcome.counts["unsent_while_busy"] == 1;
    assert!(sent == 2 || busy || took_ns > 150_000_000, "{outcome:?}");
    assert_eq!(outcome.counts["responses"] + outcome.counts["unanswered"], sent);
    assert_eq!(server_counts_after(address, sent)["requests"], sent);
    signal.stop();
}

fn long_bodies_in_both_directions_arrive_complete(engine: Engine) {
    let (address, signal) = responder();
    let post = HttpRequest {
        method: "POST".to_owned(),
        body_base64: Some(BASE64_STANDARD.encode("x".repeat(3_000_000))),
        ..request(address, "/?size=5000000")
    };
    let post = HttpSpec { requests: vec![post], ..spec(address, Some(20)) };
    let outcome = run(engine, post);
    assert_eq!((outcome.counts["responses"], outcome.counts["body_bytes"]), (20, 100_000_000));
    assert!(server_counts(address)["bytes_received"] > 60_000_000);
    assert_accounted(&outcome);
    signal.stop();
}

fn a_stopped_load_returns_partial_figures(engine: Engine) {
    let (address, responder_gate) = responder();
    let signal = Arc::new(ControlSignal::default());
    signal.stop();
    let outcome = run_with(engine, spec(address, None), signal);
    assert_eq!(outcome.counts["requests_due"], 0);
    responder_gate.stop();
}

fn each_server_misbehaviour_has_its_error_name(engine: Engine) {
    let closes = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read(&mut [0]);
    });
    let truncates = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read(&mut [0]);
    });
    let resets = server(|mut socket| {
        read_request(&mut socket);
        let _ = net::reset(&socket);
    });
    let malformed = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n");
        let _ = socket.read(&mut [0]);
    });
    let never_responds = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.read(&mut [0]);
    });
    for (address, name) in [
        (closes, "closed_early"),
        (truncates, "closed_early"),
        (resets, "reset"),
        (malformed, "malformed_content_length"),
        (never_responds, "response_timeout"),
    ] {
        let response_ms = if name == "response_timeout" { 20 } else { TIMEOUT_MS };
        let timeouts = HttpTimeouts { connect_ms: TIMEOUT_MS, response_ms };
        let outcome = run(engine, HttpSpec { timeouts, ..spec(address, Some(9)) });
        assert_eq!(outcome.errors, BTreeMap::from([(name.to_owned(), 9)]));
        assert_eq!((outcome.counts["responses"], outcome.counts["requests_sent"]), (0, 9), "{name}");
        assert!(outcome.counts["connections_opened"] >= 9, "a failed connection is opened again");
        let aged = if name == "response_timeout" { 9 } else { 0 };
        for (metric, count) in [("latency", 0), ("latency_censored", aged), ("service_censored", aged)] {
            assert_eq!(histogram_count(&outcome, metric), count, "{name} {metric}");
        }
        assert_accounted(&outcome);
    }
}

fn unannounced_closes_count_as_reset_or_closed_early(engine: Engine) {
    let resets_second_request = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        read_request(&mut socket);
        let _ = net::reset(&socket);
    });
    let resets_after_response = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = net::reset(&socket);
    });
    for (address, exact) in [(resets_second_request, true), (resets_after_response, false)] {
        let outcome = run(engine, spec(address, Some(40)));
        assert_accounted(&outcome);
        assert!(
            outcome.errors.keys().all(|name| ["reset", "closed_early"].contains(&name.as_str())),
            "{:?}",
            outcome.errors
        );
        if exact {
            assert_eq!(outcome.counts["requests_sent"], 40);
        }
    }
}

fn more_connections_than_one_batch_all_open(engine: Engine) {
    let (address, signal) = responder();
    let outcome = run(engine, HttpSpec { connections: 300, ..spec(address, Some(20_000)) });
    assert_eq!((outcome.counts["responses"], outcome.counts["connections_opened"]), (20_000, 300));
    assert_eq!(server_counts(address)["requests"], 20_000);
    assert_accounted(&outcome);
    signal.stop();
}

#[test]
fn bad_input_and_a_server_that_is_not_there_fail_before_the_start() {
    // Only root may listen on this port, and no connection comes from it.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let task = task(Arc::default());
    let code = |spec: HttpSpec| prepare(spec, &task).err().map(|error| error.code).unwrap_or_default();
    let with = |request| HttpSpec { requests: vec![request], ..spec(address, None) };
    assert_eq!(code(spec(address, None)), "connection_refused");
    assert_eq!(code(with(HttpRequest { url: "ftp://a/".to_owned(), ..request(address, "/") })), "bad_url");
    assert_eq!(code(with(HttpRequest { method: "G T".to_owned(), ..request(address, "/") })), "bad_request");
    assert_eq!(code(HttpSpec { rate: rate(0.0), ..spec(address, None) }), "bad_rate");
    assert_eq!(code(HttpSpec { connections: 0, ..spec(address, None) }), "bad_http");
}
