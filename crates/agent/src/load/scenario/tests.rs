//! Scenarios over real sockets: what the server counts is what is reported.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use leadline_http::client::{Opening, SocketUse};
use leadline_scenario::connections::{Effects, Origin};
use leadline_scenario::{Limits, Shared, ThreadShare, Tools, VirtualUsers};
use leadline_wire::scenario::ScenarioReport;
use leadline_wire::{Counts, Event, Outcome, ScenarioSpec};
use serde_json::{json, Value};
use socket2::Socket;

use super::effects::WorkerEffects;
use super::plan::Plan;
use super::prepare;
use crate::control_signal::ControlSignal;
use crate::events::Events;
use crate::load::net::io_backend::{EpollBackend, IoBackend as _};
use crate::task::Task;

/// Requests by method and path, as the server counted them.
type Counted = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server that logs in, redirects, fails, is silent and closes without a response.
fn server() -> (u16, Counted) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, counted) = (listener.local_addr().unwrap().port(), Counted::default());
    let counts = Arc::clone(&counted);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || serve(BufReader::new(stream), &counts));
        }
    });
    (port, counted)
}

fn serve(mut stream: BufReader<std::net::TcpStream>, counts: &Counted) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_until(b'\n', &mut head).ok()? == 0 {
                return None;
            }
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
        stream.read_exact(&mut vec![0; length]).ok()?;
        let request = head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
        let knows_token = head.contains("X-Token: t1\r\n") && head.contains("Cookie: sid=5\r\n");
        *counts.lock().unwrap().entry(request.clone()).or_insert(0) += 1;
        let (status, fields, body) = match request.split_once(' ')?.1 {
            "/login" => ("200 OK", "Set-Cookie: sid=5; Path=/\r\n", "{\"token\": \"t1\"}"),
            "/old" => ("302 Found", "Location: /new\r\n", ""),
            "/closed" => return None,
            "/silent" => continue,
            "/cart" if !knows_token => ("403 Forbidden", "", ""),
            _ => ("200 OK", "", "ok"),
        };
        let answer = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

/// The lines of a task's events.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn run(plan: Value, threads: u32) -> Outcome {
    run_telling(plan, threads).0
}

/// Runs a plan; returns its outcome, and the events before it.
fn run_telling(plan: Value, threads: u32) -> (Outcome, Vec<Event>) {
    run_spec(spec(json!({"plan": plan, "threads": threads})))
}

