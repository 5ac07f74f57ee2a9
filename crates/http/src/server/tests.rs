//! A server connection in virtual time: order, delays, errors, closing, chunks and memory limits.

use super::{ServerConnection, MOST_WAITING, OUTPUT_LIMIT_BYTES};
use crate::behaviour::{Behaviour, DelayShape};
use crate::responder::Setup;
use crate::{Responder, Response, ResponseParser};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const MS: u64 = 1_000_000;

fn responder(behaviour: Behaviour) -> Responder {
    Responder::group(1, Setup { behaviour, stalls: None, started_ns: 0, engine: "none".into() }).remove(0)
}

fn plain() -> Responder {
    responder(Behaviour::default())
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Takes all output, in pieces of at most `limit`.
fn drained(server: &mut ServerConnection, responder: &mut Responder, now_ns: u64, limit: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    while server.has_output() {
        let (out, stream) = server.output();
        let bytes: Vec<u8> = out.iter().copied().chain(stream.flatten().copied()).take(limit).collect();
        server.sent(responder, now_ns, bytes.len());
        sent.extend(bytes);
    }
    sent
}

fn parsed(mut bytes: &[u8]) -> Vec<Response> {
    let mut parser = ResponseParser::new(false);
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let fed = parser.feed(bytes).unwrap();
        responses.extend(fed.response);
        bytes = &bytes[fed.consumed..];
    }
    responses
}

fn statuses(bytes: &[u8]) -> Vec<u16> {
    parsed(bytes).iter().map(|response| response.status).collect()
}

#[test]
fn pipelined_answers_keep_their_order_whatever_their_delays() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    let pipeline = [
        get("/?status=201&delay=5ms"),
        get("/?status=202"),
        get("/?status=203&delay=2ms"),
        get("/?status=206&delay=9ms"),
    ];
    server.receive(&mut responder, 0, pipeline.concat().as_bytes());
    assert!(!server.has_output() && server.wants_input());
    assert_eq!(server.wake_at(), Some(5 * MS));
    server.wake(&mut responder, 5 * MS - 1);
    assert!(!server.has_output());
    server.wake(&mut responder, 5 * MS);
    assert_eq!(server.wake_at(), None, "output has to be sent first");
    let sent = drained(&mut server, &mut responder, 5 * MS, usize::MAX);
    assert_eq!(statuses(&sent), [201, 202, 203], "the later responses were due earlier");
    assert_eq!(server.wake_at(), Some(9 * MS));
    server.wake(&mut responder, 9 * MS);
    assert_eq!(statuses(&drained(&mut server, &mut responder, 9 * MS, usize::MAX)), [206]);
    assert_eq!(server.wake_at(), None);
}

#[test]
fn a_continue_does_not_overtake_an_answer() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    let post = "POST /?status=202 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    server.receive(&mut responder, 0, [&get("/?delay=1ms"), post].concat().as_bytes());
    assert!(!server.has_output());
    server.wake(&mut responder, MS);
    let sent = String::from_utf8(drained(&mut server, &mut responder, MS, 7)).unwrap();
    assert!(sent.starts_with("HTTP/1.1 200") && sent.ends_with("HTTP/1.1 100 Continue\r\n\r\n"), "{sent}");
    server.receive(&mut responder, MS, b"ab");
    assert_eq!(statuses(&drained(&mut server, &mut responder, MS, usize::MAX)), [202]);
}

#[test]
fn pending_answers_are_bounded_and_resume() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    let many = 3 * MOST_WAITING;
    server.receive(&mut responder, 0, get("/?delay=1ms").repeat(many).as_bytes());
    assert!(!server.wants_input());
    assert_eq!(responder.requests(), MOST_WAITING as u64);
    let (mut now_ns, mut answers) = (0, 0);
    while let Some(at_ns) = server.wake_at() {
        now_ns = at_ns;
        server.wake(&mut responder, now_ns);
        answers += parsed(&drained(&mut server, &mut responder, now_ns, usize::MAX)).len();
    }
    assert_eq!((answers, now_ns), (many, 3 * MS), "the delay of held requests begins when they are read");
    assert!(server.wants_input());
}

#[test]
fn unread_responses_hold_back_further_responses() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    server.receive(&mut responder, 0, GET.repeat(5_000).as_bytes());
    assert!(server.output().0.len() < OUTPUT_LIMIT_BYTES + 200 && !server.wants_input());
    let answered = responder.requests();
    assert!(answered < 250, "{answered}");
    let sent = drained(&mut server, &mut responder, 0, 1000);
    assert_eq!(parsed(&sent).len(), 5_000);
    assert_eq!(responder.requests(), 5_000);
    assert!(server.wants_input());
}

#[test]
fn error_share_is_exact_and_errors_keep_the_body_size() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    server.receive(&mut responder, 0, get("/?errors=0.25&size=7").repeat(1000).as_bytes());
    let answers = parsed(&drained(&mut server, &mut responder, 0, usize::MAX));
    let errors: Vec<usize> = (0..1000).filter(|n| answers[*n].status == 500).collect();
    assert_eq!(errors, (0..250).map(|n| 4 * n + 3).collect::<Vec<_>>());
    assert!(answers.iter().all(|answer| answer.body_bytes == 7));
}

