//! Tests of the ring against socket pairs. They assert the completions and their content, in any order between
//! sockets, because the kernel guarantees none.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::*;

mod sends;

const PAYLOAD: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
/// Only a defect takes this long.
const SOON_NS: u64 = 60_000_000_000;

fn options(slots: u32) -> Options {
    Options { slots, buffers: 16, buffer_bytes: 512, batch: 4, awake_ns: 0 }
}

fn ring_of(options: &Options, payload: &[u8]) -> Ring {
    let mut ring = Ring::new(options, payload.into()).unwrap();
    ring.enable().unwrap();
    ring
}

fn ring(slots: u32) -> Ring {
    ring_of(&options(slots), PAYLOAD)
}

/// Collects completions until `done` returns true, as (slot, event, bytes); fails after a time limit.
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
        ring.attach(slot, ours, false).unwrap();
        assert_eq!(ring.send(slot, 0..PAYLOAD.len()).unwrap(), Sending::Assumed);
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
fn spinning_wait_sees_completions_and_ends_in_time() {
    let mut ring = ring_of(&Options { awake_ns: SOON_NS, ..options(1) }, PAYLOAD);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    let begun_ns = monotonic_ns();
    // A wait in which this thread does not run is none.
    while ring.spun_ns() == 0 {
        assert!(monotonic_ns() - begun_ns < SOON_NS, "no wait was busy");
        nothing_comes(&mut ring);
    }
    assert!(ring.spun_ns() <= monotonic_ns() - begun_ns, "{}", ring.spun_ns());
    let peer = std::thread::spawn(move || {
        let mut request = [0; PAYLOAD.len()];
        theirs.read_exact(&mut request).unwrap();
        theirs.write_all(&request).unwrap();
    });
    ring.send(0, 0..PAYLOAD.len()).unwrap();
    let mut received = Vec::new();
    collect(&mut ring, |_, completion, bytes| match completion {
        Completion::Received => {
            received.extend_from_slice(bytes);
            false
        }
        completion => matches!(completion, Completion::Ended(Ok(()))),
    });
    peer.join().unwrap();
    assert_eq!(received, PAYLOAD);
}

#[test]
fn few_small_buffers_carry_a_long_body_in_order() {
    for buffers in [1, 2, 8] {
        let mut ring = ring_of(&Options { slots: 2, buffers, buffer_bytes: 7, batch: 1, awake_ns: 0 }, PAYLOAD);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.attach(1, &ours, false).unwrap();
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
fn late_completion_is_not_taken_for_the_slots_successor() {
    let mut ring = ring(1);
    for round in 0..100u8 {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.attach(0, &ours, false).unwrap();
        theirs.write_all(&[round]).unwrap();
        collect(&mut ring, |_, completion, bytes| {
            assert!(matches!(completion, Completion::Received), "{completion:?}");
            assert_eq!(bytes, [round]);
            true
        });
        // Reaped or not, this belongs to the old socket.
        theirs.write_all(b"late").unwrap();
        if round % 2 == 0 {
            ring.wait(monotonic_ns() + SOON_NS).unwrap();
        }
        assert_eq!(ring.detach(0).unwrap(), Left::default());
    }
    nothing_comes(&mut ring);
}

#[test]
fn detached_slot_releases_its_socket() {
    let mut ring = ring(1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ring.attach(0, &ours, false).unwrap();
    nothing_comes(&mut ring);
    drop(ours);
    ring.detach(0).unwrap();
    nothing_comes(&mut ring);
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the receive that waited no longer holds it open");
}

#[test]
fn long_payload_is_reported_in_pieces() {
    let payload = vec![7; 3_000_000];
    let mut ring = ring_of(&options(1), &payload);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 3_000_000];
        theirs.read_exact(&mut all).unwrap();
        all == vec![7; 3_000_000]
    });
    assert_eq!(ring.send(0, 0..payload.len()).unwrap(), Sending::Reported);
    let mut sent = 0;
    collect(&mut ring, |_, completion, _| {
        let Completion::Sent(bytes) = completion else { panic!("{completion:?}") };
        sent += bytes;
        sent == payload.len()
    });
    assert!(reader.join().unwrap());
}

