//! The distribution of connections to threads. Every thread accepts; a thread with more than its share passes the
//! connection to the thread with the fewest, so that load is spread evenly however the kernel wakes the threads. Owns
//! the counts of open connections, in total and per peer, and of their memory; refuses connections beyond the limits.
//! A thread that has ended gets no connections.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::limits::Limits;
use crate::serve::admission::peer_of;

/// By how much more than the emptiest thread one may have before it passes connections on, as a divisor.
const SLACK: usize = 16;

/// The number of peer counters. Two peers with the same counter share the limit; a peer cannot cause this, because
/// the hash is keyed.
const BUCKETS: usize = 1 << 14;

/// The counter of a peer's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerBucket(u16);

/// A connection on its way to the thread that will serve it.
pub struct AcceptedConnection {
    pub socket: TcpStream,
    /// Whether it came to a TLS port.
    pub over_tls: bool,
    /// The peer counter, once the connection has been placed.
    pub bucket: PeerBucket,
}

impl AcceptedConnection {
    /// Returns a connection that was just accepted.
    pub fn new(socket: TcpStream, over_tls: bool) -> Self {
        Self { socket, over_tls, bucket: PeerBucket::default() }
    }
}

/// The state that the threads of one responder share.
pub struct Balancer {
    threads: Box<[ThreadSlot]>,
    limit: usize,
    per_peer: usize,
    memory_bytes: usize,
    hasher: RandomState,
    by_peer: Box<[AtomicUsize]>,
    held_bytes: AtomicUsize,
}

#[derive(Default)]
struct ThreadSlot {
    open: AtomicUsize,
    /// Changes only while `inbox` is locked.
    has_ended: AtomicBool,
    inbox: Mutex<Vec<AcceptedConnection>>,
    wake_socket: Option<UnixStream>,
}

/// The decision on an accepted connection.
pub enum Placement {
    /// The accepting thread serves it.
    Own(AcceptedConnection),
    /// Another thread serves it.
    Handed,
    /// There are too many connections.
    Refused,
}

