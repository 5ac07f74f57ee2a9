//! What goes wrong on the way of packets, and how much memory it may take.

use leadline_packet::capture::LinkType;
use leadline_replay::packets::{PacketSource, Reassembly, ReassemblyOptions};
use leadline_replay::{Cause, Source};
use proptest::prelude::*;

use crate::packets::{answer, given, read, request, text, unanswered};
use crate::wire::{ethernet, pcap, pcap_header, push_record, Frame, Random, Talk, ACK, FIN};

/// Two requests with bodies, in segments of ten bytes.
fn two_posts(first: u32) -> Talk {
    let mut talk = Talk::new(5000, 0, first);
    talk.segment_bytes = 10;
    for target in ["/a", "/b"] {
        let body = format!("the body of {target}");
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        talk.send(0, &[head, body].concat().into_bytes());
        talk.send(1, &answer(&format!("the answer to {target}")));
    }
    talk.close();
    talk
}

fn both() -> [(String, Option<u16>, Option<String>); 2] {
    [given("/a", 200, "the answer to /a"), given("/b", 200, "the answer to /b")]
}

/// Places of the frames with payload of one end.
fn data(talk: &Talk, from: usize) -> Vec<usize> {
    let has_data = |frame: &Frame| frame.from == from && frame.payload_bytes > 0;
    (0..talk.frames.len()).filter(|place| has_data(&talk.frames[*place])).collect()
}

#[test]
fn segments_in_any_order_are_put_in_order() {
    for first in [1, u32::MAX - 25, u32::MAX - 60] {
        let talk = two_posts(first);
        for from in [0, 1] {
            let places = data(&talk, from);
            for pair in places.windows(2).filter(|pair| pair[1] - pair[0] < 4) {
                let mut frames = talk.frames.clone();
                frames.swap(pair[0], pair[1]);
                let read = read(&frames);
                assert_eq!((read.answers(), read.causes), (both().to_vec(), vec![]), "{pair:?}");
                assert_eq!(read.counts.lost_bytes, 0);
                assert_eq!(read.requests[1].body.as_deref(), Some(&b"the body of /b"[..]));
            }
        }
    }
}

#[test]
fn copies_are_dropped_and_the_first_one_stays() {
    let talk = two_posts(1);
    for place in 0..talk.frames.len() {
        let mut twice = talk.frames.clone();
        twice.insert(place + 1, twice[place].clone());
        assert_eq!(read(&twice).answers(), both(), "frame {place} twice");
        if talk.frames[place].payload_bytes > 0 && place + 6 < talk.frames.len() {
            let mut other = talk.frames[place].clone();
            other.bytes.iter_mut().rev().take(other.payload_bytes).for_each(|byte| *byte = b'?');
            let mut differing = talk.frames.clone();
            differing.insert(place + 5, other);
            let read = read(&differing);
            assert_eq!(read.answers(), both());
            assert_eq!((read.counts.retransmitted, read.counts.differing), (1, 1), "frame {place}");
        }
    }
    let all_twice: Vec<Frame> = talk.frames.iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
    let read = read(&all_twice);
    assert_eq!((read.answers(), read.causes, read.counts.differing), (both().to_vec(), vec![], 0));
}

#[test]
fn overlapping_segments_keep_the_bytes_that_came_first() {
    let mut talk = Talk::new(5000, 0, 1);
    let text_ = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789";
    let (first, middle) = (talk.next[0], text_.len() as u32 - 6);
    talk.push(0, ACK, first + middle, b"4567");
    talk.push(0, ACK, first + middle - 3, b"123????89");
    let head = &text_[..text_.len() - 8];
    talk.push(0, ACK, first, head);
    talk.next[0] += text_.len() as u32;
    talk.send(1, &answer("A"));
    let read = read(&talk.frames);
    assert_eq!(read.requests[0].body.as_deref().map(text), Some("0123456789".into()));
    assert_eq!(read.counts.differing, 1);
    assert_eq!(read.answers(), [given("/a", 200, "A")]);
}

#[test]
fn probes_and_an_end_with_bytes_are_understood() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    talk.push(0, ACK, talk.next[0] - 1, b"\0");
    talk.push(1, ACK, talk.next[1] - 1, b"");
    talk.end(0, &request("/b"));
    talk.end(1, b"HTTP/1.1 200 OK\r\n\r\nB");
    talk.acknowledge(0);
    let late = talk.frames[talk.frames.len() - 3].clone();
    talk.frames.push(late);
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [given("/a", 200, "A"), given("/b", 200, "B")]);
    assert_eq!((read.counts.differing, read.causes), (0, vec![]));
}

