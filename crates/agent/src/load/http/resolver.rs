//! Looks a name up for each connection, on a thread of its own, since the system's resolver blocks. Owns the thread and
//! the order of questions, of which each connection has one at a time, so that a name server that hangs lets none pile up;
//! the time that an answer took is measured where it is waited for.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};

use leadline_sys::clock::monotonic_ns;

use super::plan::{Destination, Name};

/// How often answers are looked for while some are awaited, ns.
const POLL_NS: u64 = 500_000;

/// An answer.
pub struct Resolved {
    /// For which connection, and in which of its lives.
    pub index: usize,
    pub epoch: u32,
    /// The address, or why there is none.
    pub address: Result<SocketAddr, String>,
    /// How long it took, ns.
    pub took_ns: u64,
}

struct Query {
    index: usize,
    epoch: u32,
    /// The answer is of no use from then on, ns.
    until_ns: u64,
}

/// What a connection has asked.
#[derive(Default)]
struct PendingQuery {
    /// Whether the thread has a question of it.
    is_out: bool,
    /// What it has asked since, which the thread gets once it is done with the former.
    next: Option<Query>,
}

/// One worker's resolver; its thread ends with it.
pub struct Resolver {
    queries: Sender<Query>,
    answers: Receiver<Resolved>,
    /// By connection.
    pending: Vec<PendingQuery>,
    /// Questions that the thread has: one of each connection at most.
    awaited: usize,
}

impl Resolver {
    /// Where connections go to a name that is asked for each time.
    pub fn of(destination: &Destination, connections: usize) -> Option<Self> {
        let Destination::PerConnection(name) = destination else { return None };
        let name: Name = name.clone();
        Some(Self::with(connections, move || name.look_up().map_err(|error| error.message)))
    }

    fn with(connections: usize, look_up: impl Fn() -> Result<SocketAddr, String> + Send + 'static) -> Self {
        let (queries, received) = mpsc::channel::<Query>();
        let (replies, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for Query { index, epoch, until_ns } in received {
                let began_ns = monotonic_ns();
                // Its connection has given up by then; looking up all the same would keep those waiting that have not.
                let address = if began_ns < until_ns { look_up() } else { Err("it was asked for too late".to_owned()) };
                let took_ns = monotonic_ns() - began_ns;
                if replies.send(Resolved { index, epoch, address, took_ns }).is_err() {
                    return;
                }
            }
        });
        Self { queries, answers, pending: (0..connections).map(|_| PendingQuery::default()).collect(), awaited: 0 }
    }

    /// Ask for a connection; the answer is of no use after `until_ns`. What the connection asked before gets none any more.
    pub fn ask(&mut self, index: usize, epoch: u32, until_ns: u64) {
        let query = Query { index, epoch, until_ns };
        if self.pending[index].is_out {
            self.pending[index].next = Some(query);
        } else {
            self.forward(query);
        }
    }

    /// The next answer that is there.
    pub fn answer(&mut self) -> Option<Resolved> {
        loop {
            let answer = self.answers.try_recv().ok()?;
            self.awaited -= 1;
            let pending = &mut self.pending[answer.index];
            pending.is_out = false;
            match pending.next.take() {
                // The connection began again while it waited for this one.
                Some(next) => self.forward(next),
                None => return Some(answer),
            }
        }
    }

    /// When to look for answers again, ns; `None` where none is awaited.
    pub fn next_poll_ns(&self, now_ns: u64) -> Option<u64> {
        (self.awaited > 0).then_some(now_ns + POLL_NS)
    }

    fn forward(&mut self, query: Query) {
        let index = query.index;
        // The thread ends only when this does.
        if self.queries.send(query).is_ok() {
            self.pending[index].is_out = true;
            self.awaited += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{self, Sender};
    use std::sync::Arc;

    use super::{Resolved, Resolver};

    const CONNECTIONS: usize = 3;
    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

    /// A resolver whose name server hangs until the sender is dropped, and how often that was asked.
    fn hanging() -> (Resolver, Sender<()>, Arc<AtomicUsize>) {
        let (resume, hangs) = mpsc::channel::<()>();
        let lookups = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lookups);
        let resolver = Resolver::with(CONNECTIONS, move || {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = hangs.recv();
            Ok(ADDRESS)
        });
        (resolver, resume, lookups)
    }

    /// Every answer until none is awaited.
    fn answers(resolver: &mut Resolver) -> Vec<Resolved> {
        let mut resolved = Vec::new();
        while resolver.next_poll_ns(0).is_some() {
            match resolver.answer() {
                Some(answer) => resolved.push(answer),
                None => std::thread::yield_now(),
            }
        }
        resolved
    }

    #[test]
    fn a_hanging_name_server_gets_one_query_per_connection() {
        let (mut resolver, resume, lookups) = hanging();
        // Each connection gives up and asks again a thousand times.
        for epoch in 1..=1000 {
            (0..CONNECTIONS).for_each(|index| resolver.ask(index, epoch, u64::MAX));
            assert!(resolver.awaited <= CONNECTIONS, "{} queries", resolver.awaited);
        }
        drop(resume);
        let mut resolved: Vec<(usize, u32)> =
            answers(&mut resolver).into_iter().map(|one| (one.index, one.epoch)).collect();
        resolved.sort_unstable();
        assert_eq!(resolved, [(0, 1000), (1, 1000), (2, 1000)]);
        assert_eq!(lookups.load(Ordering::Relaxed), 2 * CONNECTIONS, "the first query of each, and the last");
    }

    #[test]
    fn each_connection_gets_its_own_answer() {
        let (mut resolver, resume, lookups) = hanging();
        drop(resume);
        for epoch in 1..=2 {
            (0..CONNECTIONS).for_each(|index| resolver.ask(index, epoch, u64::MAX));
            let resolved = answers(&mut resolver);
            assert_eq!(resolved.iter().map(|one| one.index).collect::<Vec<_>>(), [0, 1, 2]);
            assert!(resolved.iter().all(|one| one.epoch == epoch && one.address == Ok(ADDRESS)));
        }
        assert_eq!(lookups.load(Ordering::Relaxed), 2 * CONNECTIONS);
    }

    #[test]
    fn an_expired_query_is_not_looked_up() {
        let (mut resolver, _resume, lookups) = hanging();
        resolver.ask(0, 1, 0);
        let resolved = answers(&mut resolver);
        assert!(matches!(&resolved[..], [Resolved { index: 0, epoch: 1, address: Err(_), .. }]));
        assert_eq!(lookups.load(Ordering::Relaxed), 0);
    }
}