/// A specification, which has defaults here.
fn spec(own: Value) -> ScenarioSpec {
    let mut spec = json!({
        "seed": 1, "cpus": [], "duration_ms": 300_000, "warmup_ms": 0,
        "connections_per_user": 6, "timeouts": {"connect_ms": 180_000, "response_ms": 180_000},
        "route": {"bind": [], "resolve": [], "dns": "run"}, "socket": {"delay": false, "fast_open": false},
        "interval_ms": 100, "samples": {"kind": "all", "with_urls": true},
    });
    for (name, value) in own.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// Runs a specification; returns its outcome, and the events before it.
fn run_spec(spec: ScenarioSpec) -> (Outcome, Vec<Event>) {
    let lines = Lines::default();
    let task = Task {
        trial: "t".to_owned(),
        name: "scenario".to_owned(),
        signal: Arc::new(ControlSignal::default()),
        events: Events::to(Box::new(lines.clone())),
    };
    let outcome = prepare(spec).unwrap().run(0, &task).unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (outcome, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn population(arrivals: Value, flow: Value) -> Value {
    json!({"name": "users", "phase": "main", "arrivals": arrivals, "end": {"kind": "iteration", "grace_ms": 180_000},
        "on_error": "continue", "flow": flow})
}

fn request(port: u16, method: &str, path: &str, more: Value) -> Value {
    let mut request = json!({"kind": "request", "method": [method], "host": ["localhost"], "port": [port.to_string()],
        "path": [path], "uses_cookies": true});
    for (name, value) in more.as_object().unwrap() {
        request[name] = value.clone();
    }
    json!({ "action": request })
}

/// The report and the outcome's counts of sent requests and responses.
fn figures(outcome: &Outcome) -> (&ScenarioReport, u64, u64) {
    let Counts::Http(counts) = &outcome.counts else { panic!("no counts") };
    (outcome.scenario.as_deref().unwrap(), counts.requests_sent, counts.responses)
}

#[test]
fn server_counts_what_is_reported() {
    let (port, counted) = server();
    let token = json!({"variable": "token", "subject": {"kind": "body"},
        "find": {"kind": "json_path", "path": ["$.token"]}, "pick": {"kind": "last"}, "on_miss": {"kind": "fail"}});
    let header = json!({"headers": [{"name": ["X-Token"], "value": [{"op": "variable", "name": "token"}]}]});
    let body = json!({"kind": "text", "text": ["user"]});
    let flow = json!([
        request(port, "POST", "/login", json!({"extractors": [token], "body": body})),
        {"action": {"kind": "loop", "rule": {"kind": "count", "times": {"op": "literal", "value": 3}},
            "nodes": [request(port, "GET", "/cart", header)]}},
        request(port, "GET", "/old", json!({"redirects": 2})),
        request(port, "POST", "/closed", json!({})),
    ]);
    let arrivals = json!({"model": "users", "initial": 4, "first": "at_start", "iterations": 2});
    let (outcome, events) = run_telling(json!({"name": "shop", "populations": [population(arrivals, flow)]}), 2);
    let expected = [("GET /cart", 24), ("GET /new", 8), ("GET /old", 8), ("POST /closed", 8), ("POST /login", 8)];
    let counted: Vec<(String, u64)> = counted.lock().unwrap().clone().into_iter().collect();
    assert_eq!(counted, expected.map(|(name, count)| (name.to_owned(), count)));
    let (report, sent, responses) = figures(&outcome);
    assert_eq!((sent, responses), (56, 48));
    let rows: Vec<(&str, u64, u64, u64)> =
        report.labels.iter().map(|label| (label.name.as_str(), label.ended, label.failed, label.redirects)).collect();
    assert_eq!(
        rows,
        [("POST /login", 8, 0, 0), ("GET /cart", 24, 0, 0), ("GET /old", 8, 0, 8), ("POST /closed", 8, 8, 0)]
    );
    assert_eq!(outcome.errors, BTreeMap::from([("closed_early".to_owned(), 8)]));
    let iterations = &report.populations[0].iterations;
    assert_eq!((iterations.due, iterations.begun, iterations.failed, iterations.completed), (8, 8, 8, 0));
    events_sum_up(report, &events);
    intervals_sum_up(&outcome, &events);
}

/// The distributions of all intervals together have as many values as those of the whole test.
fn intervals_sum_up(outcome: &Outcome, events: &[Event]) {
    let report = outcome.scenario.as_deref().unwrap();
    let mut sums = BTreeMap::<(&str, &str), u64>::new();
    for event in events {
        let Event::Progress { scenario: Some(scenario), histograms, .. } = event else { continue };
        let labels = scenario.labels.iter();
        let labels = labels.flat_map(|label| label.histograms.iter().flatten().map(|own| (&*label.name, own)));
        let populations = scenario.populations.iter();
        let populations = populations.flat_map(|one| one.histograms.iter().map(|own| (&*one.name, own)));
        for (name, own) in histograms.iter().map(|own| ("", own)).chain(labels).chain(populations) {
            *sums.entry((name, &own.metric)).or_default() += own.count;
        }
    }
    let of_requests = ["latency", "service", "first_byte"];
    let requests = outcome.histograms.iter().filter(|own| of_requests.contains(&&*own.metric)).map(|own| ("", own));
    let labels = report.labels.iter().flat_map(|label| label.histograms.iter().map(|own| (&*label.name, own)));
    let populations = report.populations.iter().flat_map(|one| one.histograms.iter().map(|own| (&*one.name, own)));
    let main = populations.clone().map(|(_, own)| ("", own));
    let wholes: BTreeMap<(&str, &str), u64> = requests
        .chain(labels)
        .chain(populations)
        .chain(main)
        .map(|(name, own)| ((name, &*own.metric), own.count))
        .collect();
    assert!(wholes[&("", "iteration")] > 0 && wholes[&("", "service")] > 0);
    sums.retain(|key, _| wholes.contains_key(key));
    assert_eq!(sums, wholes);
}

/// The samples and the progress of all intervals are what the report counts.
fn events_sum_up(report: &ScenarioReport, events: &[Event]) {
    let (mut sampled, mut progressed) = (BTreeMap::<&str, [u64; 4]>::new(), BTreeMap::<&str, [u64; 2]>::new());
    for event in events {
        match event {
            Event::Samples { samples, .. } => {
                assert_eq!((samples.left_out, samples.urls.len()), (0, samples.name.len()));
                for (row, place) in samples.name.iter().enumerate() {
                    let sums = sampled.entry(&samples.names[*place as usize].name).or_default();
                    let failed = samples.failures.iter().any(|failure| failure.row as usize == row);
                    sums[0] += 1;
                    sums[1] += u64::from(failed);
                    sums[2] += samples.sent_bytes[row];
                    sums[3] += samples.received_bytes[row];
                }
            }
            Event::Progress { scenario: Some(scenario), .. } => {
                for label in &scenario.labels {
                    let sums = progressed.entry(&label.name).or_default();
                    *sums = [sums[0] + label.ended, sums[1] + label.failed];
                }
            }
            _ => {}
        }
    }
    for label in &report.labels {
        let own = [label.ended, label.failed, label.sent_bytes, label.received_bytes];
        assert_eq!((sampled[&*label.name], progressed[&*label.name]), (own, [own[0], own[1]]), "{}", label.name);
    }
}

#[test]
fn open_model_sends_its_exact_number() {
    let (port, counted) = server();
    let arrivals = json!({"model": "open", "stages": [{"from_per_s": 500.0, "to_per_s": 500.0, "duration_ms": 400}],
        "spacing": "even", "first": "at_start", "users_at_start": 5, "users_most": null});
    let flow = json!([request(port, "GET", "/a", json!({}))]);
    let outcome = run(json!({"name": "open", "populations": [population(arrivals, flow)]}), 1);
    let (report, sent, _) = figures(&outcome);
    let iterations = &report.populations[0].iterations;
    assert_eq!((iterations.due, iterations.completed, sent), (200, 200, 200));
    assert_eq!(counted.lock().unwrap()["GET /a"], 200);
    assert!(report.populations[0].histograms.iter().any(|one| one.metric == "start_late" && one.count == 200));
}

#[test]
fn more_origins_than_connections_are_all_reached() {
    let (ports, counts): (Vec<u16>, Vec<Counted>) = (0..7).map(|_| server()).unzip();
    let flow: Vec<Value> = ports.iter().map(|port| request(*port, "GET", "/a", json!({}))).collect();
    let arrivals = json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 2});
    // One user may have six connections, to all servers together.
    let outcome = run(json!({"name": "x", "populations": [population(arrivals, json!(flow))]}), 1);
    assert!(counts.iter().all(|counted| counted.lock().unwrap()["GET /a"] == 2));
    let (report, sent, responses) = figures(&outcome);
    assert_eq!((sent, responses, report.populations[0].iterations.completed), (14, 14, 2));
}

#[test]
fn silent_server_does_not_shorten_the_flow() {
    let (port, _) = server();
    let get = |path| request(port, "GET", path, json!({}));
    let arrivals = json!({"model": "users", "initial": 2, "first": "at_start", "duration_ms": 1000});
    let mut silent = population(arrivals, json!([get("/a"), get("/silent")]));
    silent["end"] = json!({"kind": "iteration", "grace_ms": 0});
    let outcome = run(json!({"name": "x", "populations": [silent]}), 1);
    let flow = &outcome.flows[0];
    assert!(flow.end_ns.unwrap() >= flow.due_ns + 1_000_000_000, "{flow:?}");
    // Iterations that are all done end with their last answer.
    let arrivals =
        json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 3, "duration_ms": 100_000});
    let outcome = run(json!({"name": "x", "populations": [population(arrivals, json!([get("/a")]))]}), 1);
    assert_eq!(outcome.flows[0].end_ns, figures(&outcome).0.populations[0].end_ns);
}