#[test]
fn connection_closes_after_the_configured_number_of_responses() {
    let behaviour = Behaviour { close_after: Some(3), ..Behaviour::default() };
    let (mut server, mut responder) = (ServerConnection::default(), responder(behaviour));
    server.receive(&mut responder, 0, GET.repeat(5).as_bytes());
    let answers = parsed(&drained(&mut server, &mut responder, 0, usize::MAX));
    assert_eq!(answers.iter().map(|answer| answer.keep_alive).collect::<Vec<_>>(), [true, true, false]);
    assert!(server.is_finished());
    assert_eq!(responder.requests(), 3);
    let mut delayed = ServerConnection::default();
    delayed.receive(&mut responder, 0, get("/?close=1&delay=1ms").as_bytes());
    assert!(!delayed.is_finished(), "its response is pending");
}

#[test]
fn end_of_input_waits_for_pending_responses() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    server.receive(&mut responder, 0, get("/?delay=1ms").as_bytes());
    server.end_of_input();
    assert!(!server.is_finished() && !server.wants_input());
    server.wake(&mut responder, MS);
    assert_eq!(statuses(&drained(&mut server, &mut responder, MS, usize::MAX)), [200]);
    assert!(server.is_finished());
}

#[test]
fn http_1_0_gets_no_chunks_and_long_bodies_arrive_complete() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    let old = "GET /?chunked=1&size=20000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    server.receive(
        &mut responder,
        0,
        [old, &get("/?chunked=1&size=20000"), &get("/?chunked=1&size=0")].concat().as_bytes(),
    );
    let sent = drained(&mut server, &mut responder, 0, 333);
    let chunked = sent.windows(7).filter(|window| window == b"chunked").count();
    assert_eq!(chunked, 2);
    assert_eq!(parsed(&sent).iter().map(|answer| answer.body_bytes).collect::<Vec<_>>(), [20_000, 20_000, 0]);
}

/// A request that is recognised by its bytes gets the same response as a parsed one, wherever the bytes are split.
#[test]
fn repeated_request_gets_the_same_response() {
    let requests =
        [get("/a"), get("/a"), get("/?status=404"), get("/?status=404"), get("/a"), get("/?size=9&chunked=1")];
    let post = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    let stream = [requests.concat(), format!("{post}abc{post}def"), requests.concat()].concat();
    let mut expected = None;
    for step in [1, 2, 17, 36, 100, stream.len()] {
        let (mut server, mut responder) = (ServerConnection::default(), plain());
        let mut sent = Vec::new();
        for piece in stream.as_bytes().chunks(step) {
            server.receive(&mut responder, 0, piece);
            sent.extend(drained(&mut server, &mut responder, 0, usize::MAX));
        }
        assert_eq!(responder.requests(), 14, "{step}");
        assert_eq!(expected.get_or_insert_with(|| sent.clone()), &sent, "{step}");
    }
}

#[test]
fn random_delays_postpone_responses() {
    let behaviour = Behaviour { delay_ns: MS, shape: DelayShape::Uniform, ..Behaviour::default() };
    let mut responder = responder(behaviour);
    let mut waits = Vec::new();
    for _ in 0..2000 {
        let mut server = ServerConnection::default();
        server.receive(&mut responder, 0, GET.as_bytes());
        waits.push(server.wake_at().unwrap_or(0));
    }
    let mean_ns = waits.iter().sum::<u64>() / 2000;
    assert!(mean_ns.abs_diff(MS) < MS / 20 && waits.iter().all(|wait| *wait <= 2 * MS), "{mean_ns}");
}

#[test]
fn counters_count_each_outcome() {
    let (mut server, mut responder) = (ServerConnection::default(), plain());
    let stream = [get("/?errors=1"), get("/?delay=1ms&status=302"), get("/"), get("/_leadline/stats")].concat();
    server.receive(&mut responder, 0, stream.as_bytes());
    server.wake(&mut responder, MS);
    let sent = drained(&mut server, &mut responder, MS, usize::MAX);
    let mut broken = ServerConnection::default();
    broken.receive(&mut responder, MS, b"GET  / HTTP/1.1\r\nno colon\r\n");
    assert!(broken.has_output());
    let text = responder.stats(MS);
    let received = stream.len() + 27;
    for field in [
        "\"requests\":3,".to_owned(),
        "\"own_requests\":1,".into(),
        format!("\"bytes_received\":{received},"),
        format!("\"bytes_sent\":{},", sent.len()),
        "\"errors\":1,".into(),
        "\"delayed\":1,".into(),
        "\"by_status\":{\"200\":1,\"302\":1,\"400\":1,\"500\":1}".into(),
        "\"malformed_by_cause\":{\"malformed_".into(),
        "\"engine\":\"none\"".into(),
    ] {
        assert!(text.contains(&field), "{field} in {text}");
    }
    assert_eq!(statuses(&sent), [500, 302, 200, 200]);
}
