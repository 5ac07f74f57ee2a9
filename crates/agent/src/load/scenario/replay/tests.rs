//! What a dispatch makes of recorded requests.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::Arc;

use leadline_replay::{Recorded, RecordedAnswer};
use leadline_scenario::replay::{replay_program, ReplayRequest, Role};
use leadline_scenario::Program;
use leadline_wire::scenario::Replay;
use serde_json::{json, Value};

use super::dispatch::{Dispatch, Dispatched};

const SECOND: i64 = 1_000_000_000;

fn replay(changes: Value) -> Replay {
    let mut replay = json!({"source": {"kind": "file", "path": "x"}, "pace": {"kind": "recorded", "speed": 1.0},
        "target": "http://server.test:8080/", "copies": 1, "writes": false, "compares": true, "notices_noise": false,
        "correlates": true});
    replay.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(replay).unwrap()
}

fn make_recorded(at_s: i64, session: u64, line: &str) -> Recorded {
    let (method, target) = line.split_once(' ').unwrap();
    Recorded {
        start_ns: 1_700_000_000 * SECOND + at_s * SECOND,
        session,
        method: method.into(),
        target: target.into(),
        host: b"www.shop.test".to_vec(),
        fields: b"User-Agent: x\r\nCookie: a=1; b=2\r\n".to_vec(),
        body: (method == "GET").then(Vec::new),
        answer: RecordedAnswer { status: Some(200), ..RecordedAnswer::default() },
        ..Recorded::default()
    }
}

/// Dispatches requests to threads; returns what each got, what became of the source, and the labels.
fn dispatch_all(
    changes: Value,
    threads: usize,
    source: Vec<Recorded>,
) -> (Vec<Vec<ReplayRequest>>, Dispatched, Arc<Program>) {
    let program = Arc::new(replay_program("replay", 7));
    let (outboxes, inboxes): (Vec<_>, Vec<Receiver<Vec<ReplayRequest>>>) =
        (0..threads).map(|_| sync_channel(64)).unzip();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut dispatch = Dispatch::new(&replay(changes), &program, outboxes, is_over, Arc::default()).unwrap();
    for one in source {
        if dispatch.take(one).is_break() {
            break;
        }
    }
    let done = dispatch.finish();
    (inboxes.into_iter().map(|inbox| inbox.try_iter().flatten().collect()).collect(), done, program)
}

fn lines(requests: &[ReplayRequest]) -> Vec<String> {
    let text = |one: &ReplayRequest| format!("{} {}", String::from_utf8_lossy(&one.method), one.url.absolute());
    requests.iter().map(text).collect()
}

#[test]
fn requests_go_to_the_target_at_their_times() {
    let source =
        vec![make_recorded(0, 1, "GET /a?x=1"), make_recorded(3, 2, "GET /b"), make_recorded(4, 1, "GET /a?x=2")];
    let (got, done, program) = dispatch_all(json!({"pace": {"kind": "recorded", "speed": 2.0}}), 1, source);
    let urls = ["/a?x=1", "/b", "/a?x=2"].map(|target| format!("GET http://server.test:8080{target}"));
    assert_eq!(lines(&got[0]), urls);
    assert_eq!(got[0].iter().map(|one| one.due_ns).collect::<Vec<_>>(), [0, 1_500_000_000, 2_000_000_000]);
    assert_eq!(
        (&*got[0][0].fields, &*got[0][0].cookie),
        (b"Host: server.test:8080\r\nUser-Agent: x\r\n".as_slice(), b"a=1; b=2".as_slice())
    );
    assert_eq!((got[0][0].session == got[0][2].session, got[0][0].session == got[0][1].session), (true, false));
    assert_eq!((done.read, done.passed_on, done.sessions), (3, 3, 2));
    assert_eq!((&*program.labels[0].name, &*program.labels[1].name, got[0][2].label), ("GET /a", "GET /b", 0));
}

#[test]
fn what_is_not_replayed_is_counted_by_cause() {
    let source = vec![
        make_recorded(0, 1, "GET /a"),
        make_recorded(1, 1, "POST /form"),
        make_recorded(2, 1, "DELETE /x"),
        make_recorded(3, 1, "CONNECT host:1"),
        make_recorded(4, 1, "GET relative"),
        make_recorded(5, 1, "GET /no t"),
        make_recorded(6, 1, "GET /other"),
    ];
    let (got, done, _) = dispatch_all(json!({"only": ["/a", "POST *", "* /x", "/no*"]}), 1, source.clone());
    assert_eq!(lines(&got[0]), ["GET http://server.test:8080/a"]);
    let expected = [("not_a_request", 3), ("not_chosen", 1), ("writing_method", 2)];
    assert_eq!(done.left_out, expected.map(|(cause, count)| (cause.to_owned(), count)).into());
    let (got, done, _) = dispatch_all(json!({"writes": true}), 1, source);
    assert_eq!(lines(&got[0]).last().unwrap(), "GET http://server.test:8080/other");
    assert_eq!((got[0].len(), done.left_out["body_missing"]), (3, 1), "a DELETE needs no body");
}