#[test]
fn sockets_of_interrupted_users_take_no_further_descriptors() {
    const CONNECTIONS: usize = 4;
    // Nothing accepts the connections: every request stays without an answer.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrivals = json!({"model": "users", "initial": 2, "first": "at_start", "iterations": 1});
    let plan =
        json!({"name": "x", "populations": [population(arrivals, json!([request(port, "GET", "/", json!({}))]))]});
    let plan = Arc::new(Plan::new(&spec(json!({"plan": plan, "threads": 1, "connections": CONNECTIONS}))).unwrap());
    assert_eq!(plan.connections, CONNECTIONS);
    let (limits, share) = (Limits { at_ns: 0, duration_ns: 1, warmup_ns: 0 }, ThreadShare { index: 0, threads: 1 });
    let shared = Arc::new(Shared::new(&plan.program, 1));
    let users = VirtualUsers::new(Arc::clone(&plan.program), shared, Tools::new(0), share, limits);
    let backend = EpollBackend::new(&Arc::from([].as_slice()), CONNECTIONS, 0).unwrap();
    let mut effects = WorkerEffects::new(plan, users, backend, Arc::default(), 0);
    let origin = Origin { is_https: false, host: "127.0.0.1".into(), port };
    let mut most = 0;
    // Two users are interrupted every 10 ms.
    for turn in 0..40 {
        effects.kept.begin_turn(turn * 10_000_000);
        (0..2).for_each(|slot| assert_eq!(effects.open(slot, &origin), Ok(Opening::Connecting)));
        most = most.max(effects.kept.count() + 2);
        (0..2).for_each(|slot| effects.close(slot, SocketUse::Keep));
    }
    assert_eq!((most, effects.kept.count()), (CONNECTIONS, CONNECTIONS));
    effects.kept.begin_turn(2_000_000_000);
    assert_eq!(effects.kept.count(), 0, "a second later");
}

