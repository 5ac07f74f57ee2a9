//! GoReplay's files, whole and hostile.

use std::collections::BTreeSet;

use leadline_replay::gor::{GorCounts, GorSource};
use leadline_replay::{open_input, Cause, Recorded, Source};
use proptest::prelude::*;

use crate::packets::{answer, given, request, text, unanswered};
use crate::truth::{exchange, REQUESTS, SESSIONS};
use crate::wire::Random;

const SEPARATOR: &[u8] = "\n🐵🙈🙉\n".as_bytes();

fn record(kind: u8, id: &str, at_ns: u64, length_ns: u64, payload: &[u8]) -> Vec<u8> {
    [format!("{kind} {id} {at_ns} {length_ns}\n").as_bytes(), payload, SEPARATOR].concat()
}

fn id(connection: u64, number: u64) -> String {
    format!("{connection:016x}{number:08x}")
}

struct Read {
    requests: Vec<Recorded>,
    causes: Vec<(Cause, u64)>,
    counts: GorCounts,
}

fn read(file: &[u8]) -> Read {
    let mut source = GorSource::new(file, true);
    let requests = std::iter::from_fn(|| source.next().expect("it can be read")).collect();
    Read { requests, causes: source.causes().iter().collect(), counts: source.counts().clone() }
}

type Given = (String, Option<u16>, Option<String>);

fn answers(read: &Read) -> Vec<Given> {
    let of = |one: &Recorded| (text(&one.target), one.answer.status, one.answer.body.as_deref().map(text));
    read.requests.iter().map(of).collect()
}

