//! The distribution of connections to threads. Every thread accepts; a thread with more than its share passes the
//! connection to the thread with the fewest, so that load is spread evenly however the kernel wakes the threads. Owns
//! the counts of open connections and of their memory; `occupancy` decides whether there is a place. A thread that has
//! ended gets no connections.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::limits::Limits;
use crate::serve::occupancy::Occupancy;
use crate::serve::peer_rate::PeerRate;
use crate::serve::shares::peer_of;

/// By how much more than the emptiest thread one may have before it passes connections on, as a divisor.
const SLACK: usize = 16;

/// A connection on its way to the thread that will serve it.
pub struct AcceptedConnection {
    pub socket: TcpStream,
    /// Whether it came to a TLS port.
    pub over_tls: bool,
    /// Its peer, once the connection has been placed.
    pub peer: IpAddr,
    /// What may be sent to its peer, once the connection has been placed; unlimited if absent.
    pub rate: Option<Arc<PeerRate>>,
}

impl AcceptedConnection {
    /// Returns a connection that was just accepted.
    pub fn new(socket: TcpStream, over_tls: bool) -> Self {
        Self { socket, over_tls, peer: IpAddr::V4(Ipv4Addr::UNSPECIFIED), rate: None }
    }
}

/// What one thread passes to another.
pub enum Handed {
    /// A connection that it is to serve.
    Connection(AcceptedConnection),
    /// It is to close the longest idle connections of this peer; this many threads had none.
    CloseIdle(IpAddr, usize),
}

/// The state that the threads of one responder share.
pub struct Balancer {
    threads: Box<[ThreadSlot]>,
    memory_bytes: usize,
    occupancy: Arc<Occupancy>,
    held_bytes: AtomicUsize,
}

#[derive(Default)]
struct ThreadSlot {
    open: AtomicUsize,
    /// Changes only while `inbox` is locked.
    has_ended: AtomicBool,
    inbox: Mutex<Vec<Handed>>,
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
    pub fn new(threads: usize, limits: &Limits, occupancy: Arc<Occupancy>) -> io::Result<(Self, Vec<UnixStream>)> {
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
            memory_bytes: limits.memory_bytes,
            occupancy,
            held_bytes: AtomicUsize::new(0),
        };
        Ok((balancer, wake_sockets))
    }

    /// Decides which thread serves a connection that `own` has accepted.
    pub fn place(&self, own: usize, mut accepted: AcceptedConnection) -> Placement {
        // A closed connection has no address; reading it will show this.
        let address = accepted.socket.peer_addr().map_or(accepted.peer, |peer| peer.ip());
        accepted.peer = peer_of(address);
        let Some(place) = self.occupancy.take_http(accepted.peer) else { return Placement::Refused };
        accepted.rate = place.rate;
        if let Some(displaced) = place.displaced {
            self.close_idle(displaced);
        }
        let working = self.threads.iter().enumerate().filter(|(_, slot)| !slot.has_ended.load(Ordering::Relaxed));
        let loads = working.map(|(index, slot)| (index, slot.open.load(Ordering::Relaxed)));
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
        slot.push(&mut inbox, Handed::Connection(accepted));
        Placement::Handed
    }

    /// Has the longest idle connections of a peer closed that one thread serves: the one with most connections, as each
    /// has about as many of every peer.
    pub fn close_idle(&self, peer: IpAddr) {
        let working = self.threads.iter().enumerate().filter(|(_, slot)| !slot.has_ended.load(Ordering::Relaxed));
        if let Some((fullest, _)) = working.max_by_key(|(_, slot)| slot.open.load(Ordering::Relaxed)) {
            self.ask_to_close(fullest, peer, 0);
        }
    }

    /// Passes on what the thread `own` could not do, because it serves no connection of this peer.
    pub fn pass_on(&self, own: usize, peer: IpAddr, asked: usize) {
        if asked + 1 < self.threads.len() {
            self.ask_to_close((own + 1) % self.threads.len(), peer, asked + 1);
        }
    }

    fn ask_to_close(&self, thread: usize, peer: IpAddr, asked: usize) {
        let slot = &self.threads[thread];
        let mut inbox = slot.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        slot.push(&mut inbox, Handed::CloseIdle(peer, asked));
    }

    /// Has something closed, because the process has no descriptor left.
    pub fn free_descriptor(&self) {
        self.occupancy.free_descriptor();
    }

    /// Returns what was passed to `own`.
    pub fn take_handed_over(&self, own: usize) -> Vec<Handed> {
        std::mem::take(&mut *self.threads[own].inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a connection of `own` with this much memory has been closed.
    pub fn release(&self, own: usize, peer: IpAddr, held_bytes: usize) {
        self.threads[own].open.fetch_sub(1, Ordering::Relaxed);
        self.occupancy.leave_http(peer);
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
        for handed in inbox.drain(..) {
            if let Handed::Connection(accepted) = handed {
                self.release(own, accepted.peer, 0);
            }
        }
    }
}

impl ThreadSlot {
    /// Adds to the inbox, which is locked, and wakes the thread.
    fn push(&self, inbox: &mut Vec<Handed>, handed: Handed) {
        inbox.push(handed);
        if inbox.len() == 1 {
            // A full wake socket has not been read yet.
            let _ = self.wake_socket.as_ref().map(|mut wake_socket| wake_socket.write(&[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::{AcceptedConnection, Balancer, Handed, Placement};
    use crate::serve::http::limits::tests::occupancy;
    use crate::serve::http::limits::LIMITS;

    /// Returns a balancer with this many places for connections, of all peers and of one.
    fn balancer(threads: usize, connections: usize, of_peer: usize) -> (Balancer, Vec<UnixStream>) {
        Balancer::new(threads, &LIMITS, occupancy(connections, of_peer, None)).unwrap()
    }

    #[test]
    fn one_busy_listener_fills_all_threads_evenly_within_the_limit() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || AcceptedConnection::new(TcpStream::connect(address).unwrap(), false);
        let (balancer, mut wake_sockets) = balancer(3, 48, 48);
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
        balancer.release(2, kept[0].peer, 0);
        assert!(matches!(balancer.place(2, connect()), Placement::Own(_)));
    }

    #[test]
    fn a_thread_that_has_ended_is_given_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let place = |balancer: &Balancer| {
            balancer.place(0, AcceptedConnection::new(TcpStream::connect(address).unwrap(), false))
        };
        let (balancer, _bells) = balancer(2, 1000, 1000);
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
        let (balancer, _bells) = balancer(1, 100, 3);
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
        balancer.release(0, first.peer, 0);
        assert!(matches!(balancer.place(0, connect_from([127, 0, 0, 2]).0), Placement::Own(_)), "there is room again");
    }

    #[test]
    fn request_to_close_goes_round_the_threads_once() {
        let (balancer, mut wake_sockets) = balancer(3, 100, 100);
        let peer = Ipv4Addr::new(192, 0, 2, 1).into();
        balancer.close_idle(peer);
        let mut asked = Vec::new();
        while let Some(thread) = (0..3).find(|thread| !balancer.threads[*thread].inbox.lock().unwrap().is_empty()) {
            assert_eq!(wake_sockets[thread].read(&mut [0; 8]).unwrap(), 1, "it is woken");
            for handed in balancer.take_handed_over(thread) {
                let Handed::CloseIdle(whose, before) = handed else { panic!("no connection was passed") };
                assert_eq!((whose, before), (peer, asked.len()));
                balancer.pass_on(thread, whose, before);
            }
            asked.push(thread);
        }
        asked.sort_unstable();
        assert_eq!(asked, [0, 1, 2]);
    }
}