#[test]
fn what_arrives_for_an_interrupted_user_wakes_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut backend = EpollBackend::new(&Arc::from([].as_slice()), 1, 0).unwrap();
    for then in [SocketUse::Keep, SocketUse::Close] {
        let socket = Socket::from(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        backend.connect(0, socket).unwrap();
        backend.connected(0, false).unwrap();
        let kept = backend.detach(0, then).map(|detached| detached.socket).filter(|_| then == SocketUse::Keep);
        far.write_all(b"late").unwrap();
        if let Some(kept) = &kept {
            assert_eq!(kept.peek(&mut [std::mem::MaybeUninit::new(0); 4]).unwrap(), 4, "it has arrived");
        }
        backend.wait(0).unwrap();
        assert!(backend.completion().unwrap().is_none(), "{then:?}");
    }
}

#[test]
fn unknown_host_fails_each_request_and_a_bad_plan_is_refused() {
    let arrivals = json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 1});
    let mut flow = request(1, "GET", "/", json!({"host": ["no-such-host.invalid"]}));
    let outcome = run(json!({"name": "x", "populations": [population(arrivals.clone(), json!([flow]))]}), 1);
    assert_eq!(outcome.errors, BTreeMap::from([("unknown_host".to_owned(), 1)]));
    flow["action"] = json!({"kind": "opaque", "what": "JSR223Sampler", "text": ""});
    flow["source"] = json!({"file": "a.jmx", "line": 3});
    let plan = json!({"name": "x", "populations": [population(arrivals, json!([flow]))]});
    let spec = json!({"plan": plan, "seed": 1, "threads": 1, "cpus": [], "duration_ms": 1, "warmup_ms": 0,
        "connections_per_user": 6, "timeouts": {"connect_ms": 1, "response_ms": 1},
        "route": {"bind": [], "resolve": [], "dns": "run"}, "socket": {"delay": false, "fast_open": false},
        "interval_ms": 100});
    let error = prepare(serde_json::from_value(spec).unwrap()).err().unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("bad_scenario", "a.jmx:3: JSR223Sampler cannot be executed")
    );
}
