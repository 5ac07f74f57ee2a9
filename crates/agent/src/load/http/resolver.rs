//! Resolves a name for each connection on a separate thread, because the system's resolver blocks. Owns the thread
//! and the order of queries. Each connection has at most one query there, so that queries do not pile up behind a
//! name server that hangs. The resolving thread measures the time of each query.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};

use leadline_sys::clock::monotonic_ns;

use super::plan::{Destination, HostName};

/// How often responses are polled while queries are outstanding, ns.
const POLL_NS: u64 = 500_000;

/// The result of a query.
pub struct Resolved {
    /// The connection, and its epoch when it asked.
    pub index: usize,
    pub epoch: u32,
    /// The address, or the error message.
    pub address: Result<SocketAddr, String>,
    /// How long the query took, ns.
    pub took_ns: u64,
}

struct Query {
    index: usize,
    epoch: u32,
    /// The result is useless after this instant, ns.
    until_ns: u64,
}

/// The queries of one connection.
#[derive(Default)]
struct PendingQuery {
    /// Whether the thread holds a query of this connection.
    is_out: bool,
    /// A newer query, which the thread gets after the current one.
    next: Option<Query>,
}

/// One worker's resolver; its thread ends with it.
pub struct Resolver {
    queries: Sender<Query>,
    answers: Receiver<Resolved>,
    /// The state of each connection's queries.
    pending: Vec<PendingQuery>,
    /// Outstanding queries: one for each connection at most.
    awaited: usize,
}

impl Resolver {
    /// Returns a resolver if each connection is to resolve the name.
    pub fn of(destination: &Destination, connections: usize) -> Option<Self> {
        let Destination::PerConnection(host_name) = destination else { return None };
        let host_name: HostName = host_name.clone();
        Some(Self::with(connections, move || host_name.look_up().map_err(|error| error.message)))
    }

    fn with(connections: usize, look_up: impl Fn() -> Result<SocketAddr, String> + Send + 'static) -> Self {
        let (queries, received) = mpsc::channel::<Query>();
        let (replies, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for Query { index, epoch, until_ns } in received {
                let began_ns = monotonic_ns();
                // The connection has given up by then; resolving its query would delay the others.
                let address =
                    if began_ns < until_ns { look_up() } else { Err("the query was made too late".to_owned()) };
                let took_ns = monotonic_ns() - began_ns;
                if replies.send(Resolved { index, epoch, address, took_ns }).is_err() {
                    return;
                }
            }
        });
        Self { queries, answers, pending: (0..connections).map(|_| PendingQuery::default()).collect(), awaited: 0 }
    }

    /// Queues a query of a connection; its result is useless after `until_ns`. An earlier query of the connection
    /// gets no result.
    pub fn ask(&mut self, index: usize, epoch: u32, until_ns: u64) {
        let query = Query { index, epoch, until_ns };
        if self.pending[index].is_out {
            self.pending[index].next = Some(query);
        } else {
            self.forward(query);
        }
    }

    /// Returns the next result, if there is one.
    pub fn answer(&mut self) -> Option<Resolved> {
        loop {
            let answer = self.answers.try_recv().ok()?;
            self.awaited -= 1;
            let pending = &mut self.pending[answer.index];
            pending.is_out = false;
            match pending.next.take() {
                // The connection asked again while this query was outstanding.
                Some(next) => self.forward(next),
                None => return Some(answer),
            }
        }
    }

    /// When to poll for results again, ns; `None` if no query is outstanding.
    pub fn next_poll_ns(&self, now_ns: u64) -> Option<u64> {
        (self.awaited > 0).then_some(now_ns + POLL_NS)
    }

    fn forward(&mut self, query: Query) {
        let index = query.index;
        // The thread ends only when this resolver does.
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

    /// Returns a resolver whose name server hangs until the sender is dropped, and the counter of its lookups.
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

    /// Returns every result until no query is outstanding.
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