#[test]
fn requests_and_answers_are_joined_whichever_comes_first() {
    let (one, two, three) = (id(1, 1), id(1, 2), "a".repeat(40));
    let file = [
        record(2, &two, 2_500, 0, &answer("B")),
        record(1, &one, 1_000, 200, &request("/a")),
        record(1, &two, 2_000, 0, &request("/b")),
        record(3, &one, 9_000, 5, &answer("of another target")),
        record(
            1,
            &three,
            3_000,
            0,
            b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        record(2, &one, 1_900, 100, b"HTTP/1.1 200 OK\r\n\r\nuntil the end\n"),
        record(2, "ffff", 1, 1, &answer("of nothing")),
    ]
    .concat();
    let read = read(&file);
    assert_eq!(answers(&read), [given("/a", 200, "until the end\n"), given("/b", 200, "B"), unanswered("/c")]);
    let [a, b, c] = &read.requests[..] else { panic!("{:?}", read.requests) };
    assert_eq!((a.start_ns, a.precision_ns, a.answer.latency_ns), (1_000, 1, Some(700)));
    assert_eq!((text(&a.host), c.body.as_deref()), ("a:81".into(), Some(&b"ok"[..])));
    assert!(a.session == b.session && b.session != c.session);
    assert_eq!(read.causes, []);
    let counts = GorCounts { strange_answers: 1, replayed_answers: 1, without_answer: 1 };
    assert_eq!(read.counts, counts);
}

#[test]
fn requests_of_a_pipeline_share_an_id() {
    let id = id(7, 7);
    let head = b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let bare = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let file = [
        record(1, &id, 1, 0, head),
        record(1, &id, 1, 0, &request("/b")),
        record(2, &id, 2, 0, bare),
        record(2, &id, 3, 0, &answer("B")),
    ];
    assert_eq!(answers(&read(&file.concat())), [given("/a", 200, ""), given("/b", 200, "B")]);
}

#[test]
fn what_is_no_request_is_counted_and_the_next_separator_is_found() {
    let upgrade = b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n";
    let file = [
        record(9, "x", 1, 0, &request("/kind")),
        record(1, "x", 1, 0, b"no request\r\n"),
        [b"1 x\n".to_vec(), request("/time"), SEPARATOR.to_vec()].concat(),
        record(1, "x", 1, 0, b"POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"),
        record(1, "c", 1, 0, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
        record(1, "u", 1, 0, upgrade),
        record(2, "u", 1, 0, b"HTTP/1.1 101 Switching\r\n\r\n"),
        record(1, "l", 1, 0, &[&request("/large")[..], &vec![b'\n'; 17 << 20]].concat()),
        record(1, "l", 1, 0, &[&request("/large")[..], &vec![b'x'; 17 << 20]].concat()),
        record(1, "y", 1, 0, &request("/ok")),
        b"1 z 1 0\nGET /cut HTT".to_vec(),
    ];
    let read = read(&file.concat());
    assert_eq!(answers(&read), [unanswered("/ok")]);
    let expected = [
        (Cause::Malformed, 3),
        (Cause::CutOff, 1),
        (Cause::NoRequest, 1),
        (Cause::Unfinished, 1),
        (Cause::Upgraded, 1),
        (Cause::TooLarge, 2),
    ];
    assert_eq!(read.causes, expected);
}

#[test]
fn a_compressed_file_in_parts_is_one() {
    use flate2::{write::GzEncoder, Compression};
    use std::io::Write;
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let parts = [gzip(&record(1, "x", 1, 0, &request("/a"))), gzip(&record(2, "x", 2, 0, &answer("A")))].concat();
    for (bytes, cut) in [(parts.len(), 0), (parts.len() - 40, 1)] {
        let mut source = GorSource::new(open_input(&parts[..bytes]).unwrap(), false);
        let first = source.next().unwrap().expect("it has a request");
        assert_eq!(text(&first.target), "/a");
        assert_eq!((first.answer.body.is_some(), first.answer.body_bytes), (false, (cut == 0).then_some(1)));
        assert!(source.next().unwrap().is_none());
        assert_eq!(source.causes().iter().map(|(_, count)| count).sum::<u64>(), cut);
    }
}

#[test]
fn what_waits_is_bounded_and_requests_keep_their_order() {
    let file: Vec<u8> =
        (0..5000).flat_map(|number| record(1, &id(number, 1), number, 0, &request(&format!("/{number}")))).collect();
    let mut source = GorSource::new(&file[..], true);
    assert_eq!(source.next().unwrap().map(|request| request.start_ns), Some(0));
    let rest: Vec<i64> = std::iter::from_fn(|| source.next().unwrap()).map(|request| request.start_ns).collect();
    assert_eq!(rest, (1..5000).collect::<Vec<i64>>());
}

#[test]
fn each_request_of_a_file_comes_once_in_its_session() {
    let mut random = Random(32);
    let mut all = Vec::new();
    let mut wanted = Vec::new();
    for session in 0..SESSIONS {
        for number in 0..REQUESTS {
            let one = exchange(session, number, &mut random);
            let at_ns = number * 1_000_000_000 + random.below(100_000_000);
            let id = id(session + 1, number);
            let body = one.answer.clone().unwrap_or_default();
            all.push((at_ns, record(1, &id, at_ns, 10, &one.request(random.below(2) == 0))));
            if random.below(10) > 0 {
                // The file is not sorted.
                let late_ns = at_ns + random.below(1_000_000);
                all.push((late_ns, record(2, &id, at_ns + 50, 10, &one.answered(&body, random.below(2) == 0))));
                wanted.push((session, one));
            } else {
                wanted.push((session, crate::truth::Exchange { status: 0, answer: None, ..one }));
            }
        }
    }
    all.sort_by_key(|(at_ns, _)| *at_ns);
    let file: Vec<u8> = all.into_iter().flat_map(|(_, record)| record).collect();
    let mut read = read(&file);
    assert_eq!((read.causes, read.counts.strange_answers), (vec![], 0));
    let session_of =
        |request: &Recorded| text(&request.target).split('/').nth(2).and_then(|part| part.parse::<u64>().ok());
    read.requests.sort_by_key(session_of);
    assert_eq!(read.requests.len(), wanted.len());
    for (request, (session, one)) in read.requests.iter().zip(&wanted) {
        assert_eq!((text(&request.target), text(&request.method)), (one.target.clone(), one.method.to_owned()));
        assert_eq!(request.body.as_ref(), Some(&one.body));
        assert_eq!((request.answer.status.unwrap_or(0), &request.answer.body), (one.status, &one.answer), "{session}");
        assert_eq!(request.answer.latency_ns, one.answer.as_ref().map(|_| 40));
    }
    assert_eq!(read.requests.iter().map(|request| request.session).collect::<BTreeSet<_>>().len() as u64, SESSIONS);
}

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(parts in proptest::collection::vec(prop_oneof![
        Just(SEPARATOR.to_vec()), Just(b"1 x 1 0\n".to_vec()), Just(b"2 x 1 0\n".to_vec()), Just(request("/a")), Just(answer("A")),
        proptest::collection::vec(any::<u8>(), 0..30),
    ], 0..30)) {
        let read = read(&parts.concat());
        prop_assert!(read.requests.len() <= parts.len());
    }
}
