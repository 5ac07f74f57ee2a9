//! HTTP out of packets: framings, sessions, times, and what is no request.

use leadline_packet::capture::LinkType;
use leadline_replay::packets::{PacketCounts, PacketSource, Reassembly, ReassemblyOptions};
use leadline_replay::{Cause, Recorded, Source};

use crate::wire::{pcap, Frame, Talk, ACK, RST};

pub struct Read {
    pub requests: Vec<Recorded>,
    pub causes: Vec<(Cause, u64)>,
    pub counts: PacketCounts,
}

pub fn read_with(frames: &[Frame], options: ReassemblyOptions) -> Read {
    let file = pcap(frames);
    let mut source = PacketSource::open(&file[..], options).expect("it is a capture");
    let mut requests = Vec::new();
    while let Some(request) = source.next().expect("it can be read") {
        requests.push(request);
    }
    Read { requests, causes: source.causes().iter().collect(), counts: source.counts().clone() }
}

pub fn read(frames: &[Frame]) -> Read {
    read_with(frames, ReassemblyOptions::default())
}

impl Read {
    pub fn targets(&self) -> Vec<String> {
        self.requests.iter().map(|request| text(&request.target)).collect()
    }

    /// Target, status and body of the answer.
    pub fn answers(&self) -> Vec<(String, Option<u16>, Option<String>)> {
        let of = |request: &Recorded| {
            let body = request.answer.body.as_deref().map(text);
            (text(&request.target), request.answer.status, body)
        };
        self.requests.iter().map(of).collect()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn request(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a:81\r\n\r\n").into_bytes()
}

pub fn answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub fn given(target: &str, status: u16, body: &str) -> (String, Option<u16>, Option<String>) {
    (target.to_owned(), Some(status), Some(body.to_owned()))
}

pub fn unanswered(target: &str) -> (String, Option<u16>, Option<String>) {
    (target.to_owned(), None, None)
}

#[test]
fn a_request_is_given_with_its_parts_and_its_answer() {
    let mut talk = Talk::new(5000, 1_000_000_000, u32::MAX - 20);
    talk.segment_bytes = 30;
    talk.send(
        0,
        b"POST http://b:90/x?y HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\
          Transfer-Encoding: chunked\r\nX-Two: 2\r\n\r\n",
    );
    talk.send(1, b"HTTP/1.1 100 Continue\r\n\r\n");
    talk.send(0, b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n");
    let done_ns = talk.now_ns;
    talk.now_ns += 5_000_000;
    talk.send(1, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    talk.now_ns += 7_000_000;
    let first_ns = talk.now_ns + 1000;
    talk.send(1, b"HTTP/1.1 201 Made\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n");
    talk.close();
    let read = read(&talk.frames);
    let [given] = &read.requests[..] else { panic!("{:?}", read.requests) };
    assert_eq!(
        (text(&given.method), text(&given.target), text(&given.host)),
        ("POST".into(), "/x?y".into(), "b:90".into())
    );
    assert_eq!(text(&given.fields), "X-One: 1\r\nX-Two: 2\r\n");
    assert_eq!(given.body.as_deref(), Some(&b"abcde"[..]));
    assert_eq!(given.start_ns, 1_000_000_000 + 4 * 1000);
    let answer = &given.answer;
    assert_eq!((answer.status, answer.body.as_deref(), answer.body_bytes), (Some(201), Some(&b"four"[..]), Some(4)));
    assert_eq!(text(answer.fields.as_deref().unwrap()), "X: y\r\nTransfer-Encoding: chunked\r\n");
    assert_eq!(answer.latency_ns, Some(first_ns - done_ns));
    assert_eq!(read.causes, []);
}

#[test]
fn pipelined_answers_belong_to_requests_by_order() {
    let mut talk = Talk::new(5000, 0, 1);
    let head = b"HEAD /b HTTP/1.1\r\nHost: a\r\n\r\n";
    talk.send(0, &[&request("/a")[..], head, &request("/c"), &request("/d")].concat());
    let bare = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let not_modified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n";
    talk.send(1, &[&answer("A")[..], bare, not_modified, b"HTTP/1.1 204 No\r\n\r\n"].concat());
    talk.send(0, &request("/e"));
    talk.end(1, b"HTTP/1.0 200 OK\r\n\r\nuntil the end");
    let read = read(&talk.frames);
    assert_eq!(
        read.answers(),
        [
            given("/a", 200, "A"),
            given("/b", 200, ""),
            given("/c", 304, ""),
            given("/d", 204, ""),
            given("/e", 200, "until the end")
        ]
    );
    assert_eq!(read.requests.iter().map(|request| request.session).collect::<std::collections::BTreeSet<_>>().len(), 1);
}

#[test]
fn an_answer_may_come_before_its_request_is_complete() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    talk.send(1, b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
    talk.send(0, b"cd");
    talk.send(0, &request("/b"));
    talk.send(1, &answer("B"));
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [given("/a", 413, "no"), given("/b", 200, "B")]);
    assert_eq!(read.requests[0].answer.latency_ns, None);
    assert!(read.requests[1].answer.latency_ns.is_some());
}

#[test]
fn connections_that_become_another_protocol_are_counted() {
    let upgrade = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut taken = Talk::new(5000, 0, 1);
    taken.send(0, &request("/before"));
    taken.send(1, &answer("x"));
    taken.send(0, upgrade);
    taken.send(1, b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x81\x02hi");
    taken.send(0, &request("/within the other protocol"));
    let mut refused = Talk::new(5001, 0, 1);
    refused.send(0, upgrade);
    refused.send(0, &request("/after"));
    refused.send(1, &[answer("no"), answer("yes")].concat());
    let connect = b"CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n";
    let mut tunnel = Talk::new(5002, 0, 1);
    tunnel.send(0, connect);
    tunnel.send(1, b"HTTP/1.1 200 Connected\r\n\r\n");
    tunnel.send(0, b"\x16\x03\x01");
    let mut no_tunnel = Talk::new(5003, 0, 1);
    no_tunnel.send(0, connect);
    no_tunnel.send(1, b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno");
    no_tunnel.send(0, &request("/next"));
    no_tunnel.send(1, &answer("yes"));
    let frames = [taken.frames, refused.frames, tunnel.frames, no_tunnel.frames].concat();
    let read = read(&frames);
    assert_eq!(
        read.answers(),
        [given("/before", 200, "x"), given("/ws", 200, "no"), given("/after", 200, "yes"), given("/next", 200, "yes")]
    );
    assert_eq!(read.causes, [(Cause::NoRequest, 1), (Cause::Upgraded, 2)]);
}

#[test]
fn tls_and_other_protocols_are_counted_once_per_connection() {
    let mut tls = Talk::new(5000, 0, 1);
    tls.send(0, b"\x16\x03\x01\x02\x00\x01\x00\x01");
    tls.send(1, b"\x16\x03\x03\x00\x7a");
    let mut amid_tls = Talk::silent(5001, 0, 1);
    amid_tls.send(1, b"\x17\x03\x03\x00\x7a");
    amid_tls.send(0, b"\x17\x03\x03\x00\x7a");
    let mut ssh = Talk::new(5002, 0, 1);
    ssh.send(1, b"SSH-2.0-x\r\n");
    ssh.send(0, b"SSH-2.0-y\r\n");
    let mut smtp = Talk::new(5003, 0, 1);
    smtp.send(1, b"220 x\r\n");
    let mut http2 = Talk::new(5004, 0, 1);
    http2.send(0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let frames = [tls.frames, amid_tls.frames, ssh.frames, smtp.frames, http2.frames].concat();
    let read = read(&frames);
    assert_eq!(read.requests, []);
    assert_eq!(read.causes, [(Cause::NoRequest, 3), (Cause::Tls, 2)]);
}

#[test]
fn unfinished_messages_are_told() {
    let mut request_cut = Talk::new(5000, 0, 1);
    request_cut.send(0, b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    let mut answer_cut = Talk::new(5001, 0, 1);
    answer_cut.send(0, &request("/b"));
    answer_cut.send(1, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab");
    let mut reset = Talk::new(5002, 0, 1);
    reset.send(0, &request("/c"));
    reset.send(1, b"HTTP/1.1 200 OK\r\n\r\nab");
    reset.push(1, RST | ACK, reset.next[1], b"");
    let mut no_answer = Talk::new(5003, 0, 1);
    no_answer.send(0, &request("/d"));
    no_answer.close();
    let frames = [request_cut.frames, answer_cut.frames, reset.frames, no_answer.frames].concat();
    let read = read(&frames);
    let begun = |target: &str| (target.to_owned(), Some(200), None);
    let mut answers = read.answers();
    answers.sort();
    assert_eq!(answers, [begun("/b"), begun("/c"), unanswered("/d")]);
    assert_eq!(read.causes, [(Cause::Unfinished, 1)]);
    assert_eq!(read.counts.without_answer, 3);
}

#[test]
fn malformed_request_costs_itself_and_reading_goes_on() {
    let mut talk = Talk::new(5000, 0, 1);
    for text in [&request("/a")[..], b"GET /b HTTP/1.1\r\nno field\r\n\r\n", &request("/c")] {
        talk.send(0, text);
        talk.send(1, &answer("x"));
    }
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [given("/a", 200, "x"), given("/c", 200, "x")]);
    assert_eq!(read.causes, [(Cause::Malformed, 1)]);
}

#[test]
fn a_connection_may_be_read_from_its_middle() {
    let mut talk = Talk::silent(5000, 0, 1);
    talk.send(1, b"the rest of an answer\r\nHTTP/1.1 is within it");
    talk.acknowledge(0);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    talk.send(0, &request("/b"));
    talk.send(1, &answer("B"));
    assert_eq!(read(&talk.frames).answers(), [given("/a", 200, "A"), given("/b", 200, "B")]);
    let mut body_alone = Talk::silent(5000, 0, 1);
    body_alone.send(1, b"the rest of a body");
    body_alone.acknowledge(0);
    let unrecognised = read(&body_alone.frames);
    assert_eq!((unrecognised.causes, unrecognised.counts.unrecognised), (vec![], 1));
    let mut within_request = Talk::silent(5000, 0, 1);
    within_request.send(0, b"the rest of a body");
    within_request.send(1, &answer("unknown"));
    within_request.send(0, &request("/a"));
    within_request.send(1, &answer("A"));
    assert_eq!(read(&within_request.frames).answers(), [given("/a", 200, "A")]);
}

#[test]
fn one_direction_alone_gives_requests_without_answers() {
    let mut talk = Talk::new(5000, 0, 1);
    for target in ["/a", "/b"] {
        talk.send(0, &request(target));
        talk.send(1, &answer("x"));
    }
    talk.close();
    let (client, server): (Vec<Frame>, Vec<Frame>) = talk.frames.into_iter().partition(|frame| frame.from == 0);
    assert_eq!(read(&client).answers(), [unanswered("/a"), unanswered("/b")]);
    let answers_alone = read(&server);
    assert_eq!((answers_alone.requests.len(), answers_alone.causes), (0, vec![(Cause::Gap, 1)]));
}

#[test]
fn ports_are_sessions_and_may_be_used_again() {
    let mut frames = Vec::new();
    for number in 0..3u32 {
        let mut talk = Talk::new(5000, u64::from(number) * 1_000_000, 7 + number * 1000);
        talk.send(0, &request(&format!("/{number}")));
        talk.send(1, &answer("x"));
        match number {
            0 => talk.close(),
            1 => talk.push(0, RST, talk.next[0], b""),
            _ => {}
        }
        frames.extend(talk.frames);
    }
    let mut other = Talk::new(5001, 0, 1);
    other.ends[1].1 = 8080;
    other.frames.clear();
    other.send(0, &request("/other"));
    frames.extend(other.frames);
    let all = read(&frames);
    assert_eq!(all.targets(), ["/0", "/1", "/2", "/other"]);
    assert_eq!(all.requests.iter().map(|request| request.session).collect::<std::collections::BTreeSet<_>>().len(), 4);
    let some = read_with(&frames, ReassemblyOptions { ports: vec![80], ..ReassemblyOptions::default() });
    assert_eq!(some.targets(), ["/0", "/1", "/2"]);
    assert_eq!(some.counts.other_frames, 1);
}

#[test]
fn frames_one_by_one_give_a_request_at_once_or_after_its_wait() {
    let options = ReassemblyOptions { answer_wait_ns: 2_000_000_000, ..ReassemblyOptions::default() };
    let mut reassembly = Reassembly::new(options);
    let mut talk = Talk::new(5000, 1_000_000_000, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    talk.send(0, &request("/slow"));
    let mut taken = 0;
    let mut feed = |reassembly: &mut Reassembly, talk: &Talk| {
        for frame in &talk.frames[taken..] {
            reassembly.frame(frame.at_ns, LinkType::Ethernet, &frame.bytes, frame.original_bytes);
        }
        taken = talk.frames.len();
    };
    feed(&mut reassembly, &talk);
    assert_eq!(reassembly.next().map(|request| text(&request.target)), Some("/a".into()));
    assert_eq!(reassembly.next(), None);
    reassembly.advance(2_500_000_000);
    assert_eq!(reassembly.next(), None);
    reassembly.advance(4_000_000_000);
    let slow = reassembly.next().expect("it has waited long enough");
    assert_eq!((text(&slow.target), slow.answer.status), ("/slow".into(), None));
    talk.now_ns = 5_000_000_000;
    talk.send(1, &answer("late"));
    talk.send(0, &request("/b"));
    talk.send(1, &answer("B"));
    feed(&mut reassembly, &talk);
    let next = reassembly.next().expect("it is answered");
    assert_eq!((text(&next.target), next.answer.body), ("/b".into(), Some(b"B".to_vec())));
    reassembly.advance(1_000_000_000_000);
    assert_eq!((reassembly.next(), reassembly.held_bytes()), (None, 0), "an idle connection is over");
}

#[test]
fn bodies_of_answers_need_not_be_kept() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("four"));
    let options = ReassemblyOptions { keeps_answer_bodies: false, ..ReassemblyOptions::default() };
    let read = read_with(&talk.frames, options);
    let answer = &read.requests[0].answer;
    assert_eq!((answer.status, answer.body.as_deref(), answer.body_bytes), (Some(200), None, Some(4)));
    assert_eq!(read.counts.without_answer, 0);
}
