//! Tests of request outcomes: whatever a server does, each request counts as exactly one.

use super::simulation::{Action, Sending, ServerRequest};
use super::*;

/// More bytes than any test sends.
const ALL_BYTES: usize = 1 << 20;

/// A load of nine requests over two connections.
fn nine(server: impl FnMut(&ServerRequest<'_>) -> Vec<Reaction> + 'static) -> Ended {
    Load::new(settings(), 2, Simulation::new(server)).run(Some(9), 200 * SECOND)
}

/// A load of batches of three requests over one connection; the server function runs once per batch.
fn threes(number: Option<u64>, simulation: Simulation) -> Ended {
    let script = TestScript::gets(3);
    Load::scripted(settings(), script, Simulation { is_raw: true, ..simulation }).run(number, SECOND)
}

#[test]
fn each_failure_is_counted_by_its_name() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    let bad = "HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n";
    for (name, reactions) in [
        ("closed_early", vec![Reaction::closes(MS)]),
        ("closed_early", vec![Reaction::sends(MS, cut), Reaction::closes(2 * MS)]),
        ("reset", vec![Reaction(MS, Action::Breaks("reset"))]),
        ("malformed_content_length", vec![Reaction::sends(MS, bad)]),
        ("response_timeout", vec![]),
    ] {
        let ended = nine(move |_| reactions.clone());
        assert_eq!(ended.failures(), [(name, 9)]);
        assert_eq!(ended.counts(), [9, 9, 0, 0, 0, 9], "{name}");
        assert!(ended.tally.connections_opened >= 9, "a failed connection is reopened");
        let aged = if name == "response_timeout" { vec![10 * SECOND; 9] } else { Vec::new() };
        assert_eq!(ended.values(Metric::LatencyCensored), aged, "{name}");
        assert_eq!(ended.values(Metric::ServiceCensored), aged, "{name}");
        assert!(ended.values(Metric::Latency).is_empty(), "{name}");
    }
}

#[test]
fn response_times_out_although_a_connection_has_longer() {
    let settings = Settings { connect_timeout_ns: 100 * SECOND, response_timeout_ns: SECOND, ..settings() };
    let ended = Load::new(settings, 1, Simulation::new(|_| Vec::new())).run(Some(3), 1000 * SECOND);
    assert_eq!(ended.failures(), [("response_timeout", 3)]);
    assert_eq!(ended.values(Metric::LatencyCensored), [SECOND; 3]);
}

#[test]
fn a_server_that_closes_after_each_response_is_no_failure() {
    let announced = "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    for reactions in [
        vec![Reaction::sends(MS, announced)],
        vec![Reaction::sends(MS, "HTTP/1.0 503 Busy\r\n\r\nno"), Reaction::closes(2 * MS)],
    ] {
        let ended = nine(move |_| reactions.clone());
        assert_eq!(ended.counts(), [9, 9, 9, 0, 0, 0]);
        assert_eq!((ended.tally.status[5], ended.tally.body_bytes), (9, 18));
        assert_eq!(ended.simulation.examples, [("status_5xx", "GET /: 503".to_owned())].into());
    }
}

#[test]
fn unannounced_close_fails_outstanding_requests() {
    let rude = |request: &ServerRequest<'_>| match request.number {
        0 => vec![Reaction::sends(MS, OK)],
        _ => vec![Reaction(MS, Action::Breaks("reset"))],
    };
    // The second request is sent when the connection breaks after the first response.
    let hasty = |request: &ServerRequest<'_>| match request.number {
        0 => vec![Reaction::sends(MS, OK), Reaction(MS, Action::Breaks("reset"))],
        _ => Vec::new(),
    };
    for simulation in [Simulation::new(rude), Simulation::new(hasty)] {
        let ended = Load::new(settings(), 1, simulation).run(Some(40), SECOND);
        assert_eq!(ended.counts(), [40, 40, 20, 0, 0, 20]);
        assert_eq!(ended.failures(), [("reset", 20)]);
    }
}

