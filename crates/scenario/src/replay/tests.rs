//! The machine of a replay against a scripted server, on a virtual clock.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;

use leadline_http::Url;

use super::*;
use crate::executors::Limits;
use crate::programs::flow::{Effect, ExchangeEnd, ExchangeFailure, Send};
use crate::shared::Shared;
use crate::users::Users;

const MS: u64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;

/// What the server answers: status, header fields, body; and after how long.
type Reply = Option<(u16, &'static str, String, u64)>;

struct Run {
    /// When each request was sent, ms, its user and its text.
    got: Vec<(u64, u32, String)>,
    replayed: Replayed,
    end_ms: u64,
}

fn request(session: u64, at_ms: u64, target: &str) -> ReplayRequest {
    ReplayRequest {
        due_ns: at_ms * MS,
        source_ns: SECOND + (at_ms * MS) as i64,
        source_end_ns: None,
        session,
        record: at_ms,
        role: Role::First,
        roles: 1,
        label: 0,
        url: Url::parse(&format!("http://server.test{target}")).unwrap(),
        method: b"GET".as_slice().into(),
        fields: b"Host: server.test\r\n".as_slice().into(),
        cookie: Box::default(),
        body: Box::default(),
        before: None,
    }
}

fn before(status: u16, head: &str, body: &str) -> Option<Arc<Answer>> {
    Some(Arc::new(Answer::recorded(Some(status), head.to_owned(), Some(body.as_bytes().to_vec()))))
}

fn run(requests: Vec<ReplayRequest>, duration_ms: u64, serve: impl FnMut(&str, u64) -> Reply) -> Run {
    run_with(AnswerUse { compares: true, correlates: true }, |_| (), requests, duration_ms, serve)
}

fn run_with(
    answers: AnswerUse,
    change: impl FnOnce(&mut Replayed),
    requests: Vec<ReplayRequest>,
    duration_ms: u64,
    mut serve: impl FnMut(&str, u64) -> Reply,
) -> Run {
    let program = Arc::new(replay_program("replay", 1));
    let shared = Arc::new(Shared::new(&program, 1));
    let limits = Limits { at_ns: 0, duration_ns: duration_ms * MS, warmup_ns: 0 };
    let (outbox, inbox) = sync_channel(1);
    outbox.send(requests).unwrap();
    drop(outbox);
    let mut replayed = Replayed::new(program, shared, limits, 0, answers, Some(inbox));
    change(&mut replayed);
    let mut ends: BTreeMap<(u64, u32, u32), (u64, Reply)> = BTreeMap::new();
    let (mut now_ns, mut got) = (0, Vec::new());
    for _ in 0..100_000 {
        let next_ns = replayed.run(now_ns);
        while let Some(effect) = replayed.effect() {
            match effect {
                Effect::Send(send) => {
                    let Send { user, exchange, outgoing, .. } = *send;
                    let text = String::from_utf8_lossy(&outgoing.bytes).into_owned();
                    let reply = serve(&text, now_ns / MS);
                    let after_ms = reply.as_ref().map_or(1, |(.., after_ms)| *after_ms);
                    got.push((now_ns / MS, user, text));
                    ends.insert((now_ns + after_ms * MS, user, exchange), (now_ns, reply));
                }
                Effect::Cancel { user } => ends.retain(|(_, own, _), _| *own != user),
                Effect::CloseConnections { .. } => {}
            }
        }
        if replayed.is_done() {
            return Run { got, replayed, end_ms: now_ns / MS };
        }
        let first_end_ns = ends.first_key_value().map(|((at_ns, ..), _)| *at_ns);
        now_ns = [next_ns, first_end_ns].into_iter().flatten().min().unwrap().max(now_ns);
        while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let ((at_ns, user, exchange), (sent_ns, reply)) = entry.remove_entry();
            match reply {
                Some((status, head, body, _)) => {
                    let end = ExchangeEnd {
                        status,
                        reason: "",
                        head,
                        body: body.as_bytes(),
                        body_bytes: body.len() as u64,
                        sent_ns,
                        first_ns: at_ns,
                        done_ns: at_ns,
                        sent_bytes: 1,
                        received_bytes: 1,
                        opening: None,
                    };
                    replayed.answered(user, exchange, &end, at_ns);
                }
                None => {
                    let failure = ExchangeFailure {
                        cause: "reset".into(),
                        detail: "reset".to_owned(),
                        timed_out: false,
                        sent_ns: Some(sent_ns),
                        sent_bytes: 1,
                        received_bytes: 0,
                        opening: None,
                    };
                    replayed.failed(user, exchange, failure, at_ns);
                }
            }
        }
    }
    panic!("the replay does not end");
}