#[test]
fn a_hole_in_a_request_loses_that_request_alone() {
    let talk = two_posts(1);
    for place in data(&talk, 0) {
        let mut frames = talk.frames.clone();
        frames.remove(place);
        let read = read(&frames);
        let is_first = place < data(&talk, 1)[0];
        let expected = if is_first { both()[1].clone() } else { both()[0].clone() };
        assert_eq!(read.answers(), [expected], "without frame {place}");
        assert_eq!(read.causes, [(Cause::Gap, 1)], "without frame {place}");
        assert_eq!((read.counts.gaps, read.counts.lost_bytes), (1, talk.frames[place].payload_bytes as u64));
    }
}

#[test]
fn a_hole_in_an_answer_loses_its_body_alone() {
    let talk = two_posts(1);
    for place in data(&talk, 1) {
        let mut frames = talk.frames.clone();
        frames.remove(place);
        let read = read(&frames);
        let is_first = place < data(&talk, 0)[7];
        let (damaged, whole) = if is_first { (0, 1) } else { (1, 0) };
        assert_eq!(read.causes, []);
        assert_eq!(read.answers()[whole], both()[whole], "without frame {place}");
        let answer = &read.requests[damaged].answer;
        assert_eq!(answer.body, None, "without frame {place}");
        assert!(answer.body_bytes.is_none_or(|bytes| bytes == 16));
    }
}

#[test]
fn a_hole_is_lost_only_when_the_other_side_acknowledged_it() {
    let talk = two_posts(1);
    let client = data(&talk, 0);
    // The other side speaks, of what came before, and the segment comes at last.
    let mut frames = talk.frames.clone();
    let late = frames.remove(client[1]);
    let place = client[4];
    for number in 0..20 {
        let bytes = ethernet(talk.ends[1], talk.ends[0], 0, 2 + 10, ACK, b"");
        frames.insert(
            place - 1 + number,
            Frame { from: 1, payload_bytes: 0, original_bytes: 60, bytes, at_ns: late.at_ns },
        );
    }
    frames.insert(place + 20, late);
    let read = read(&frames);
    assert_eq!((read.answers(), read.counts.gaps), (both().to_vec(), 0));
}

#[test]
fn answers_in_a_pipeline_with_a_hole_are_not_given_to_others() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &[request("/a"), request("/b"), request("/c")].concat());
    for body in ["A", "B", "C"] {
        talk.send(1, &answer(body));
    }
    talk.send(0, &request("/d"));
    talk.send(1, &answer("D"));
    let place = data(&talk, 1)[0];
    talk.frames.remove(place);
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [unanswered("/a"), unanswered("/b"), unanswered("/c"), given("/d", 200, "D")]);
}

#[test]
fn an_answer_that_was_captured_before_its_request_belongs_to_it() {
    for rounds in [1, 3] {
        let mut talk = Talk::new(5000, 0, 1);
        for number in 0..rounds {
            talk.send(0, &request(&format!("/{number}")));
            talk.send(1, &answer(&number.to_string()));
        }
        for first in (3..talk.frames.len()).step_by(2) {
            talk.frames.swap(first, first + 1);
        }
        let expected: Vec<_> =
            (0..rounds).map(|number| given(&format!("/{number}"), 200, &number.to_string())).collect();
        assert_eq!(read(&talk.frames).answers(), expected);
    }
}

#[test]
fn bytes_that_no_request_asked_for_are_not_given_to_the_next_one() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    talk.send(1, b"HTTP/1.1 408 Timeout\r\nContent-Length: 4\r\n\r\nlate");
    talk.send(0, &request("/b"));
    talk.send(1, &answer("B"));
    assert_eq!(read(&talk.frames).answers(), [given("/a", 200, "A"), given("/b", 200, "B")]);
}

#[test]
fn frames_that_were_cut_are_holes() {
    let mut talk = two_posts(1);
    talk.segment_bytes = 1000;
    talk.frames.clear();
    talk = Talk { next: [1, 1], ..talk };
    talk.shake_hands();
    talk.send(0, &request("/a"));
    talk.send(1, &answer(&"x".repeat(500)));
    talk.send(0, &request("/b"));
    talk.send(1, &answer("B"));
    for frame in &mut talk.frames {
        frame.bytes.truncate(200);
    }
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [("/a".into(), Some(200), None), given("/b", 200, "B")]);
    assert_eq!(read.requests[0].answer.body_bytes, Some(500));
    assert_eq!((read.counts.cut_frames, read.causes), (1, vec![]));
}

