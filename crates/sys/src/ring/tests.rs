//! The ring against socket pairs. What is asserted is which completions come and what they carry, in any order between
//! sockets, as the kernel promises none.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

const PAYLOAD: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const SOON_NS: u64 = 5_000_000_000;

fn options(slots: u32) -> Options {
    Options { slots, buffers: 16, buffer_bytes: 512, batch: 4 }
}

fn ring_of(options: &Options, payload: &[u8]) -> Ring {
    let mut ring = Ring::new(options, payload.into()).unwrap();
    ring.enable().unwrap();
    ring
}

fn ring(slots: u32) -> Ring {
    ring_of(&options(slots), PAYLOAD)
}

/// Everything until `done` says so, as (slot, what, bytes); fails when that takes too long.
fn collect(ring: &mut Ring, mut done: impl FnMut(usize, &Completion, &[u8]) -> bool) {
    let deadline_ns = monotonic_ns() + SOON_NS;
    loop {
        assert!(monotonic_ns() < deadline_ns, "nothing came");
        ring.wait(deadline_ns).unwrap();
        while let Some((slot, at_ns, completion)) = ring.completion().unwrap() {
            assert!(at_ns <= monotonic_ns());
            if done(slot, &completion, ring.received()) {
                return;
            }
        }
    }
}

fn nothing_comes(ring: &mut Ring) {
    ring.wait(monotonic_ns() + 5_000_000).unwrap();
    let next = ring.completion().unwrap();
    assert!(next.is_none(), "{next:?}");
}

#[test]
fn many_connections_send_and_receive() {
    const COUNT: usize = 300;
    let mut ring = ring(COUNT as u32);
    let mut pairs: Vec<_> = (0..COUNT).map(|_| UnixStream::pair().unwrap()).collect();
    for (slot, (ours, _)) in pairs.iter().enumerate() {
        ring.attach(slot, ours).unwrap();
        assert_eq!(ring.send(slot, 0).unwrap(), Sending::Assumed);
    }
    ring.wait(monotonic_ns()).unwrap();
    for (slot, (_, theirs)) in pairs.iter_mut().enumerate() {
        let mut request = [0; PAYLOAD.len()];
        theirs.read_exact(&mut request).unwrap();
        assert_eq!(request, PAYLOAD);
        theirs.write_all(format!("answer {slot}").as_bytes()).unwrap();
    }
    let mut answers = BTreeMap::new();
    collect(&mut ring, |slot, completion, bytes| {
        assert!(matches!(completion, Completion::Received), "{completion:?}");
        answers.insert(slot, String::from_utf8(bytes.to_vec()).unwrap());
        answers.len() == COUNT
    });
    assert!(answers.iter().all(|(slot, answer)| *answer == format!("answer {slot}")));
    drop(pairs);
    let mut ended = 0;
    collect(&mut ring, |_, completion, _| {
        assert!(matches!(completion, Completion::Ended(Ok(()))), "{completion:?}");
        ended += 1;
        ended == COUNT
    });
    nothing_comes(&mut ring);
}

#[test]
fn a_few_tiny_buffers_carry_a_long_body_in_order() {
    for buffers in [1, 2, 8] {
        let mut ring = ring_of(&Options { slots: 2, buffers, buffer_bytes: 7, batch: 1 }, PAYLOAD);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.attach(1, &ours).unwrap();
        let body: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        theirs.write_all(&body).unwrap();
        let mut got = Vec::new();
        collect(&mut ring, |slot, completion, bytes| {
            assert_eq!(slot, 1);
            assert!(matches!(completion, Completion::Received), "{completion:?}");
            got.extend_from_slice(bytes);
            got.len() >= body.len()
        });
        assert_eq!(got, body);
        assert!(ring.starved() > 0, "a burst of 1429 pieces finds {buffers} buffers used up");
    }
}

#[test]
fn what_comes_late_is_not_taken_for_the_successors() {
    let mut ring = ring(1);
    for round in 0..100u8 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.attach(0, &ours).unwrap();
        theirs.write_all(&[round]).unwrap();
        collect(&mut ring, |_, completion, bytes| {
            assert!(matches!(completion, Completion::Received), "{completion:?}");
            assert_eq!(bytes, [round]);
            true
        });
        // Reaped or not, this is the old socket's.
        theirs.write_all(b"late").unwrap();
        if round % 2 == 0 {
            ring.wait(monotonic_ns() + SOON_NS).unwrap();
        }
        assert_eq!(ring.detach(0).unwrap(), 0);
    }
    nothing_comes(&mut ring);
}