fn lines(run: &Run) -> Vec<(u64, &str)> {
    run.got.iter().map(|(at_ms, _, text)| (*at_ms, text.lines().next().unwrap())).collect()
}

fn ok(after_ms: u64) -> Reply {
    Some((200, "", String::new(), after_ms))
}

#[test]
fn requests_are_sent_when_they_are_due_each_once() {
    let requests = (0..1000).map(|number| request(number % 50, number * 3, &format!("/{number}"))).collect();
    let mut run = run(requests, 60_000, |_, _| ok(2));
    let expected: Vec<(u64, String)> =
        (0..1000).map(|number| (number * 3, format!("GET /{number} HTTP/1.1"))).collect();
    assert_eq!(lines(&run), expected.iter().map(|(at_ms, line)| (*at_ms, line.as_str())).collect::<Vec<_>>());
    let iterations = run.replayed.figures().populations[0].iterations.clone();
    assert_eq!((iterations.due, iterations.completed, iterations.late), (1000, 1000, 0));
    assert_eq!((run.replayed.counts().sessions, run.replayed.counts().waited), (50, 0));
}

#[test]
fn request_waits_for_the_answer_before_it_unless_they_overlapped() {
    let overlapping = |at_ms: u64| ReplayRequest {
        source_end_ns: Some(SECOND + ((at_ms + 100) * MS) as i64),
        ..request(2, at_ms, "/o")
    };
    let requests = vec![
        request(1, 0, "/a"),
        overlapping(0),
        request(1, 10, "/b"),
        overlapping(10),
        request(1, 20, "/c"),
        request(2, 200, "/after"),
    ];
    let mut run = run(requests, 60_000, |_, _| ok(250));
    let got = lines(&run);
    let at = |line: &str| got.iter().filter(|(_, own)| own.contains(line)).map(|(at_ms, _)| *at_ms).collect::<Vec<_>>();
    assert_eq!((at("/a "), at("/b "), at("/c ")), (vec![0], vec![250], vec![500]));
    assert_eq!((at("/o "), at("/after ")), (vec![0, 10], vec![260]));
    // They were sent as soon as they could be: the generator was not late, the target was slow.
    assert_eq!(run.replayed.figures().populations[0].iterations.late, 0);
    let counts = run.replayed.counts();
    assert_eq!((counts.waited, counts.behind.count()), (3, 6));
    let behind_ms = counts.behind.quantile_ns(1.0).unwrap() / MS;
    assert!((475..=485).contains(&behind_ms), "/c was due at 20 ms and sent at 500 ms: {behind_ms}");
}

