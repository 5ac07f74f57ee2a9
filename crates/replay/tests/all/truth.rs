//! A known truth: 10,000 requests in 500 sessions with all that happens to them on the way, as a capture and as a `.gor` file.

use std::collections::{BTreeMap, BTreeSet};

use leadline_replay::Cause;

use crate::packets::{read, text};
use crate::wire::{Frame, Random, Talk, RST};

pub const SESSIONS: u64 = 500;
pub const REQUESTS: u64 = 20;

/// What was sent, and came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub target: String,
    pub method: &'static str,
    pub body: Vec<u8>,
    pub status: u16,
    /// `None` where a hole is made in it.
    pub answer: Option<Vec<u8>>,
}

impl Exchange {
    pub fn request(&self, is_chunked: bool) -> Vec<u8> {
        let head = format!("{} {} HTTP/1.1\r\nHost: a\r\nX-Own: {}\r\n", self.method, self.target, self.target.len());
        framed(head, &self.body, is_chunked, matches!(self.method, "POST" | "PUT"))
    }

    pub fn answered(&self, body: &[u8], is_chunked: bool) -> Vec<u8> {
        let head = format!("HTTP/1.1 {} Some reason\r\nX-For: {}\r\n", self.status, self.target);
        match (self.method, self.status) {
            ("HEAD", _) | (_, 304) => format!("{head}Content-Length: 1234\r\n\r\n").into_bytes(),
            (_, 204) => format!("{head}\r\n").into_bytes(),
            _ => framed(head, body, is_chunked, true),
        }
    }
}

