//! The truth: a log of 10,000 requests in 500 sessions, written at their ends, so out of order. Each request comes out
//! once, at its time, in its session's order.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use leadline_replay::{Log, LogFormat, OrderLimits, Ordered, Recorded, Source};

const SESSIONS: u64 = 500;
const EACH: u64 = 20;
const FORMAT: &str = r#"$remote_addr:$remote_port [$time_local] "$request" $status $msec $request_time"#;

/// A request as it was: session, number within it, start and duration in ms.
struct Truth {
    session: u64,
    number: u64,
    start_ms: u64,
    duration_ms: u64,
}

/// Sessions of 20 requests, each of which begins after the one before it has ended.
fn make_requests() -> Vec<Truth> {
    let mut requests = Vec::new();
    for session in 0..SESSIONS {
        let mut start_ms = 1_795_960_800_000 + session * 137 % 9000;
        for number in 0..EACH {
            let duration_ms = (session * 31 + number * 17) % 1900 * u64::from(number % 3 != 0);
            requests.push(Truth { session, number, start_ms, duration_ms });
            start_ms += duration_ms + 1 + (session * 7 + number * 13) % 700;
        }
    }
    // A log has them in the order of their ends.
    requests.sort_by_key(|request| (request.start_ms + request.duration_ms, request.session));
    requests
}

fn write_log(requests: &[Truth]) -> String {
    let mut log = String::new();
    for request in requests {
        let end_ms = request.start_ms + request.duration_ms;
        let (second, ms) = (end_ms / 1000, end_ms % 1000);
        let (minute, of_minute) = ((second - 1_795_960_800) / 60, second % 60);
        writeln!(
            log,
            "192.0.2.{}:{} [29/Nov/2026:14:{minute:02}:{of_minute:02} +0000] \"GET /{}/{} HTTP/1.1\" 200 {second}.{ms:03} \
             {}.{:03}",
            request.session % 10,
            10_000 + request.session / 10,
            request.session,
            request.number,
            request.duration_ms / 1000,
            request.duration_ms % 1000
        )
        .expect("a text can be written");
    }
    log
}

fn read(format: &str, log: &str, seed: u64) -> Vec<Recorded> {
    let format = LogFormat::parse(format).expect("it is a format");
    let log = Log::open(log.as_bytes(), Some(format)).expect("it is a log");
    let mut ordered = Ordered::new(log, OrderLimits::default(), seed);
    let requests = std::iter::from_fn(|| ordered.next().expect("a slice can be read")).collect();
    assert_eq!(ordered.causes().iter().count(), 0);
    requests
}

/// Checks that each request is there once, and in its session's order; returns its number by session.
fn check_sessions(requests: &[Recorded]) {
    let mut next: HashMap<u64, (String, u64)> = HashMap::new();
    for request in requests {
        let target = String::from_utf8_lossy(&request.target).into_owned();
        let (session, number) = target[1..].split_once('/').expect("it is /session/number");
        let (own, next) = next.entry(request.session).or_insert_with(|| (session.to_owned(), 0));
        assert_eq!((own.as_str(), number), (session, next.to_string().as_str()), "in its session's order");
        *next += 1;
    }
    assert_eq!(next.len() as u64, SESSIONS);
    assert!(next.values().all(|(_, count)| *count == EACH));
}

#[test]
fn each_request_comes_out_once_at_its_time_in_its_sessions_order() {
    let truths = make_requests();
    let back = truths.windows(2).filter(|pair| pair[1].start_ms < pair[0].start_ms).count();
    assert!(back > 2000, "the log is out of order: {back}");
    let requests = read(FORMAT, &write_log(&truths), 1);
    check_sessions(&requests);
    assert!(requests.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns));
    let starts: HashMap<String, u64> =
        truths.iter().map(|truth| (format!("/{}/{}", truth.session, truth.number), truth.start_ms)).collect();
    for request in &requests {
        let start_ms = starts[String::from_utf8_lossy(&request.target).as_ref()];
        assert_eq!(request.start_ns, start_ms as i64 * 1_000_000);
        assert_eq!(request.precision_ns, 1_000_000);
    }
}

#[test]
fn a_log_of_whole_seconds_keeps_each_second_and_each_session() {
    let truths = make_requests();
    let log = write_log(&truths);
    // The same log as a format without fractions sees it: stamped at the end, without a duration.
    let format = r#"$remote_addr:$remote_port [$time_local] "$request" $status $skip $skip"#;
    let requests = read(format, &log, 1);
    check_sessions(&requests);
    let ends: HashMap<String, u64> = truths
        .iter()
        .map(|truth| (format!("/{}/{}", truth.session, truth.number), (truth.start_ms + truth.duration_ms) / 1000))
        .collect();
    let lines: Vec<_> = truths.iter().map(|truth| format!("/{}/{}", truth.session, truth.number)).collect();
    for (request, line) in requests.iter().zip(&lines) {
        let target = String::from_utf8_lossy(&request.target);
        assert_eq!(&target, line, "lines keep their order");
        assert_eq!(request.start_ns / 1_000_000_000, ends[target.as_ref()] as i64);
    }
    let fractions: HashSet<i64> = requests.iter().map(|request| request.start_ns % 1_000_000_000).collect();
    assert!(fractions.len() > 9_990, "{}", fractions.len());
    let again: Vec<i64> = read(format, &log, 1).iter().map(|request| request.start_ns).collect();
    assert_eq!(again, requests.iter().map(|request| request.start_ns).collect::<Vec<_>>());
}