#[test]
fn partly_answered_batch_fails_the_rest() {
    let closes = Simulation::new(|_| vec![Reaction::sends(MS, OK), Reaction::closes(2 * MS)]);
    let ended = threes(Some(3), closes);
    assert_eq!((ended.counts(), ended.failures()), ([3, 3, 1, 0, 0, 2], vec![("closed_early", 2)]));
    // The same holds if the response announces that it is the last.
    let last = sends("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let ended = threes(Some(3), last);
    assert_eq!((ended.counts(), ended.failures()), ([3, 3, 1, 0, 0, 2], vec![("closed_early", 2)]));
    assert_eq!(ended.values(Metric::LatencyCensored), [MS; 2]);
}

#[test]
fn response_followed_by_excess_bytes_fails_its_request() {
    let ended = Load::new(settings(), 1, sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more"));
    let ended = ended.run(Some(1), SECOND);
    assert_eq!(ended.counts(), [1, 1, 0, 0, 0, 1]);
    assert_eq!(ended.failures(), [("malformed_unsolicited_bytes", 1)]);
    assert!(ended.values(Metric::Latency).is_empty());
    assert_eq!(ended.tally.status, [0; 10]);
    // The earlier responses of a batch stay valid.
    let four = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(4);
    let simulation = Simulation::new(move |_| vec![Reaction::sends(MS, &four)]);
    assert_eq!(threes(Some(3), simulation).counts(), [3, 3, 2, 0, 0, 1]);
}

#[test]
fn response_that_fails_a_script_counts_once() {
    let fails = TestScript { response: |_, _| Err("no".to_owned()), ..TestScript::gets(1) };
    let ended = Load::scripted(settings(), fails, sends(OK)).run(Some(2), SECOND);
    assert_eq!((ended.counts(), ended.failures()), ([1, 1, 0, 0, 0, 1], vec![("script_error", 1)]));
    assert!(ended.values(Metric::Latency).is_empty());
    // The first request is wanted when the connection is up, the second when the first response arrives.
    let delay_ms = |calls| if calls > 0 { Err("no".to_owned()) } else { Ok(0) };
    let fails = TestScript { delay_ms, ..TestScript::gets(1) };
    let ended = Load::scripted(settings(), fails, sends(OK)).run(Some(2), SECOND);
    assert_eq!((ended.counts(), ended.failures()), ([2, 1, 1, 0, 0, 1], vec![("script_error", 1)]));
    let request = |calls| if calls > 0 { Err("no".to_owned()) } else { Ok("GET / HTTP/1.1\r\n\r\n".to_owned()) };
    let fails = TestScript { request, ..TestScript::gets(1) };
    let ended = Load::scripted(settings(), fails, sends(OK)).run(Some(2), SECOND);
    assert_eq!((ended.counts(), ended.failures()), ([2, 1, 1, 0, 0, 1], vec![("script_error", 1)]));
}

#[test]
fn script_delays_its_connection() {
    let waits = TestScript { delay_ms: |_| Ok(20), ..TestScript::gets(1) };
    let ended = Load::scripted(settings(), waits, sends(OK)).run(Some(3), SECOND);
    assert_eq!(ended.counts(), [3, 3, 3, 0, 0, 0]);
    // The delay is not part of a latency: a request is due when its delay ends.
    assert_eq!(ended.values(Metric::Latency), [MS; 3]);
    assert_eq!(ended.tally.last_ns, Some(START_NS + 43 * MS));
}

#[test]
fn requests_that_the_kernel_has_when_their_connection_breaks_are_sent_and_failed() {
    for reaction in [Reaction::closes(MS), Reaction(MS, Action::Breaks("reset"))] {
        let simulation = Simulation::new(move |_| vec![reaction.clone()]);
        let ended = threes(Some(3), Simulation { sending: Sending::Silent(ALL_BYTES), ..simulation });
        assert_eq!(ended.counts(), [3, 3, 0, 0, 0, 3]);
    }
}

#[test]
fn failed_send_waits_for_an_earlier_response() {
    let refuses = |then: Vec<Reaction>| {
        let reactions: Vec<Reaction> = std::iter::once(Reaction(MS, Action::TakesBack(7))).chain(then).collect();
        Load::new(settings(), 1, Simulation::new(move |_| reactions.clone())).run(Some(1), SECOND)
    };
    let silent = refuses(vec![Reaction::closes(2 * MS)]);
    assert_eq!((silent.counts(), silent.failures()), ([1, 0, 0, 0, 0, 1], vec![("reset", 1)]));
    let answered = refuses(vec![Reaction::sends(2 * MS, OK), Reaction::closes(3 * MS)]);
    assert_eq!(answered.counts(), [1, 0, 1, 0, 0, 0]);
    assert_eq!((silent.tally.cut_off, answered.tally.cut_off), (1, 1));
}

#[test]
fn upload_that_ends_before_it_is_written_is_cut_off_and_not_sent() {
    let refused = "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    // The other server answers at once and would go on reading.
    for answer in [refused, OK] {
        for (taken_bytes, sent, cut_off) in [(10, 0, 9), (ALL_BYTES, 9, 0)] {
            let simulation = Simulation { sending: Sending::Silent(taken_bytes), ..sends(answer) };
            let ended = Load::new(settings(), 2, simulation).run(Some(9), SECOND);
            assert_eq!(ended.counts(), [9, sent, 9, 0, 0, 0], "{taken_bytes}");
            assert_eq!(ended.tally.cut_off, cut_off, "{taken_bytes}");
        }
    }
    for reaction in [Reaction::closes(MS), Reaction(MS, Action::Breaks("reset"))] {
        let simulation = Simulation::new(move |_| vec![reaction.clone()]);
        let ended = threes(Some(3), Simulation { sending: Sending::Silent(10), ..simulation });
        assert_eq!((ended.counts(), ended.tally.cut_off), ([3, 0, 0, 0, 0, 3], 3));
    }
}

#[test]
fn upload_whose_promised_rest_was_not_taken_is_cut_off() {
    let refused = "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let ended = Load::new(settings(), 1, Simulation { left_bytes: 7, ..sends(refused) }).run(Some(3), SECOND);
    assert_eq!((ended.counts(), ended.tally.cut_off), ([3, 0, 3, 0, 0, 0], 3));
}

#[test]
fn a_request_is_sent_when_it_is_handed_to_the_kernel() {
    const QUEUE_NS: u64 = 40 * MS;
    let simulation = Simulation { queue_ns: QUEUE_NS, ..sends(OK) };
    let ended = Load::new(settings(), 1, simulation).run(Some(2), SECOND);
    assert_eq!(ended.counts(), [2, 2, 2, 0, 0, 0]);
    assert_eq!(ended.values(Metric::Late), [QUEUE_NS; 2]);
    assert_eq!(ended.values(Metric::Service), [MS; 2]);
    assert_eq!(ended.values(Metric::Latency), [QUEUE_NS + MS; 2]);
}

#[test]
fn a_response_in_pieces_has_a_transfer_time() {
    let (head, body) = OK.split_at(OK.len() - 1);
    let simulation = Simulation::new(move |_| vec![Reaction::sends(MS, head), Reaction::sends(3 * MS, body)]);
    let ended = Load::new(settings(), 1, simulation).run(Some(1), SECOND);
    let values = [Metric::Service, Metric::FirstByte, Metric::Transfer].map(|metric| ended.values(metric));
    assert_eq!(values, [vec![3 * MS], vec![MS], vec![2 * MS]]);
}

#[test]
fn redirects_are_followed_within_limits() {
    let server = |request: &ServerRequest<'_>| {
        let (status, location) = match request.line().as_str() {
            "GET /end" => return vec![Reaction::sends(MS, OK)],
            "GET /a" => (302, "b"),
            "GET /b" => (301, "/end"),
            _ => (302, "http://elsewhere.example/"),
        };
        let head = format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        vec![Reaction::sends(MS, head)]
    };
    for (url, redirects, followed, class) in
        [("http://a/a", 0, 0, 3), ("http://a/a", 1, 1, 3), ("http://a/a", 5, 2, 2), ("http://a/x", 5, 0, 3)]
    {
        let settings = Settings { redirects, ..settings_of(&[url]) };
        let ended = Load::new(settings, 2, Simulation::new(server)).run(Some(30), SECOND);
        assert_eq!(ended.counts(), [30, 30, 30, 0, 0, 0], "{url} {redirects}");
        assert_eq!((ended.tally.status[class], ended.tally.redirects), (30, 30 * followed));
        assert_eq!(ended.simulation.request_lines.len() as u64, 30 * (1 + followed));
        // A request's latency lasts until its last response.
        assert_eq!(ended.values(Metric::Latency), [(1 + followed) * MS; 30]);
    }
}

#[test]
fn redirect_before_its_request_is_sent_is_a_response() {
    let server = |request: &ServerRequest<'_>| match request.line().as_str() {
        "GET /b" => vec![Reaction::sends(MS, OK)],
        _ => vec![Reaction::sends(MS, "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n")],
    };
    // Nothing is known to be sent of the first request, and its rest would be read as part of the next. A request
    // that was sent is followed, and both count as one request.
    for (sending, sent, redirects) in [(Sending::Silent(0), 0, 0), (Sending::Reported(0), 1, 1)] {
        let settings = Settings { redirects: 5, ..settings() };
        let ended = Load::new(settings, 1, Simulation { sending, ..Simulation::new(server) }).run(Some(1), SECOND);
        assert_eq!((ended.counts(), ended.tally.redirects), ([1, sent, 1, 0, 0, 0], redirects));
    }
}

#[test]
fn requests_take_turns_and_the_first_failure_of_each_name_is_kept() {
    let server = |request: &ServerRequest<'_>| match request.line().as_str() {
        "GET /bad" => vec![Reaction::sends(MS, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n")],
        _ => vec![Reaction::sends(MS, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")],
    };
    let settings = settings_of(&["http://a/bad", "http://a/busy"]);
    let ended = Load::new(settings, 1, Simulation::new(server)).run(Some(40), SECOND);
    assert_eq!((ended.counts(), ended.failures()), ([40, 40, 20, 0, 0, 20], vec![("malformed_content_length", 20)]));
    assert_eq!(ended.simulation.examples["status_5xx"], "GET /busy: 503");
    assert!(!ended.simulation.examples["malformed_content_length"].is_empty());
}