impl Balancer {
    /// Returns a balancer of `threads`, and for each thread a socket that becomes readable when connections are
    /// passed to it.
    pub fn new(threads: usize, limits: &Limits) -> io::Result<(Self, Vec<UnixStream>)> {
        let mut slots = Vec::with_capacity(threads);
        let mut wake_sockets = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (wake_socket, woken) = UnixStream::pair()?;
            wake_socket.set_nonblocking(true)?;
            slots.push(ThreadSlot { wake_socket: Some(wake_socket), ..ThreadSlot::default() });
            wake_sockets.push(woken);
        }
        let balancer = Self {
            threads: slots.into(),
            limit: limits.connections,
            per_peer: limits.per_peer,
            memory_bytes: limits.memory_bytes,
            hasher: RandomState::new(),
            by_peer: (0..BUCKETS).map(|_| AtomicUsize::new(0)).collect(),
            held_bytes: AtomicUsize::new(0),
        };
        Ok((balancer, wake_sockets))
    }

    /// Decides which thread serves a connection that `own` has accepted.
    pub fn place(&self, own: usize, mut accepted: AcceptedConnection) -> Placement {
        let working = self.threads.iter().enumerate().filter(|(_, slot)| !slot.has_ended.load(Ordering::Relaxed));
        let loads = working.map(|(index, slot)| (index, slot.open.load(Ordering::Relaxed)));
        if loads.clone().map(|(_, open)| open).sum::<usize>() >= self.limit {
            // Threads that accept at the same moment may each exceed the limit by one, which does no harm.
            return Placement::Refused;
        }
        // A closed connection has no address; reading it will show this.
        let address = accepted.socket.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        accepted.bucket = PeerBucket((self.hasher.hash_one(peer_of(address)) % BUCKETS as u64) as u16);
        let of_peer = &self.by_peer[usize::from(accepted.bucket.0)];
        if of_peer.fetch_add(1, Ordering::Relaxed) >= self.per_peer {
            of_peer.fetch_sub(1, Ordering::Relaxed);
            return Placement::Refused;
        }
        let (emptiest, least) = loads.min_by_key(|(_, open)| *open).unwrap_or((own, 0));
        let has = self.threads[own].open.load(Ordering::Relaxed);
        if has <= least + least / SLACK {
            self.threads[own].open.fetch_add(1, Ordering::Relaxed);
            return Placement::Own(accepted);
        }
        let slot = &self.threads[emptiest];
        let mut inbox = slot.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.has_ended.load(Ordering::Relaxed) {
            self.threads[own].open.fetch_add(1, Ordering::Relaxed);
            return Placement::Own(accepted);
        }
        slot.open.fetch_add(1, Ordering::Relaxed);
        inbox.push(accepted);
        if inbox.len() == 1 {
            // A full wake socket has not been read yet.
            let _ = slot.wake_socket.as_ref().map(|mut wake_socket| wake_socket.write(&[1]));
        }
        Placement::Handed
    }

    /// Returns the connections that were passed to `own`.
    pub fn take_handed_over(&self, own: usize) -> Vec<AcceptedConnection> {
        std::mem::take(&mut *self.threads[own].inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a connection of `own` with this much memory has been closed.
    pub fn release(&self, own: usize, bucket: PeerBucket, held_bytes: usize) {
        self.threads[own].open.fetch_sub(1, Ordering::Relaxed);
        self.by_peer[usize::from(bucket.0)].fetch_sub(1, Ordering::Relaxed);
        self.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
    }

    /// Records that a connection holds another amount of memory, bytes; returns whether the total is within the
    /// limit.
    pub fn update_held(&self, before_bytes: usize, held_bytes: usize) -> bool {
        self.held_bytes.fetch_add(held_bytes, Ordering::Relaxed);
        let all_bytes = self.held_bytes.fetch_sub(before_bytes, Ordering::Relaxed) - before_bytes;
        all_bytes <= self.memory_bytes
    }

    /// Records that the thread `own` has ended: it gets no more connections, and those that it has not taken are
    /// closed.
    pub fn retire(&self, own: usize) {
        let mut inbox = self.threads[own].inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads[own].has_ended.store(true, Ordering::Relaxed);
        for accepted in inbox.drain(..) {
            self.release(own, accepted.bucket, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::{AcceptedConnection, Balancer, Placement};
    use crate::serve::http::limits::{Limits, LIMITS};

    #[test]
    fn one_busy_listener_fills_all_threads_evenly_within_the_limit() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || AcceptedConnection::new(TcpStream::connect(address).unwrap(), false);
        let (balancer, mut wake_sockets) = Balancer::new(3, &Limits { connections: 48, ..LIMITS }).unwrap();
        let mut loads = [0; 3];
        let mut kept = Vec::new();
        for _ in 0..48 {
            match balancer.place(0, connect()) {
                Placement::Own(own) => {
                    loads[0] += 1;
                    kept.push(own);
                }
                Placement::Handed => {}
                Placement::Refused => panic!("the balancer has room"),
            }
        }
        assert!(matches!(balancer.place(1, connect()), Placement::Refused));
        for other in [1, 2] {
            assert_eq!(wake_sockets[other].read(&mut [0; 8]).unwrap(), 1, "woken once");
            loads[other] = balancer.take_handed_over(other).len();
            assert!(balancer.take_handed_over(other).is_empty());
        }
        assert!(loads.iter().all(|load| (15..=17).contains(load)), "{loads:?}");
        balancer.release(2, kept[0].bucket, 0);
        assert!(matches!(balancer.place(2, connect()), Placement::Own(_)));
    }

    #[test]
    fn a_thread_that_has_ended_is_given_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let place = |balancer: &Balancer| {
            balancer.place(0, AcceptedConnection::new(TcpStream::connect(address).unwrap(), false))
        };
        let (balancer, _bells) = Balancer::new(2, &LIMITS).unwrap();
        assert!(matches!(place(&balancer), Placement::Own(_)));
        assert!(matches!(place(&balancer), Placement::Handed), "the other thread has none yet");
        balancer.retire(1);
        assert!(balancer.take_handed_over(1).is_empty(), "its remaining connections are closed");
        for _ in 0..100 {
            assert!(matches!(place(&balancer), Placement::Own(_)));
        }
        assert!(balancer.take_handed_over(1).is_empty());
    }

    #[test]
    fn the_limit_of_a_peer_leaves_room_for_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connect_from = |from: [u8; 4]| {
            let socket = leadline_sys::tcp::connect(address, Some(from.into()), std::time::Duration::from_secs(60));
            let kept = socket.unwrap();
            (AcceptedConnection::new(listener.accept().unwrap().0, false), kept)
        };
        let (balancer, _bells) = Balancer::new(1, &Limits { per_peer: 3, ..LIMITS }).unwrap();
        let mut open = Vec::new();
        let mut place = |from| {
            let (accepted, kept) = connect_from(from);
            let placement = balancer.place(0, accepted);
            let is_own = matches!(placement, Placement::Own(_));
            open.push((placement, kept));
            is_own
        };
        let greedy: Vec<bool> = (0..6).map(|_| place([127, 0, 0, 2])).collect();
        assert_eq!(greedy, [true, true, true, false, false, false]);
        assert!(place([127, 0, 0, 1]), "another peer");
        let Placement::Own(first) = &open[0].0 else { panic!() };
        balancer.release(0, first.bucket, 0);
        assert!(matches!(balancer.place(0, connect_from([127, 0, 0, 2]).0), Placement::Own(_)), "there is room again");
    }
}