#[test]
fn fragments_are_counted_and_large_frames_of_ipv6_are_read() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.ends = [("fd00::1".parse().unwrap(), 5000), ("fd00::2".parse().unwrap(), 80)];
    talk.frames.clear();
    talk.segment_bytes = 60_000;
    talk.send(0, &request("/a"));
    talk.send(1, &answer(&"y".repeat(100_000)));
    let mut fragment = ethernet(("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 80), 1, 1, ACK, b"x");
    fragment[20] = 0x20;
    talk.frames.push(Frame { bytes: fragment, ..talk.frames[0].clone() });
    let read = read(&talk.frames);
    assert_eq!(read.answers(), [given("/a", 200, &"y".repeat(100_000))]);
    assert_eq!(read.counts.fragments, 1);
}

#[test]
fn a_file_that_is_cut_gives_what_it_has() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    let file = pcap(&talk.frames);
    let mut source = PacketSource::open(&file[..file.len() - 3], ReassemblyOptions::default()).unwrap();
    assert_eq!(source.next().unwrap().map(|request| request.answer.status), Some(None));
    assert!(source.next().unwrap().is_none() && source.next().unwrap().is_none());
    assert_eq!(source.causes().iter().collect::<Vec<_>>(), [(Cause::CutOff, 1)]);
    let error = PacketSource::open(&b"GET / HTTP/1.1\r\n"[..], ReassemblyOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("not a capture: it begins with"), "{error}");
}

/// Options with little memory.
fn small() -> ReassemblyOptions {
    ReassemblyOptions { message_bytes: 100_000, total_bytes: 1_000_000, ..ReassemblyOptions::default() }
}

/// Passes frames, and returns the most that was held.
fn feed(reassembly: &mut Reassembly, frames: &[Frame]) -> usize {
    let take = |frame: &Frame| {
        reassembly.frame(frame.at_ns, LinkType::Ethernet, &frame.bytes, frame.original_bytes);
        reassembly.held_bytes()
    };
    frames.iter().map(take).max().unwrap_or(0)
}

