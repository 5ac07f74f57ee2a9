//! Which thread serves which connection. Every thread accepts; one that has more than its share hands the newcomer to the
//! one that has least, so that load is spread evenly however the kernel wakes them. Owns the counts of open connections, of all and
//! of each peer, and of the memory that they hold; refuses those beyond the limits. A thread that has ended is given nothing.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Limits;
use crate::serve::admission::peer_of;

/// What share more than the emptiest thread one may have before it hands on, as a divisor.
const SLACK: usize = 16;

/// Counters of peers. Two peers that share one, which no peer can bring about since the hash is keyed, share the limit.
const PLACES: usize = 1 << 14;

/// Which counter a peer's connections are counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerPlace(u16);

/// A connection on its way to the thread that will serve it.
pub struct Newcomer {
    pub socket: TcpStream,
    /// Whether it came to a port that speaks TLS.
    pub over_tls: bool,
    /// The peer that it is counted for, once it has been placed.
    pub place: PeerPlace,
}

impl Newcomer {
    /// That was just accepted.
    pub fn new(socket: TcpStream, over_tls: bool) -> Self {
        Self { socket, over_tls, place: PeerPlace::default() }
    }
}

/// What the threads of one responder share.
pub struct Crew {
    members: Box<[Member]>,
    limit: usize,
    per_peer: usize,
    memory_bytes: usize,
    hasher: RandomState,
    by_peer: Box<[AtomicUsize]>,
    held_bytes: AtomicUsize,
}

#[derive(Default)]
struct Member {
    open: AtomicUsize,
    /// Changes only while `inbox` is locked.
    has_ended: AtomicBool,
    inbox: Mutex<Vec<Newcomer>>,
    bell: Option<UnixStream>,
}

/// What becomes of a connection that was accepted.
pub enum Placement {
    /// It is the asking thread's own.
    Own(Newcomer),
    /// Another thread has it.
    Handed,
    /// There are too many.
    Refused,
}

