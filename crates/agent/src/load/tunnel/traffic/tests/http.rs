//! HTTP through tunnels: responses at a rate and back to back, and the counts of requests without a response.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_stats::Histogram;
use leadline_testkit::until;
use leadline_tunnel::inside::tcp::{Buffers, Connection, Stack};
use leadline_wire::{Direction, HttpAnswer, HttpRequest, TunnelTraffic};

use super::{flow, ipv4, ipv6, Figures, Impairment, TunLab, MTU};
use crate::load::tunnel::metric::{Metric, METRICS};
use crate::load::tunnel::traffic::{plan, Channel, ClientContext};
use crate::metering::{Collector, FlowCounters, Recorder};

#[test]
fn requests_complete_at_a_rate_and_back_to_back() {
    let Some(lab) = TunLab::new(HttpAnswer { close_after: Some(7), ..HttpAnswer::default() }) else { return };
    let request = |host: String| HttpRequest {
        url: format!("http://{host}:8080/"),
        method: "GET".into(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    };
    for (host, rate_per_s) in
        [(ipv4(lab.number, 1).to_string(), Some(50.0)), (format!("[{}]", ipv6(lab.number, 1)), None)]
    {
        let spec = TunnelTraffic::Http { request: request(host), rate_per_s, duration_ms: 600 };
        let result = lab.run_served(&spec, 2, Impairment::default(), |_| true);
        let mut answered = 0;
        for figures in &result.figures {
            let (flow, counts) = (flow(figures, Direction::Up), &figures.counts);
            assert_eq!(figures.errors, BTreeMap::new());
            assert!(rate_per_s.is_none() || counts["requests_due"] == 30);
            assert_eq!((flow.sent_units, flow.received_units), (Some(counts["requests_sent"]), flow.sent_units));
            // What is due while this machine does other work may stay unsent.
            assert_eq!(counts["requests_sent"] + counts["unsent"], counts["requests_due"]);
            assert_eq!(counts["status_2xx"], counts["requests_sent"]);
            assert!(rate_per_s.is_some() || counts["unsent"] == 0, "a closed loop owes nothing");
            assert!(counts["connections"] >= counts["requests_sent"] / 7);
            answered += counts["requests_sent"];
        }
        assert_eq!((result.histograms["latency"], result.histograms["service"]), (answered, answered));
    }
}

#[test]
fn unbegun_requests_record_their_age() {
    let context = ClientContext {
        client: 0,
        clients: 1,
        ipv4: Some(Ipv4Addr::LOCALHOST),
        ipv6: None,
        server_ipv4: None,
        server_ipv6: None,
        mtu: MTU,
    };
    let request = HttpRequest {
        url: "http://10.0.0.1/".into(),
        method: "GET".into(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    };
    let spec = TunnelTraffic::Http { request, rate_per_s: Some(100.0), duration_ms: 1000 };
    let mut http = plan(&spec).unwrap().client(&context).unwrap();
    let (out, rolled) = mpsc::channel();
    let (mut recorder, counters) = (Recorder::new(METRICS.len(), 0, out), FlowCounters::default());
    http.start(0);
    // Nothing that it sends arrives; its connection never opens.
    let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters };
    (0..20).for_each(|number| http.poll(number * 100_000_000, &mut channel));
    let figures = http.finish(2_000_000_000, &mut channel);
    recorder.finish();
    let mut collector = Collector::new(METRICS);
    rolled.try_iter().for_each(|one| collector.take(one));
    let (latencies, ages) =
        (collector.total(Metric::Latency as usize), collector.total(Metric::LatencyCensored as usize));
    assert_eq!((figures.counts["requests_due"], figures.counts["unsent"]), (100, 100));
    assert_eq!((latencies.count(), ages.count()), (0, 100));
    // The first was due at once and the last 10 ms before the end: observation ends with the time, at 1 s.
    let within = |value: Option<u64>, wanted: u64| value.is_some_and(|value| value.abs_diff(wanted) <= wanted / 1000);
    assert!(within(ages.max_ns(), 1_000_000_000) && within(ages.quantile_ns(0.0), 10_000_000), "{ages:?}");
    assert_eq!(figures.flows[0].latency_max_us, None);
}

#[test]
fn back_to_back_requests_are_due_when_the_answer_before_came() {
    let Some(lab) = TunLab::new(HttpAnswer { close_after: Some(1), ..HttpAnswer::default() }) else { return };
    let request = HttpRequest {
        url: format!("http://{}:8080/", ipv4(lab.number, 1)),
        method: "GET".into(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    };
    let spec = TunnelTraffic::Http { request, rate_per_s: None, duration_ms: 400 };
    // The server closes each connection: all but the first request waited for a new one. If the machine delays a response
    // for long, the two times are in the same bucket.
    until("most requests wait longer for a connection than the width of a bucket", || {
        let result = lab.run_served(&spec, 1, Impairment::default(), |_| true);
        let [latency, service] = [&result.latency, &result.service].map(|times| times.quantile_ns(0.5));
        assert!(latency >= service, "{:?}", result.histograms);
        (result.latency.count() > 2 && latency > service).then_some(())
    });
}

/// A server in virtual time that answers each request with these pieces once its head has arrived, one piece per
/// millisecond.
struct Peer {
    stack: Stack,
    connections: Vec<(Connection, usize)>,
    pieces: Vec<&'static [u8]>,
    /// Those that have had their last piece, if it resets them then.
    to_reset: Option<Vec<Connection>>,
}

impl Peer {
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn new(pieces: Vec<&'static [u8]>) -> Self {
        let mut stack = Stack::new(Some(Self::ADDRESS), None, MTU, 5, 0);
        let buffers = Buffers { receive_bytes: 4096, send_bytes: 4096 };
        let unused = pieces.len();
        let mut listen = || (stack.listen(0, (Self::ADDRESS, 80).into(), buffers), unused);
        // More than the requests of a load, each of which may need a separate connection.
        Self { connections: (0..10).map(|_| listen()).collect(), stack, pieces, to_reset: None }
    }

    fn act(&mut self) {
        for (connection, next) in &mut self.connections {
            if let Some(piece) = self.pieces.get(*next) {
                assert_eq!(self.stack.write(*connection, piece), piece.len());
                *next += 1;
                if let Some(to_reset) = self.to_reset.as_mut().filter(|_| *next == self.pieces.len()) {
                    to_reset.push(*connection);
                }
            }
            self.stack.read(*connection, |bytes| {
                if bytes.starts_with(b"GET ") || bytes.starts_with(b"POST ") {
                    *next = 0;
                }
                bytes.len()
            });
        }
    }
}

/// Runs five requests to a server of these pieces; returns the figures, the number of latencies, and the responses counted
/// meanwhile.
fn play(pieces: Vec<&'static [u8]>, body: Option<&[u8]>) -> (Figures, u64, u64) {
    play_with(Peer::new(pieces), body)
}

fn play_with(peer: Peer, body: Option<&[u8]>) -> (Figures, u64, u64) {
    let (figures, latency, responses) = play_load(peer, body, Some(10.0), 500);
    (figures, latency.count(), responses)
}

/// Runs a load to its end; returns the figures, the latencies, and the responses counted meanwhile.
fn play_load(
    mut peer: Peer,
    body: Option<&[u8]>,
    rate_per_s: Option<f64>,
    duration_ms: u64,
) -> (Figures, Histogram, u64) {
    let context = ClientContext {
        client: 0,
        clients: 1,
        ipv4: Some(Ipv4Addr::new(10, 8, 0, 2)),
        ipv6: None,
        server_ipv4: None,
        server_ipv6: None,
        mtu: MTU,
    };
    let request = HttpRequest {
        url: format!("http://{}/", Peer::ADDRESS),
        method: if body.is_some() { "POST" } else { "GET" }.into(),
        headers: Vec::new(),
        body_base64: body.map(|body| BASE64_STANDARD.encode(body)),
        weight: 1,
    };
    let spec = TunnelTraffic::Http { request, rate_per_s, duration_ms };
    let mut http = plan(&spec).unwrap().client(&context).unwrap();
    let (out, rolled) = mpsc::channel();
    let (mut recorder, counters) = (Recorder::new(METRICS.len(), 0, out), FlowCounters::default());
    http.start(0);
    let mut now_ns = 0;
    while !http.is_done() {
        now_ns += 1_000_000;
        assert!(now_ns < 10_000_000_000, "the load ends");
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let keep = |packets: &mut Vec<Vec<u8>>, packet: &[u8]| {
            packets.push(packet.to_vec());
            true
        };
        let mut send = |packet: &[u8]| keep(&mut up, packet);
        http.poll(now_ns, &mut Channel { send: &mut send, recorder: &mut recorder, counters: &counters });
        up.iter().for_each(|packet| assert!(peer.stack.handle(now_ns, packet)));
        peer.act();
        peer.stack.poll(now_ns, &mut |packet| keep(&mut down, packet));
        for connection in peer.to_reset.as_mut().map(std::mem::take).unwrap_or_default() {
            peer.stack.abort(connection);
        }
        peer.stack.poll(now_ns, &mut |packet| keep(&mut down, packet));
        let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters };
        down.iter().for_each(|packet| http.payload(now_ns, packet, &mut channel));
    }
    let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters };
    let figures = http.finish(now_ns, &mut channel);
    recorder.finish();
    let mut collector = Collector::new(METRICS);
    rolled.try_iter().for_each(|one| collector.take(one));
    (figures, collector.total(Metric::Latency as usize), counters.received_units())
}