#[test]
fn part_of_the_source_is_chosen_by_time() {
    let source: Vec<_> = (0..10).map(|at_s| make_recorded(at_s, 1, &format!("GET /{at_s}"))).collect();
    let targets = |changes| {
        let (got, done, _) = dispatch_all(changes, 1, source.clone());
        (got[0].iter().map(|one| one.url.target.to_string()).collect::<Vec<_>>().join(""), got[0][0].due_ns, done.read)
    };
    let after = |ms: u64| json!({"kind": "after", "ms": ms});
    assert_eq!(targets(json!({"begin": after(3000), "end": after(6000)})), ("/3/4/5".to_owned(), 0, 6));
    let at = json!({"kind": "at", "epoch_ms": 1_700_000_008_000_i64});
    assert_eq!(targets(json!({"begin": at})), ("/8/9".to_owned(), 0, 10));
}

#[test]
fn rate_replaces_the_times() {
    let source = (0..5).map(|number| make_recorded(number * 100, 1, "GET /")).collect();
    let (got, ..) = dispatch_all(json!({"pace": {"kind": "rate", "per_s": 1000.0}}), 1, source);
    assert_eq!(got[0].iter().map(|one| one.due_ns / 1_000).collect::<Vec<_>>(), [0, 1000, 2000, 3000, 4000]);
}

#[test]
fn copies_are_other_users_and_stay_in_order() {
    let source: Vec<_> =
        (0..200).map(|number| make_recorded(number / 20, number as u64 % 10, &format!("GET /{number}"))).collect();
    let (got, done, _) = dispatch_all(json!({"copies": 3}), 2, source);
    let all: Vec<&ReplayRequest> = got.iter().flatten().collect();
    assert_eq!((all.len(), done.sessions), (600, 30));
    for thread in &got {
        assert!(thread.is_sorted_by_key(|one| one.due_ns), "each thread gets them in the order in which they are due");
    }
    let mut sessions: std::collections::BTreeMap<u64, Vec<&ReplayRequest>> = std::collections::BTreeMap::new();
    got.iter().flatten().for_each(|one| sessions.entry(one.session).or_default().push(one));
    for requests in sessions.values() {
        assert_eq!(requests.len(), 20, "a copy has all requests of its session, on one thread");
        let shift_ns = |one: &ReplayRequest| one.due_ns as i64 - (one.source_ns - 1_700_000_000 * SECOND);
        assert!(requests.iter().all(|one| shift_ns(one) == shift_ns(requests[0])), "think times stay");
    }
}

#[test]
fn hosts_and_a_second_target_have_their_own_requests() {
    let changes = json!({"against": "https://new.test/v2/", "notices_noise": true,
        "hosts": [{"host": "www.shop.test", "target": "http://10.0.0.1:81/"}]});
    let (got, _, program) = dispatch_all(changes, 2, vec![make_recorded(0, 5, "GET /a")]);
    let all: Vec<&ReplayRequest> = got.iter().flatten().collect();
    let of = |role: Role| all.iter().find(|one| one.role == role).unwrap();
    assert_eq!(of(Role::First).url.absolute(), "http://10.0.0.1:81/a");
    assert!(of(Role::First).fields.starts_with(b"Host: www.shop.test\r\n"), "a mapped host keeps its name");
    assert_eq!(of(Role::Again).url.absolute(), "http://10.0.0.1:81/a");
    assert_eq!(of(Role::Second).url.absolute(), "https://new.test/v2/a");
    assert!(of(Role::Second).fields.starts_with(b"Host: new.test\r\n"));
    assert_eq!(&*program.labels[of(Role::Second).label as usize].name, "GET /a (against)");
    assert!(got.iter().any(Vec::is_empty), "the roles of a record are on one thread");
    assert!(all.iter().all(|one| one.roles == 3 && one.record == 0));
}

#[test]
fn names_are_bounded() {
    let letter = |number: usize| char::from(b'a' + number as u8);
    let source = (0..500)
        .map(|number| make_recorded(0, 1, &format!("GET /{}/{}", letter(number / 25), letter(number % 25))))
        .collect();
    let (got, _, program) = dispatch_all(json!({}), 1, source);
    assert_eq!((got[0][499].label, &*program.labels[199].name), (199, "other requests"));
}