#[test]
fn session_keeps_its_cookies_and_gets_new_tokens() {
    let login = ReplayRequest {
        before: before(200, "Set-Cookie: sid=old-session; Path=/\n", r#"{"token":"token-before"}"#),
        ..request(7, 0, "/login")
    };
    let next = ReplayRequest {
        cookie: b"sid=old-session; lang=en".as_slice().into(),
        fields: b"Host: server.test\r\nAuthorization: Bearer token-before\r\n".as_slice().into(),
        ..request(7, 10, "/items?token=token-before")
    };
    let other = ReplayRequest { cookie: b"sid=old-session".as_slice().into(), ..request(8, 20, "/x?t=token-before") };
    let run = run(vec![login, next, other], 60_000, |text, _| {
        if text.contains("/login") {
            Some((200, "Set-Cookie: sid=new; Path=/\n", r#"{"token":"token-now"}"#.to_owned(), 1))
        } else {
            ok(1)
        }
    });
    let text = &run.got[1].2;
    assert!(text.starts_with("GET /items?token=token-now HTTP/1.1\r\n"), "{text}");
    assert!(
        text.contains("Authorization: Bearer token-now\r\n") && text.contains("Cookie: lang=en; sid=new\r\n"),
        "{text}"
    );
    assert!(run.got[2].2.contains("t=token-before") && run.got[2].2.contains("sid=old-session"), "of another session");
    assert_eq!(run.replayed.counts().replaced, 3);
}

#[test]
fn changed_answer_is_found_and_a_noisy_field_is_not() {
    let body = |price: u32, at: u64| format!(r#"{{"price":{price},"at":{at},"name":"x"}}"#);
    let mut requests = Vec::new();
    for number in 0..20 {
        for role in [Role::First, Role::Again] {
            let before = before(200, "", &body(5, 1));
            requests.push(ReplayRequest {
                role,
                roles: 2,
                record: number,
                before,
                session: number * 4 + role as u64,
                ..request(0, number * 10, &format!("/item/{number}"))
            });
        }
    }
    let mut served = 0;
    let run = run(requests, 60_000, |text, _| {
        served += 1;
        let price = if text.contains("/item/7 ") { 6 } else { 5 };
        Some((200, "", body(price, served), 1))
    });
    let differences = &run.replayed.counts().differences;
    assert_eq!((differences.compared, differences.differing()), (20, 1));
    let part = |name: &str| differences.parts[&(0, name.to_owned())].clone();
    assert_eq!((part("price").count, part("price").example), (1, Some(("5".into(), "6".into()))));
    assert!(differences.noise.contains(&(0, "at".to_owned())) && !differences.noise.contains(&(0, "price".to_owned())));
}

#[test]
fn two_targets_are_compared_with_each_other() {
    let mut requests = Vec::new();
    for (role, host) in [(Role::First, "one.test"), (Role::Second, "two.test")] {
        let url = Url::parse(&format!("http://{host}/x")).unwrap();
        requests.push(ReplayRequest {
            role,
            roles: 2,
            url,
            label: role as u32,
            session: 4 + role as u64,
            ..request(0, 5, "/x")
        });
    }
    let mut number = 0;
    let run = run(requests, 60_000, |_, _| {
        number += 1;
        Some((if number == 1 { 200 } else { 404 }, "", "same".to_owned(), 1))
    });
    let differences = &run.replayed.counts().differences;
    assert_eq!((differences.compared, differences.differing()), (1, 1));
    assert_eq!(differences.parts.keys().collect::<Vec<_>>(), [&(0, "status".to_owned())]);
}

#[test]
fn status_of_the_source_is_no_failure() {
    let with = |was: Option<u16>, at_ms| ReplayRequest {
        before: was.map(|was| Arc::new(Answer { status: Some(was), ..Answer::default() })),
        ..request(at_ms, at_ms, "/")
    };
    let mut run =
        run(vec![with(Some(404), 0), with(Some(200), 1), with(None, 2)], 60_000, |_, _| Some((404, "", "x".into(), 1)));
    assert_eq!(run.replayed.figures().labels[0].errors.get("status_404"), Some(&2));
    let differences = &run.replayed.counts().differences;
    assert_eq!((differences.compared, differences.differing()), (2, 1));
}

#[test]
fn end_of_the_time_counts_what_was_left() {
    let requests = vec![request(1, 0, "/a"), request(1, 10, "/b"), request(2, 90, "/c"), request(3, 200, "/d")];
    let mut run = run(requests, 100, |text, _| if text.contains("/a") { ok(1_000_000) } else { ok(1) });
    let iterations = run.replayed.figures().populations[0].iterations.clone();
    assert_eq!((iterations.due, iterations.completed, iterations.interrupted, iterations.not_begun), (3, 1, 1, 1));
    assert_eq!((run.end_ms, run.replayed.tried_until_ns()), (5_100, Some(100 * MS)));
}

#[test]
fn failed_request_does_not_hold_its_session_back() {
    let mut run =
        run(
            vec![request(1, 0, "/a"), request(1, 0, "/b")],
            60_000,
            |text, _| {
                if text.contains("/a") {
                    None
                } else {
                    ok(1)
                }
            },
        );
    let iterations = run.replayed.figures().populations[0].iterations.clone();
    assert_eq!((iterations.completed, iterations.failed, run.got.len()), (1, 1, 2));
}

#[test]
fn requests_that_wait_too_long_behind_a_slow_target_are_dropped_and_counted() {
    let large = |at_ms| ReplayRequest { body: vec![0; 64 << 10].into(), ..request(1, at_ms, "/") };
    let answers = AnswerUse { compares: true, correlates: true };
    let bound = |replayed: &mut Replayed| replayed.bound_waiting(256 << 10);
    let mut run = run_with(answers, bound, (0..8).map(large).collect(), 60_000, |_, _| ok(1_000));
    let iterations = run.replayed.figures().populations[0].iterations.clone();
    assert_eq!((iterations.due, iterations.completed, iterations.dropped), (8, 4, 4));
}

#[test]
fn long_request_of_a_session_does_not_free_the_others_from_waiting() {
    let of = |at_ms: u64, until_ms: u64, target: &str| ReplayRequest {
        source_end_ns: Some(SECOND + (until_ms * MS) as i64),
        ..request(1, at_ms, target)
    };
    let requests = vec![of(0, 60_000, "/poll"), of(10, 20, "/login"), of(30, 40, "/account")];
    let run = run(requests, 120_000, |text, _| if text.contains("/poll") { ok(60_000) } else { ok(100) });
    assert_eq!(
        lines(&run).iter().map(|(at_ms, _)| *at_ms).collect::<Vec<_>>(),
        [0, 10, 110],
        "/account needs the login"
    );
}

#[test]
fn comparing_and_correlating_can_be_switched_off() {
    let requests = || {
        let login = ReplayRequest { before: before(200, "", r#"{"token":"token-before"}"#), ..request(7, 0, "/login") };
        vec![login, request(7, 10, "/items?token=token-before")]
    };
    let serve = |_: &str, _| Some((200, "", r#"{"token":"token-now"}"#.to_owned(), 1));
    let off = |compares, correlates| run_with(AnswerUse { compares, correlates }, |_| (), requests(), 60_000, serve);
    let run = off(true, false);
    assert!(run.got[1].2.contains("token=token-before") && run.replayed.counts().differences.compared == 1);
    let run = off(false, true);
    assert!(run.got[1].2.contains("token=token-now") && run.replayed.counts().differences.compared == 0);
}

#[test]
fn thread_that_has_nothing_left_does_not_end_the_others() {
    let program = Arc::new(replay_program("replay", 1));
    let shared = Arc::new(Shared::new(&program, 2));
    let limits = Limits { at_ns: 0, duration_ns: 60_000 * MS, warmup_ns: 0 };
    let answers = AnswerUse { compares: true, correlates: true };
    let machine = |requests: Vec<ReplayRequest>| {
        let (outbox, inbox) = sync_channel(1);
        outbox.send(requests).unwrap();
        Replayed::new(Arc::clone(&program), Arc::clone(&shared), limits, 0, answers, Some(inbox))
    };
    let (mut idle, mut busy) = (machine(Vec::new()), machine((0..5).map(|at_ms| request(1, at_ms, "/")).collect()));
    idle.run(0);
    assert!(idle.is_done());
    idle.finish(0);
    let mut sent = 0;
    for now_ms in 0..20 {
        busy.run(now_ms * MS);
        while let Some(Effect::Send(send)) = busy.effect() {
            sent += 1;
            let failure = ExchangeFailure {
                cause: "reset".into(),
                detail: String::new(),
                timed_out: false,
                sent_ns: None,
                sent_bytes: 0,
                received_bytes: 0,
                opening: None,
            };
            busy.failed(send.user, send.exchange, failure, now_ms * MS);
        }
    }
    assert!(sent == 5 && busy.is_done());
}