/// Requests: due, sent, answered, unanswered, unsent; and errors.
fn fates(figures: &Figures) -> ([u64; 5], &BTreeMap<&'static str, u64>) {
    let [due, sent, unanswered, unsent] =
        ["requests_due", "requests_sent", "unanswered", "unsent"].map(|name| figures.counts[name]);
    let answered = flow(figures, Direction::Up).received_units.unwrap();
    assert_eq!(figures.counts.get("status_2xx").copied().unwrap_or(0), answered);
    ([due, sent, answered, unanswered, unsent], &figures.errors)
}

#[test]
fn unsolicited_bytes_fail_only_their_request() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (figures, latencies, answers) = play(vec![OK], None);
    assert_eq!((fates(&figures), latencies, answers), (([5, 5, 5, 0, 0], &BTreeMap::new()), 5, 5));
    // The additional bytes may be a part of the response, so the request has none.
    let unsolicited = BTreeMap::from([("malformed_unsolicited_bytes", 5)]);
    let (figures, latencies, answers) = play(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more"], None);
    assert_eq!((fates(&figures), latencies, answers), (([5, 5, 0, 0, 0], &unsolicited), 0, 0));
    // Bytes that arrive later, on an idle connection, are an error without a request.
    let (figures, latencies, answers) = play(vec![OK, b" and more"], None);
    assert_eq!((fates(&figures), latencies, answers), (([5, 5, 5, 0, 0], &unsolicited), 5, 5));
}

