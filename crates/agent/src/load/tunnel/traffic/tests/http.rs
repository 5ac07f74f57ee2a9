//! HTTP through tunnels: what is answered, at its rate and back to back, and what is left of requests that are not.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc;

use leadline_wire::{Direction, HttpAnswer, HttpRequest, TunnelTraffic};

use super::{flow, ipv4, ipv6, Lab, Way, MTU};
use crate::load::threads::{Collector, FlowCounters, Recorder};
use crate::load::tunnel::metric::{Metric, METRICS};
use crate::load::tunnel::traffic::{plan, Channel, Seat};

#[test]
fn requests_are_answered_at_their_rate_and_back_to_back() {
    let Some(lab) = Lab::new(HttpAnswer { close_after: Some(7), ..HttpAnswer::default() }) else { return };
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
        let found = lab.run(&spec, 2, Way::default());
        let mut answered = 0;
        for figures in &found.figures {
            let (flow, counts) = (flow(figures, Direction::Up), &figures.counts);
            assert_eq!(figures.errors, BTreeMap::new());
            assert!(rate_per_s.is_none() || counts["requests_due"] == 30);
            assert_eq!((flow.sent_units, flow.received_units), (Some(counts["requests_due"]), flow.sent_units));
            assert_eq!((counts["status_2xx"], counts["unsent"]), (counts["requests_sent"], 0));
            assert!(counts["requests_sent"] >= 20 && counts["connections"] >= counts["requests_sent"] / 7);
            answered += counts["requests_sent"];
        }
        assert_eq!((found.histograms["latency"], found.histograms["service"]), (answered, answered));
    }
}

#[test]
fn requests_that_were_due_and_never_begun_leave_their_ages() {
    let seat = Seat {
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
    let mut http = plan(&spec).unwrap().client(&seat).unwrap();
    let (out, rolled) = mpsc::channel();
    let (mut recorder, counters) = (Recorder::new(METRICS.len(), 0, out), FlowCounters::default());
    http.start(0);
    // Nothing that it sends arrives, so that its connection never opens.
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
    let within = |found: Option<u64>, wanted: u64| found.is_some_and(|found| found.abs_diff(wanted) <= wanted / 1000);
    assert!(within(ages.max_ns(), 1_000_000_000) && within(ages.quantile_ns(0.0), 10_000_000), "{ages:?}");
    assert_eq!(figures.flows[0].latency_max_us, None);
}

#[test]
fn a_slow_server_keeps_its_latency_when_the_time_is_over() {
    let Some(lab) = Lab::new(HttpAnswer { delay_us: 900_000, ..HttpAnswer::default() }) else { return };
    let request = HttpRequest {
        url: format!("http://{}:8080/", ipv4(lab.number, 1)),
        method: "GET".into(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    };
    let found = lab.run(&TunnelTraffic::Http { request, rate_per_s: None, duration_ms: 1000 }, 2, Way::default());
    let answered: u64 = found.figures.iter().map(|figures| figures.counts["status_2xx"]).sum();
    assert_eq!(found.latency.count(), answered);
    assert!(answered >= 2 && found.latency.quantile_ns(0.0) >= Some(899_000_000), "{:?}", found.latency);
}

#[test]
fn back_to_back_requests_are_due_when_the_answer_before_came() {
    let Some(lab) = Lab::new(HttpAnswer { close_after: Some(1), ..HttpAnswer::default() }) else { return };
    let request = HttpRequest {
        url: format!("http://{}:8080/", ipv4(lab.number, 1)),
        method: "GET".into(),
        headers: Vec::new(),
        body_base64: None,
        weight: 1,
    };
    let found = lab.run(&TunnelTraffic::Http { request, rate_per_s: None, duration_ms: 400 }, 1, Way::default());
    assert!(found.latency.count() > 2, "{:?}", found.figures);
    // The server ends each connection: all but the first request waited for theirs, which no request is sent before.
    assert!(found.latency.quantile_ns(0.5) > found.service.quantile_ns(0.5), "{:?}", found.histograms);
}
