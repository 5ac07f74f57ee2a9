//! Which thread serves which connection. Every thread accepts; one that has more than its share hands the newcomer to the
//! one that has least, so that load is spread evenly however the kernel wakes them. Owns the count of open connections;
//! refuses those beyond the limit.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What share more than the emptiest thread one may have before it hands on, as a divisor.
const SLACK: usize = 16;

/// A connection on its way to the thread that will serve it.
pub struct Newcomer {
    pub socket: TcpStream,
    /// Whether it came to a port that speaks TLS.
    pub over_tls: bool,
}

/// What the threads of one responder share.
pub struct Crew {
    members: Box<[Member]>,
    limit: usize,
}

#[derive(Default)]
struct Member {
    open: AtomicUsize,
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
    pub fn new(threads: usize, limit: usize) -> io::Result<(Self, Vec<UnixStream>)> {
        let mut members = Vec::with_capacity(threads);
        let mut bells = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (bell, heard) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            members.push(Member { bell: Some(bell), ..Member::default() });
            bells.push(heard);
        }
        Ok((Self { members: members.into(), limit }, bells))
    }

    /// Decides who serves a connection that `own` has accepted.
    pub fn place(&self, own: usize, newcomer: Newcomer) -> Placement {
        let loads = self.members.iter().map(|member| member.open.load(Ordering::Relaxed));
        if loads.clone().sum::<usize>() >= self.limit {
            // Threads that accept at the same moment may pass the limit by one each, which is no harm.
            return Placement::Refused;
        }
        let (emptiest, least) = loads.enumerate().min_by_key(|(_, open)| *open).unwrap_or((own, 0));
        let has = self.members[own].open.load(Ordering::Relaxed);
        if has <= least + least / SLACK {
            self.members[own].open.fetch_add(1, Ordering::Relaxed);
            return Placement::Own(newcomer);
        }
        let member = &self.members[emptiest];
        member.open.fetch_add(1, Ordering::Relaxed);
        let mut inbox = member.inbox.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// A connection of `own` has been closed.
    pub fn left(&self, own: usize) {
        self.members[own].open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::{Crew, Newcomer, Placement};

    #[test]
    fn one_busy_door_fills_all_threads_evenly_and_the_limit_holds() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let newcomer = || Newcomer { socket: TcpStream::connect(address).unwrap(), over_tls: false };
        let (crew, mut bells) = Crew::new(3, 48).unwrap();
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
        crew.left(2);
        assert!(matches!(crew.place(2, newcomer()), Placement::Own(_)));
    }
}
