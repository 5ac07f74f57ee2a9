//! Tests of sends: the state of a slot's last send, the order of pieces, and the times when they were submitted.

use std::os::fd::AsRawFd;

use super::*;

/// Returns a socket that accepts no more bytes, and its peer.
fn full() -> (UnixStream, UnixStream) {
    let (mut full, theirs) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    (full, theirs)
}

/// Reads all bytes that have arrived at a socket.
fn drain(socket: &mut UnixStream) -> Vec<u8> {
    socket.set_nonblocking(true).unwrap();
    let mut all = Vec::new();
    let _ = socket.read_to_end(&mut all);
    all
}

#[test]
fn copied_send_during_detach_counts_as_taken() {
    let mut ring = ring(1);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    // Queued, and submitted only with its cancellation.
    ring.send_copy(0, b"three requests").unwrap();
    assert_eq!(ring.handed_over_ns(), None);
    let left = ring.detach(0).unwrap();
    assert_eq!(drain(&mut theirs), b"three requests");
    assert_eq!(left, Left { unsent_bytes: 0, taken_bytes: 14 });
    // The same for a send that was submitted and whose end has not been reported.
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    ring.send_copy(0, b"three requests").unwrap();
    ring.flush().unwrap();
    assert_eq!(drain(&mut theirs), b"three requests");
    assert_eq!(ring.detach(0).unwrap(), Left { unsent_bytes: 0, taken_bytes: 14 });
    nothing_comes(&mut ring);
}

#[test]
fn copied_send_without_room_is_not_taken() {
    let mut ring = ring(1);
    for waits in [false, true] {
        let (ours, mut theirs) = full();
        ring.attach(0, &ours, false).unwrap();
        ring.send_copy(0, b"x").unwrap();
        if waits {
            nothing_comes(&mut ring);
        }
        assert_eq!(ring.detach(0).unwrap(), Left::default());
        assert!(!drain(&mut theirs).contains(&b'x'));
    }
}

#[test]
fn detach_reports_the_bytes_the_peer_received() {
    let payload = vec![7; 3_000_000];
    for reads in [0, 1000, 100_000] {
        let mut ring = ring_of(&options(1), &payload);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ring.attach(0, &ours, false).unwrap();
        ring.send(0, 0..payload.len()).unwrap();
        ring.flush().unwrap();
        let mut read = vec![0; reads];
        theirs.read_exact(&mut read).unwrap();
        let mut reported = 0;
        ring.wait(monotonic_ns()).unwrap();
        while let Some((_, _, completion)) = ring.completion().unwrap() {
            let Completion::Sent(bytes) = completion else { panic!("{completion:?}") };
            reported += bytes;
        }
        let left = ring.detach(0).unwrap();
        assert_eq!(reported + left.taken_bytes, reads + drain(&mut theirs).len());
    }
}

#[test]
fn copied_send_after_a_long_payload_is_sent() {
    let payload = vec![7; 1_000_000];
    let mut ring = ring_of(&options(1), &payload);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ring.attach(0, &ours, false).unwrap();
    ring.send(0, 0..payload.len()).unwrap();
    ring.send_copy(0, b"first").unwrap();
    ring.send_copy(0, b"last").unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; 1_000_009];
        theirs.read_exact(&mut all).unwrap();
        (all.ends_with(b"\x07firstlast")).then_some(theirs)
    });
    let mut sent = 0;
    collect(&mut ring, |_, completion, _| {
        let Completion::Sent(bytes) = completion else { panic!("{completion:?}") };
        sent += bytes;
        sent == payload.len() + 9
    });
    assert!(reader.join().unwrap().is_some());
}

#[test]
fn watch_survives_reuse_of_the_descriptor() {
    let mut ring = ring(1);
    let (writable, _theirs) = UnixStream::pair().unwrap();
    let (full, _peer) = full();
    ring.watch(0, &writable).unwrap();
    // SAFETY: both are open, and `writable` keeps owning its descriptor.
    assert!(unsafe { libc::dup2(full.as_raw_fd(), writable.as_raw_fd()) } >= 0);
    collect(&mut ring, |_, completion, _| matches!(completion, Completion::Writable));
}

#[test]
fn sends_are_submitted_by_full_batch_flush_or_wait() {
    let mut ring = ring(4);
    let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
    for (slot, (ours, _)) in pairs.iter().enumerate() {
        ring.attach(slot, ours, false).unwrap();
    }
    ring.flush().unwrap();
    let mut last_ns = ring.handed_over_ns().unwrap();
    for how in 0..3 {
        let begun_ns = monotonic_ns();
        ring.send(0, 0..1).unwrap();
        assert_eq!(ring.handed_over_ns(), None, "queued");
        match how {
            0 => {
                for slot in 1..4 {
                    ring.send(slot, 0..1).unwrap();
                }
            }
            1 => ring.flush().unwrap(),
            _ => ring.wait(begun_ns).unwrap(),
        }
        let handed_over_ns = ring.handed_over_ns().unwrap();
        assert!(last_ns <= begun_ns && (begun_ns..=monotonic_ns()).contains(&handed_over_ns));
        last_ns = handed_over_ns;
    }
}