impl Crew {
    /// A crew of `threads`, and for each the end of a socket that becomes readable when it has been handed something.
    pub fn new(threads: usize, limits: &Limits) -> io::Result<(Self, Vec<UnixStream>)> {
        let mut members = Vec::with_capacity(threads);
        let mut bells = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (bell, heard) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            members.push(Member { bell: Some(bell), ..Member::default() });
            bells.push(heard);
        }
        let crew = Self {
            members: members.into(),
            limit: limits.connections,
            per_peer: limits.per_peer,
            memory_bytes: limits.memory_bytes,
            hasher: RandomState::new(),
            by_peer: (0..PLACES).map(|_| AtomicUsize::new(0)).collect(),
            held_bytes: AtomicUsize::new(0),
        };
        Ok((crew, bells))
    }

    /// Decides who serves a connection that `own` has accepted.
    pub fn place(&self, own: usize, mut newcomer: Newcomer) -> Placement {
        let working = self.members.iter().enumerate().filter(|(_, member)| !member.has_ended.load(Ordering::Relaxed));
        let loads = working.map(|(index, member)| (index, member.open.load(Ordering::Relaxed)));
        if loads.clone().map(|(_, open)| open).sum::<usize>() >= self.limit {
            // Threads that accept at the same moment may pass the limit by one each, which is no harm.
            return Placement::Refused;
        }
        // One that has gone already has no address, and is found out when it is read.
        let address = newcomer.socket.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        newcomer.place = PeerPlace((self.hasher.hash_one(peer_of(address)) % PLACES as u64) as u16);
        let of_peer = &self.by_peer[usize::from(newcomer.place.0)];
        if of_peer.fetch_add(1, Ordering::Relaxed) >= self.per_peer {
            of_peer.fetch_sub(1, Ordering::Relaxed);
            return Placement::Refused;
        }
        let (emptiest, least) = loads.min_by_key(|(_, open)| *open).unwrap_or((own, 0));
        let has = self.members[own].open.load(Ordering::Relaxed);
        if has <= least + least / SLACK {
            self.members[own].open.fetch_add(1, Ordering::Relaxed);
            return Placement::Own(newcomer);
        }
        let member = &self.members[emptiest];
        let mut inbox = member.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if member.has_ended.load(Ordering::Relaxed) {
            self.members[own].open.fetch_add(1, Ordering::Relaxed);
            return Placement::Own(newcomer);
        }
        member.open.fetch_add(1, Ordering::Relaxed);
        inbox.push(newcomer);
        if inbox.len() == 1 {
            // A bell that is full has been rung and not been heard yet.
            let _ = member.bell.as_ref().map(|mut bell| bell.write(&[1]));
        }
        Placement::Handed
    }

    /// Takes what was handed to `own`.
    pub fn handed_to(&self, own: usize) -> Vec<Newcomer> {
        std::mem::take(&mut *self.members[own].inbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection of `own`, which held so much, has been closed.
    pub fn left(&self, own: usize, place: PeerPlace, held_bytes: usize) {
        self.members[own].open.fetch_sub(1, Ordering::Relaxed);
        self.by_peer[usize::from(place.0)].fetch_sub(1, Ordering::Relaxed);
        self.held_bytes.fetch_sub(held_bytes, Ordering::Relaxed);
    }

    /// A connection holds another amount, bytes; says whether all together hold no more than they may.
    pub fn hold(&self, before_bytes: usize, held_bytes: usize) -> bool {
        self.held_bytes.fetch_add(held_bytes, Ordering::Relaxed);
        let all_bytes = self.held_bytes.fetch_sub(before_bytes, Ordering::Relaxed) - before_bytes;
        all_bytes <= self.memory_bytes
    }

    /// The thread `own` has ended: it is given nothing more, and what it was given and has not taken is closed.
    pub fn retire(&self, own: usize) {
        let mut inbox = self.members[own].inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.members[own].has_ended.store(true, Ordering::Relaxed);
        for newcomer in inbox.drain(..) {
            self.left(own, newcomer.place, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::{Crew, Newcomer, Placement};
    use crate::serve::http::{Limits, LIMITS};

    #[test]
    fn one_busy_door_fills_all_threads_evenly_and_the_limit_holds() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let newcomer = || Newcomer::new(TcpStream::connect(address).unwrap(), false);
        let (crew, mut bells) = Crew::new(3, &Limits { connections: 48, ..LIMITS }).unwrap();
        let mut loads = [0; 3];
        let mut kept = Vec::new();
        for _ in 0..48 {
            match crew.place(0, newcomer()) {
                Placement::Own(own) => {
                    loads[0] += 1;
                    kept.push(own);
                }
                Placement::Handed => {}
                Placement::Refused => panic!("there is room"),
            }
        }
        assert!(matches!(crew.place(1, newcomer()), Placement::Refused));
        for other in [1, 2] {
            assert_eq!(bells[other].read(&mut [0; 8]).unwrap(), 1, "rung once");
            loads[other] = crew.handed_to(other).len();
            assert!(crew.handed_to(other).is_empty());
        }
        assert!(loads.iter().all(|load| (15..=17).contains(load)), "{loads:?}");
        crew.left(2, kept[0].place, 0);
        assert!(matches!(crew.place(2, newcomer()), Placement::Own(_)));
    }

    #[test]
    fn a_thread_that_has_ended_is_given_nothing() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let place = |crew: &Crew| crew.place(0, Newcomer::new(TcpStream::connect(address).unwrap(), false));
        let (crew, _bells) = Crew::new(2, &LIMITS).unwrap();
        assert!(matches!(place(&crew), Placement::Own(_)));
        assert!(matches!(place(&crew), Placement::Handed), "the other one has none yet");
        crew.retire(1);
        assert!(crew.handed_to(1).is_empty(), "what it had not taken is closed");
        for _ in 0..100 {
            assert!(matches!(place(&crew), Placement::Own(_)));
        }
        assert!(crew.handed_to(1).is_empty());
    }

    #[test]
    fn a_peer_has_its_limit_and_leaves_the_rest_to_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = |from: [u8; 4]| {
            let socket = leadline_sys::net::connect_tcp(address, Some(from.into()), std::time::Duration::from_secs(60));
            let kept = socket.unwrap();
            (Newcomer::new(listener.accept().unwrap().0, false), kept)
        };
        let (crew, _bells) = Crew::new(1, &Limits { per_peer: 3, ..LIMITS }).unwrap();
        let mut open = Vec::new();
        let mut place = |from| {
            let (newcomer, kept) = accepted(from);
            let placement = crew.place(0, newcomer);
            let is_own = matches!(placement, Placement::Own(_));
            open.push((placement, kept));
            is_own
        };
        let greedy: Vec<bool> = (0..6).map(|_| place([127, 0, 0, 2])).collect();
        assert_eq!(greedy, [true, true, true, false, false, false]);
        assert!(place([127, 0, 0, 1]), "another peer");
        let Placement::Own(first) = &open[0].0 else { panic!() };
        crew.left(0, first.place, 0);
        assert!(matches!(crew.place(0, accepted([127, 0, 0, 2]).0), Placement::Own(_)), "there is room again");
    }
}