#[test]
fn failed_send_is_reported_once() {
    let mut ring = ring(3);
    // The peer has gone: the first attempt reports it.
    let (gone, theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &gone, false).unwrap();
    drop(theirs);
    ring.send(0, 0..PAYLOAD.len()).unwrap();
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
    assert_eq!(ring.detach(0).unwrap(), Left::default(), "it has been reported");
    // The peer reads nothing and there is no room: giving up reports it.
    let (mut full, _theirs) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    ring.attach(1, &full, false).unwrap();
    ring.send(1, 4..PAYLOAD.len()).unwrap();
    nothing_comes(&mut ring);
    assert_eq!(ring.detach(1).unwrap().unsent_bytes, PAYLOAD.len() - 4);
    // Broken and given up before any completion was requested.
    let (gone, theirs) = UnixStream::pair().unwrap();
    ring.attach(2, &gone, false).unwrap();
    drop(theirs);
    ring.send(2, 0..PAYLOAD.len()).unwrap();
    assert_eq!(ring.detach(2).unwrap().unsent_bytes, PAYLOAD.len());
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
fn wait_ends_at_its_deadline() {
    let mut ring = ring(1);
    for wait_ns in [0, 1, 2_000_000] {
        let due_ns = monotonic_ns() + wait_ns;
        ring.wait(due_ns).unwrap();
        assert!(monotonic_ns() >= due_ns && ring.completion().unwrap().is_none());
    }
}

#[test]
fn drop_with_operations_in_flight_leaks_nothing() {
    let rings = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|one| std::fs::read_link(one.path()).is_ok_and(|to| to.ends_with("anon_inode:[io_uring]"))).count()
    };
    let mut pairs: Vec<_> = (0..50).map(|_| UnixStream::pair().unwrap()).collect();
    let before = rings();
    for enabled in [true, false] {
        for _ in 0..20 {
            let mut ring = Ring::new(&options(50), PAYLOAD.into()).unwrap();
            if enabled {
                ring.enable().unwrap();
                for (slot, (ours, _)) in pairs.iter().enumerate() {
                    ring.attach(slot, ours, false).unwrap();
                }
                nothing_comes(&mut ring);
            }
        }
    }
    // Other tests of this process have one or two at the same time; a leak here would be 40.
    assert!(rings() < before + 40);
    // No ring receives any more: written bytes stay in the socket.
    for (ours, theirs) in &mut pairs {
        theirs.write_all(b"x").unwrap();
        let mut byte = [0];
        ours.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }
}

#[test]
fn copied_sends_arrive_in_order() {
    let mut ring = ring(2);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(1, &ours, false).unwrap();
    let mut sent_bytes = Vec::new();
    for n in 0..200u32 {
        let mut piece = vec![n as u8; 1 + n as usize * 97 % 9000];
        ring.send_copy(1, &piece).unwrap();
        sent_bytes.extend_from_slice(&piece);
        piece.fill(0xff);
    }
    let expected = sent_bytes.clone();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; expected.len()];
        theirs.read_exact(&mut all).unwrap();
        (all == expected).then_some(theirs)
    });
    let mut sent = 0;
    collect(&mut ring, |slot, completion, _| {
        let Completion::Sent(bytes) = completion else { panic!("{completion:?}") };
        sent += bytes;
        slot == 1 && sent == sent_bytes.len()
    });
    let _theirs = reader.join().unwrap().unwrap();
    nothing_comes(&mut ring);
}

#[test]
fn copied_send_in_flight_outlives_its_slot() {
    let mut ring = ring(1);
    for round in 0..20 {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 4096]).is_ok() {}
        ours.set_nonblocking(false).unwrap();
        ring.attach(0, &ours, false).unwrap();
        ring.send_copy(0, &vec![1; 100_000]).unwrap();
        if round % 2 == 0 {
            nothing_comes(&mut ring);
        }
        ring.detach(0).unwrap();
        drop(theirs);
    }
    nothing_comes(&mut ring);
    // A payload and a copy after it are sent in this order.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    ring.send(0, 0..PAYLOAD.len()).unwrap();
    ring.send_copy(0, b"tail").unwrap();
    ring.wait(monotonic_ns()).unwrap();
    let mut all = [0; PAYLOAD.len() + 4];
    theirs.read_exact(&mut all).unwrap();
    assert_eq!((&all[..PAYLOAD.len()], &all[PAYLOAD.len()..]), (PAYLOAD, b"tail".as_slice()));
}