#[test]
fn a_response_that_arrives_together_with_a_reset_is_complete() {
    let peer = Peer::new(vec![
        b"HTTP/1.1 200 OK
Content-Length: 2

ok",
    ]);
    let (figures, latencies, answers) = play_with(Peer { to_reset: Some(Vec::new()), ..peer }, None);
    assert_eq!((fates(&figures), latencies, answers), (([5, 5, 5, 0, 0], &BTreeMap::new()), 5, 5));
    assert_eq!(figures.counts["connections"], 6, "one for each, and one after the last");
    // A part of one is none.
    let peer = Peer::new(vec![
        b"HTTP/1.1 200 OK
Content-Length: 2

o",
    ]);
    let (figures, latencies, answers) = play_with(Peer { to_reset: Some(Vec::new()), ..peer }, None);
    let reset = BTreeMap::from([("connection_reset", 2)]);
    // The rest after each failure leaves no time for three of them.
    assert_eq!((fates(&figures), latencies, answers), (([5, 2, 0, 0, 3], &reset), 0, 0));
}

#[test]
fn slow_answers_after_the_end_keep_their_latency() {
    const SLOW: usize = 900;
    let mut pieces: Vec<&'static [u8]> = vec![b""; SLOW];
    pieces.push(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (figures, latency, answers) = play_load(Peer::new(pieces), None, None, 1000);
    // The second request is due with the first answer, and answered when the time of the load is over.
    assert_eq!((fates(&figures), latency.count(), answers), (([2, 2, 2, 0, 0], &BTreeMap::new()), 2, 2));
    let slow_ns = SLOW as u64 * 1_000_000;
    let (shortest, longest) = (latency.quantile_ns(0.0).unwrap(), latency.max_ns().unwrap());
    assert!(slow_ns <= shortest && longest < slow_ns + slow_ns / 100, "{latency:?}");
}

#[test]
fn early_answer_counts_the_request_as_sent() {
    let long = vec![b'x'; 100 << 10];
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (figures, latencies, answers) = play(vec![answer], Some(&long));
    assert_eq!((fates(&figures), latencies, answers), (([5, 5, 5, 0, 0], &BTreeMap::new()), 5, 5));
}