#[test]
fn memory_is_bounded_for_one_connection_and_for_all() {
    let mut reassembly = Reassembly::new(small());
    let mut most = 0;
    for port in 1..2000 {
        let mut talk = Talk::new(port, u64::from(port) * 1000, 1);
        talk.send(0, b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n");
        talk.send(0, &[b'x'; 50_000]);
        most = most.max(feed(&mut reassembly, &talk.frames));
    }
    assert!(most <= 1_200_000, "{most}");
    assert!(reassembly.counts().given_up > 1900);
    reassembly.finish();
    let causes: Vec<_> = reassembly.causes().iter().collect();
    assert_eq!(causes.iter().map(|(_, count)| count).sum::<u64>(), 1999, "{causes:?}");
    assert!(causes[1].1 > 1900 && causes[1].0 == Cause::TooLarge);
    assert_eq!(reassembly.held_bytes(), 0);
}

#[test]
fn bodies_that_are_too_large_are_counted_and_reading_goes_on() {
    let mut reassembly = Reassembly::new(small());
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n");
    talk.send(0, &[b'x'; 5_000_000]);
    talk.send(1, &answer("A"));
    talk.send(0, &request("/b"));
    talk.send(1, &answer(&"y".repeat(300_000)));
    let most = feed(&mut reassembly, &talk.frames);
    assert!(most <= 400_000, "{most}");
    let given = reassembly.next().unwrap();
    assert_eq!((text(&given.target), given.answer.body, given.answer.body_bytes), ("/b".into(), None, Some(300_000)));
    assert_eq!(reassembly.causes().iter().collect::<Vec<_>>(), [(Cause::TooLarge, 1)]);
}

#[test]
fn requests_that_nothing_answers_do_not_pile_up() {
    let mut reassembly = Reassembly::new(small());
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/0"));
    talk.send(1, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun");
    (1..5000).for_each(|number| talk.send(0, &request(&format!("/{number}"))));
    let most = feed(&mut reassembly, &talk.frames);
    assert!(most <= 300_000, "{most}");
    reassembly.finish();
    let targets: Vec<_> = std::iter::from_fn(|| reassembly.next()).map(|request| text(&request.target)).collect();
    assert_eq!(targets, (0..5000).map(|number| format!("/{number}")).collect::<Vec<_>>());
}

#[test]
fn segments_beyond_holes_do_not_pile_up() {
    let mut reassembly = Reassembly::new(ReassemblyOptions::default());
    let mut talk = Talk::new(5000, 0, 1);
    talk.next[0] += 5;
    for _ in 0..4 {
        talk.send(0, &[b'x'; 5_000_000]);
        talk.next[0] += 5;
    }
    let most = feed(&mut reassembly, &talk.frames);
    assert!(most <= 6 << 20, "{most}");
    assert!(reassembly.counts().gaps >= 3);
}

#[test]
fn a_connection_that_went_on_uncaptured_is_found_again() {
    let mut talk = Talk::new(5000, 0, 1);
    talk.send(0, &request("/a"));
    talk.send(1, &answer("A"));
    talk.next = talk.next.map(|next| next.wrapping_add(1 << 30));
    for number in 0..10 {
        talk.send(0, &request(&format!("/{number}")));
        talk.send(1, &answer(&number.to_string()));
    }
    let read = read(&talk.frames);
    let answers = read.answers();
    assert_eq!(answers[0], given("/a", 200, "A"));
    assert_eq!(answers.last(), Some(&given("/9", 200, "9")));
    assert!(answers.len() >= 5, "{answers:?}");
    for (target, _, body) in answers.iter().skip(1) {
        assert!(body.as_ref().is_none_or(|body| *target == format!("/{body}")), "{answers:?}");
    }
}

/// A conversation that anything may have happened to.
fn damage(random: &mut Random, frames: &mut Vec<Frame>) {
    for _ in 0..random.below(6) {
        let place = random.below(frames.len() as u64) as usize;
        match random.below(5) {
            0 => {
                frames.remove(place);
            }
            1 => frames.insert(place, frames[random.below(frames.len() as u64) as usize].clone()),
            2 => {
                let other = random.below(frames.len() as u64) as usize;
                frames.swap(place, other);
            }
            3 => {
                let at = random.below(frames[place].bytes.len() as u64) as usize;
                frames[place].bytes[at] ^= 1 << random.below(8);
            }
            _ => {
                let bytes = random.below(frames[place].bytes.len() as u64) as usize;
                frames[place].bytes.truncate(bytes);
            }
        }
        if frames.is_empty() {
            return;
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_request_is_given_twice_or_with_the_answer_of_another(seed in any::<u64>(), is_mild in any::<bool>()) {
        let mut random = Random(seed);
        let mut talk = Talk::new(5000, 0, random.next() as u32);
        talk.segment_bytes = if is_mild { 12 } else { 1 } + random.below(60) as usize;
        for number in 0..4 {
            talk.send(0, &request(&format!("/{number}")));
            talk.send(1, &answer(&format!("{number}{number}")));
        }
        talk.end(0, b"");
        talk.push(1, FIN | ACK, talk.next[1], b"");
        if is_mild {
            let place = random.below(talk.frames.len() as u64) as usize;
            talk.frames.remove(place);
        } else {
            damage(&mut random, &mut talk.frames);
        }
        let read = read(&talk.frames);
        if is_mild {
            let mut targets = read.targets();
            targets.sort();
            targets.dedup();
            prop_assert_eq!(targets.len(), read.requests.len());
            prop_assert!(targets.len() >= 3, "{:?}", targets);
            for (target, _, body) in read.answers() {
                let own = format!("{0}{0}", &target[1..]);
                prop_assert!(body.is_none_or(|body| body == own));
            }
        }
    }

    #[test]
    fn any_bytes_in_any_frames_are_read_to_their_end(
        frames in proptest::collection::vec(
            (0u8..2, any::<u16>(), any::<u16>(), any::<u8>(), "(GET / HTTP/1.1\r\nHost: a\r\n\r\n|HTTP/1.1 200 OK\r\n\r\n|x|.{0,9}){0,3}"),
            0..60,
        ),
        junk in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut file = pcap_header(1);
        let ends = [("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 80)];
        for (number, (from, sequence, acknowledged, flags, payload)) in frames.iter().enumerate() {
            let [from, to] = if *from == 0 { ends } else { [ends[1], ends[0]] };
            let (sequence, acknowledged) = (u32::from(*sequence >> 8), u32::from(*acknowledged >> 8));
            let frame = ethernet(from, to, sequence, acknowledged, *flags, payload.as_bytes());
            push_record(&mut file, number as u64, &frame, frame.len() as u32);
        }
        file.extend_from_slice(&junk);
        let mut source = PacketSource::open(&file[..], ReassemblyOptions::default()).unwrap();
        while let Ok(Some(_)) = source.next() {}
    }
}