#[test]
fn received_data_carries_the_kernel_timestamp() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    crate::connect::stamp_received(&ours).unwrap();
    let mut ring = ring(1);
    ring.attach(0, &ours, true).unwrap();
    let deadline_ns = monotonic_ns() + SOON_NS;
    let mut stamps = 0;
    // The kernel begins to stamp some time after the first socket has requested it.
    for length in (1..5000).cycle().step_by(997) {
        if stamps > 20 {
            break;
        }
        let before_ns = crate::clock::realtime_ns();
        let sent: Vec<u8> = (0..length).map(|n: u32| n as u8).collect();
        theirs.write_all(&sent).unwrap();
        let mut got = Vec::new();
        while got.len() < sent.len() {
            assert!(monotonic_ns() < deadline_ns, "nothing came");
            ring.wait(deadline_ns).unwrap();
            while let Some((_, _, completion)) = ring.completion().unwrap() {
                assert!(matches!(completion, Completion::Received), "{completion:?}");
                got.extend_from_slice(ring.received());
                if let Some(stamp_ns) = ring.stamp_ns() {
                    stamps += 1;
                    assert!(before_ns <= stamp_ns && stamp_ns <= crate::clock::realtime_ns());
                }
            }
        }
        assert_eq!(got, sent);
    }
    drop(theirs);
    collect(&mut ring, |_, completion, _| {
        assert!(matches!(completion, Completion::Ended(Ok(()))), "{completion:?}");
        true
    });
}

#[test]
fn paused_socket_receives_after_resume() {
    let mut ring = ring(1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    for round in 0..3u8 {
        theirs.write_all(&[round]).unwrap();
        collect(&mut ring, |_, completion, bytes| matches!(completion, Completion::Received) && bytes == [round]);
        ring.pause(0).unwrap();
        nothing_comes(&mut ring);
        theirs.write_all(b"later").unwrap();
        nothing_comes(&mut ring);
        ring.resume(0).unwrap();
        collect(&mut ring, |_, completion, bytes| matches!(completion, Completion::Received) && bytes == b"later");
    }
    // The pause may end before it has taken effect.
    ring.pause(0).unwrap();
    ring.resume(0).unwrap();
    theirs.write_all(b"on").unwrap();
    collect(&mut ring, |_, completion, bytes| matches!(completion, Completion::Received) && bytes == b"on");
    drop(theirs);
    collect(&mut ring, |_, completion, _| matches!(completion, Completion::Ended(Ok(()))));
}

#[test]
fn listener_accepts_repeatedly() {
    let mut ring = ring(1);
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    ring.accept(0, &listener).unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = Vec::new();
    for count in 1..=20 {
        let _client = std::net::TcpStream::connect(address).unwrap();
        ring.wait(monotonic_ns() + SOON_NS).unwrap();
        while let Some((slot, _, completion)) = ring.completion().unwrap() {
            assert_eq!(slot, 0);
            if let Completion::Accepted(socket) = completion {
                accepted.push(std::net::TcpStream::from(socket));
            }
        }
        assert_eq!(accepted.len(), count);
    }
    assert!(accepted.iter().all(|socket| socket.local_addr().unwrap() == address));
}

/// Returns a listener and a client that waits to be accepted.
fn knocked() -> (std::net::TcpListener, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener, client)
}

#[test]
fn accepting_listener_is_not_armed_twice() {
    let (listener, client) = knocked();
    let mut ring = ring(1);
    ring.accept(0, &listener).unwrap();
    assert_eq!(ring.queued, 1);
    ring.accept(0, &listener).unwrap();
    assert_eq!(ring.queued, 1, "one accept is under way");
    collect(&mut ring, |_, completion, _| matches!(completion, Completion::Accepted(_)));
    ring.accept(0, &listener).unwrap();
    assert_eq!(ring.queued, 0, "and goes on after the first connection");
    drop(client);
    let next = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    collect(&mut ring, |_, completion, _| matches!(completion, Completion::Accepted(_)));
    drop(next);
    nothing_comes(&mut ring);
}

#[test]
fn connection_accepted_for_a_detached_slot_is_closed() {
    for gives_up in [true, false] {
        let (listener, mut client) = knocked();
        let mut ring = ring(1);
        ring.accept(0, &listener).unwrap();
        ring.wait(monotonic_ns() + SOON_NS).unwrap();
        assert_eq!(ring.reaped.len(), 1, "accepted, and not asked for yet");
        if gives_up {
            ring.detach(0).unwrap();
            nothing_comes(&mut ring);
        } else {
            drop(ring);
        }
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "closed");
    }
}