#[test]
fn a_slot_that_is_given_up_lets_go_of_its_socket() {
    let mut ring = ring(1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    ring.attach(0, &ours).unwrap();
    nothing_comes(&mut ring);
    drop(ours);
    ring.detach(0).unwrap();
    nothing_comes(&mut ring);
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the receive that waited no longer holds it open");
}

#[test]
fn a_long_payload_is_told_of_piece_by_piece() {
    let payload = vec![7; 3_000_000];
    let mut ring = ring_of(&options(1), &payload);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours).unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 3_000_000];
        theirs.read_exact(&mut all).unwrap();
        all == vec![7; 3_000_000]
    });
    let mut sent = 0;
    while sent < payload.len() {
        assert_eq!(
            ring.send(0, sent).unwrap(),
            if payload.len() - sent > 4096 { Sending::Told } else { Sending::Assumed }
        );
        if payload.len() - sent <= 4096 {
            ring.wait(monotonic_ns()).unwrap();
            break;
        }
        collect(&mut ring, |_, completion, _| {
            let Completion::Sent(bytes) = completion else { panic!("{completion:?}") };
            sent += bytes;
            true
        });
    }
    assert!(reader.join().unwrap());
}

#[test]
fn a_promise_that_was_not_kept_is_corrected() {
    let mut ring = ring(3);
    // The peer has gone: told as soon as it is tried.
    let (gone, theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &gone).unwrap();
    drop(theirs);
    ring.send(0, 0).unwrap();
    let mut missing = None;
    collect(&mut ring, |_, completion, _| match completion {
        Completion::NotSent(bytes, error) => {
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            missing = Some(*bytes);
            true
        }
        _ => false,
    });
    assert_eq!(missing, Some(PAYLOAD.len()));
    assert_eq!(ring.detach(0).unwrap(), 0, "it has been told");
    // The peer reads nothing and there is no room: told by giving up.
    let (mut full, _theirs) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    ring.attach(1, &full).unwrap();
    ring.send(1, 4).unwrap();
    nothing_comes(&mut ring);
    assert_eq!(ring.detach(1).unwrap(), PAYLOAD.len() - 4);
    // Broken and given up before anybody has asked.
    let (gone, theirs) = UnixStream::pair().unwrap();
    ring.attach(2, &gone).unwrap();
    drop(theirs);
    ring.send(2, 0).unwrap();
    assert_eq!(ring.detach(2).unwrap(), PAYLOAD.len());
    nothing_comes(&mut ring);
}

#[test]
fn watched_sockets_become_writable_or_are_forgotten() {
    let mut ring = ring(2);
    let (mut full, mut theirs) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    ring.watch(0, &full).unwrap();
    ring.watch(1, &full).unwrap();
    nothing_comes(&mut ring);
    ring.detach(1).unwrap();
    theirs.set_nonblocking(true).unwrap();
    while theirs.read(&mut [0; 4096]).is_ok() {}
    collect(&mut ring, |slot, completion, _| {
        assert_eq!(slot, 0);
        assert!(matches!(completion, Completion::Writable), "{completion:?}");
        true
    });
    nothing_comes(&mut ring);
}

#[test]
fn a_wait_ends_when_it_is_due() {
    let mut ring = ring(1);
    for wait_ns in [0, 1, 2_000_000] {
        let due_ns = monotonic_ns() + wait_ns;
        ring.wait(due_ns).unwrap();
        assert!(monotonic_ns() >= due_ns && ring.completion().unwrap().is_none());
    }
}

#[test]
fn dropping_with_operations_in_flight_leaves_nothing() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut pairs: Vec<_> = (0..50).map(|_| UnixStream::pair().unwrap()).collect();
    let before = descriptors();
    for enabled in [true, false] {
        for _ in 0..20 {
            let mut ring = Ring::new(&options(50), PAYLOAD.into()).unwrap();
            if enabled {
                ring.enable().unwrap();
                for (slot, (ours, _)) in pairs.iter().enumerate() {
                    ring.attach(slot, ours).unwrap();
                }
                nothing_comes(&mut ring);
            }
        }
    }
    // Other tests of this process open and close some at the same time; a leak here would be 40 rings.
    assert!(descriptors() < before + 40);
    // Nobody receives any more: what is written stays in the socket.
    for (ours, theirs) in &mut pairs {
        theirs.write_all(b"x").unwrap();
        let mut byte = [0];
        ours.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }
}