fn framed(head: String, body: &[u8], is_chunked: bool, has_body: bool) -> Vec<u8> {
    let mut text = head.into_bytes();
    if !has_body {
        text.extend_from_slice(b"\r\n");
    } else if is_chunked {
        text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        for chunk in body.chunks(700) {
            text.extend_from_slice(format!("{:x};e=f\r\n", chunk.len()).as_bytes());
            text.extend_from_slice(chunk);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\nT: railer\r\n\r\n");
    } else {
        text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        text.extend_from_slice(body);
    }
    text
}

/// Makes a request and its answer.
pub fn exchange(session: u64, number: u64, random: &mut Random) -> Exchange {
    let method = ["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE"][random.below(7) as usize];
    let bytes = |random: &mut Random, most: u64| -> Vec<u8> {
        let length = random.below(most);
        (0..length).map(|_| random.next() as u8).collect()
    };
    let body = if matches!(method, "POST" | "PUT") { bytes(random, 3000) } else { Vec::new() };
    let status = [200, 200, 200, 201, 404, 204, 304, 500][random.below(8) as usize];
    let has_none = method == "HEAD" || matches!(status, 204 | 304);
    let answer = if has_none { Vec::new() } else { bytes(random, 5000) };
    let target = format!("/session/{session}/request/{number}?x=%20");
    Exchange { target, method, body, status, answer: Some(answer) }
}

/// What is made of a session.
struct Made {
    talk: Talk,
    exchanges: Vec<Exchange>,
    causes: Vec<Cause>,
}

fn session(session: u64, random: &mut Random) -> Made {
    // Each port is used by two sessions, one after the other.
    let port = 10_000 + (session / 2) as u16;
    let begin_ns = 1_000_000_000 + (session % 2) * 60_000_000_000 + random.below(1_000_000_000);
    let mut talk = Talk::new(port, begin_ns, random.next() as u32);
    talk.segment_bytes = [1448, 536, 100, 20_000][random.below(4) as usize];
    let mut made = Made { talk, exchanges: Vec::new(), causes: Vec::new() };
    let all: Vec<Exchange> = (0..REQUESTS).map(|number| exchange(session, number, random)).collect();
    let mut rest = &all[..];
    while !rest.is_empty() {
        let pipelined = if random.below(4) == 0 { 1 + random.below(4) as usize } else { 1 };
        let (batch, after) = rest.split_at(pipelined.min(rest.len()));
        rest = after;
        speak(&mut made, batch, rest.is_empty(), random);
        // Users think.
        made.talk.now_ns += random.below(500_000_000);
    }
    made
}

fn speak(made: &mut Made, batch: &[Exchange], is_last: bool, random: &mut Random) {
    let talk = &mut made.talk;
    let requests: Vec<Vec<u8>> = batch.iter().map(|one| one.request(random.below(2) == 0)).collect();
    talk.send(0, &requests.concat());
    talk.now_ns += 1_000_000;
    for (number, one) in batch.iter().enumerate() {
        if random.below(5) == 0 {
            talk.send(
                1,
                [&b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"[..], b"HTTP/1.1 100 Continue\r\n\r\n"]
                    [random.below(2) as usize],
            );
        }
        let body = one.answer.clone().unwrap_or_default();
        let ends = is_last && number + 1 == batch.len();
        let has_body = !(one.method == "HEAD" || matches!(one.status, 204 | 304));
        if ends && has_body && random.below(3) == 0 {
            let head = format!("HTTP/1.1 {} Until the end\r\n\r\n", one.status);
            talk.send(1, &[head.as_bytes(), &body].concat());
            talk.end(1, b"");
            talk.end(0, b"");
            talk.acknowledge(1);
            made.exchanges.push(one.clone());
            return;
        }
        talk.send(1, &one.answered(&body, random.below(2) == 0));
        made.exchanges.push(one.clone());
    }
    if is_last {
        finish(made, random);
    }
}

/// Ends a session: in order, by a reset, as another protocol, or not at all.
fn finish(made: &mut Made, random: &mut Random) {
    let talk = &mut made.talk;
    match random.below(5) {
        0 => talk.push(0, RST, talk.next[0], b""),
        1 => {
            talk.send(0, b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            talk.send(1, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x82\x05GET /");
            talk.send(0, b"GET /within the other protocol HTTP/1.1\r\n\r\n");
            made.causes.push(Cause::Upgraded);
        }
        2 => talk.acknowledge(0),
        _ => talk.close(),
    }
}

/// Puts neighbours of one direction in the wrong order, and copies here and there.
fn disturb(frames: &mut Vec<Frame>, random: &mut Random) {
    let is_data = |frame: &Frame| frame.payload_bytes > 0;
    let mut place = 4;
    while place + 1 < frames.len() {
        let (one, other) = (&frames[place], &frames[place + 1]);
        let may_swap = is_data(one) && is_data(other) && one.from == other.from;
        match random.below(12) {
            0 if may_swap => {
                let (one_ns, other_ns) = (one.at_ns, other.at_ns);
                frames.swap(place, place + 1);
                (frames[place].at_ns, frames[place + 1].at_ns) = (one_ns, other_ns);
                place += 2;
            }
            1 => {
                let copy = frames[place].clone();
                frames.insert(place + 1, copy);
                place += 2;
            }
            2 if is_data(one) => {
                let mut copy = one.clone();
                copy.bytes.iter_mut().rev().take(copy.payload_bytes).for_each(|byte| *byte ^= 0x55);
                copy.at_ns = other.at_ns;
                frames.insert(place + 2, copy);
                place += 3;
            }
            _ => place += 1,
        }
    }
}

#[test]
fn each_request_of_a_capture_comes_once_in_its_session() {
    let mut random = Random(31);
    let (mut frames, mut wanted, mut causes) = (Vec::new(), BTreeMap::new(), BTreeMap::<Cause, u64>::new());
    let mut holes = 0;
    for number in 0..SESSIONS {
        let mut made = session(number, &mut random);
        // In every tenth session, a hole in an answer with a body of several segments.
        if number % 10 == 0 {
            holes += u64::from(make_hole(&mut made));
        }
        disturb(&mut made.talk.frames, &mut random);
        frames.append(&mut made.talk.frames);
        made.causes.iter().for_each(|cause| *causes.entry(*cause).or_default() += 1);
        wanted.insert(number, made.exchanges);
    }
    for number in 0..7 {
        let mut tls = Talk::new(60_000 + number, 2_000_000_000, 5);
        tls.send(0, b"\x16\x03\x01\x00\x05hello");
        tls.close();
        frames.append(&mut tls.frames);
    }
    causes.insert(Cause::Tls, 7);
    frames.sort_by_key(|frame| frame.at_ns);
    let read = read(&frames);
    assert_eq!(read.causes, causes.into_iter().collect::<Vec<_>>());
    assert_eq!(read.requests.len() as u64, SESSIONS * REQUESTS);
    assert!(holes > 10 && read.counts.gaps >= holes, "{holes} {:?}", read.counts);
    assert!(read.counts.out_of_order > 500 && read.counts.differing > 500, "{:?}", read.counts);
    let mut found: BTreeMap<u64, (Vec<Exchange>, BTreeSet<u64>)> = BTreeMap::new();
    let mut last_ns = BTreeMap::new();
    for request in &read.requests {
        let target = text(&request.target);
        let session: u64 = target.split('/').nth(2).and_then(|number| number.parse().ok()).expect("it has a number");
        let last = last_ns.insert(session, request.start_ns).unwrap_or(0);
        assert!(last <= request.start_ns, "{target}");
        assert_eq!(text(&request.fields), format!("X-Own: {}\r\n", target.len()));
        let methods = ["GET", "HEAD", "POST", "PUT", "DELETE"];
        let (exchanges, numbers) = found.entry(session).or_default();
        exchanges.push(Exchange {
            method: methods.into_iter().find(|method| method.as_bytes() == request.method).expect("it is known"),
            body: request.body.clone().expect("it has a body"),
            status: request.answer.status.expect("it has a status"),
            answer: request.answer.body.clone(),
            target,
        });
        numbers.insert(request.session);
    }
    let numbers: BTreeSet<u64> = found.values().flat_map(|(_, numbers)| numbers.clone()).collect();
    assert_eq!(numbers.len() as u64, SESSIONS, "each session has its number");
    for (session, exchanges) in wanted {
        assert_eq!(found[&session].0, exchanges, "session {session}");
    }
}

/// Removes a segment within the body of an answer, which is not the last of its connection.
fn make_hole(made: &mut Made) -> bool {
    let frames = &made.talk.frames;
    let full = |frame: &Frame| frame.from == 1 && frame.payload_bytes == made.talk.segment_bytes;
    let is_within = |place: usize| {
        let around = frames.get(place..place + 3).unwrap_or_default();
        around.iter().all(full)
            && !around[1].bytes.windows(7).any(|window| window == b"HTTP/1." || window[..3] == *b"\r\n\r")
    };
    let last = frames.len().saturating_sub(60);
    let Some(place) = (4..last).find(|place| is_within(*place)) else { return false };
    let before: Vec<u8> = frames[..=place].iter().filter(|frame| frame.from == 1).flat_map(payload).collect();
    let text = String::from_utf8_lossy(&before);
    let head = text.rsplit("X-For: ").next().unwrap_or_default();
    // Of chunks, the next size may be lost too.
    let (Some(target), true) = (head.lines().next(), head.contains("Content-Length")) else { return false };
    let Some(one) = made.exchanges.iter_mut().find(|one| one.target == target) else { return false };
    one.answer = None;
    made.talk.frames.remove(place + 1);
    true
}

fn payload(frame: &Frame) -> Vec<u8> {
    frame.bytes[frame.bytes.len() - frame.payload_bytes..].to_vec()
}
