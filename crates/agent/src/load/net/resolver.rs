//! Resolves the names of hosts on a separate thread, because the system's resolver blocks. A name is resolved once for all
//! connections of the thread, or once by each connection. Owns the thread, the order of queries, and what is kept of their
//! answers. There is at most one query of each name or connection at a time, so that queries do not pile up behind a name
//! server that hangs. The resolving thread measures the time of each query.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;

use super::names::{Addresses, Name, Names};

/// How often answers are polled while queries are outstanding, ns.
const POLL_NS: u64 = 500_000;
/// How long a failure is the answer for its name, ns; then the name is resolved again: a lost packet must not fail the
/// rest of a load.
const FAILURE_KEPT_NS: u64 = 1_000_000_000;

/// A connection that resolves a name for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its index, and its epoch when it asked.
    pub index: usize,
    pub epoch: u32,
    /// The answer is useless after this instant, ns.
    pub until_ns: u64,
}

/// The answer to a query.
#[derive(Debug)]
pub struct Answer {
    pub name: Name,
    /// The connection that asked; absent if the answer is for all.
    pub asker: Option<Asker>,
    /// The addresses, or why there are none.
    pub addresses: Result<Addresses, String>,
    /// How long the query took, ns.
    pub took_ns: u64,
}

type Query = (Name, Option<Asker>);

/// What is known about a name.
enum Known {
    /// It is being resolved.
    Asked,
    /// Its addresses.
    Addresses(Addresses),
    /// Why it has none, and until when this is the answer, ns.
    Failed { detail: String, until_ns: u64 },
}

type LookUp = Box<dyn Fn(&Name) -> Result<Addresses, String> + Send>;

/// The resolver of one thread. Its own thread begins with the first query, and ends with the resolver.
pub struct Resolver {
    names: Arc<Names>,
    known: HashMap<Name, Known>,
    /// Connections with a query at the thread, and the newer query that each has made since.
    pending: HashMap<usize, Option<Query>>,
    /// What the thread will do, until it has begun.
    look_up: Option<LookUp>,
    thread: Option<(Sender<Query>, Receiver<Answer>)>,
    /// Queries at the thread.
    outstanding: usize,
}

impl Resolver {
    /// Returns a resolver that has resolved no name.
    pub fn new(names: Arc<Names>) -> Self {
        let own = Arc::clone(&names);
        Self::with(names, move |name| own.look_up(name).map_err(|error| error.message))
    }

    fn with(names: Arc<Names>, look_up: impl Fn(&Name) -> Result<Addresses, String> + Send + 'static) -> Self {
        let look_up: LookUp = Box::new(look_up);
        let (known, pending) = (HashMap::new(), HashMap::new());
        Self { names, known, pending, look_up: Some(look_up), thread: None, outstanding: 0 }
    }

    /// Returns the addresses of a name, or why there are none; `None` while it is being resolved for all connections.
    pub fn addresses(&mut self, name: &Name, now_ns: u64) -> Option<Result<Addresses, String>> {
        match self.known.get(name) {
            Some(Known::Asked) => return None,
            Some(Known::Addresses(addresses)) => return Some(Ok(addresses.clone())),
            Some(Known::Failed { detail, until_ns }) if now_ns < *until_ns => return Some(Err(detail.clone())),
            Some(Known::Failed { .. }) | None => {}
        }
        if let Some(address) = self.names.known(name) {
            let addresses = Addresses::from(address);
            self.known.insert(name.clone(), Known::Addresses(addresses.clone()));
            return Some(Ok(addresses));
        }
        self.known.insert(name.clone(), Known::Asked);
        self.forward((name.clone(), None));
        None
    }

    /// Resolves a name for one connection. An earlier query of the connection gets no answer.
    pub fn ask(&mut self, name: &Name, asker: Asker) {
        let query = (name.clone(), Some(asker));
        match self.pending.get_mut(&asker.index) {
            Some(next) => *next = Some(query),
            None => self.forward(query),
        }
    }

    /// Returns the next answer, if there is one.
    pub fn answer(&mut self, now_ns: u64) -> Option<Answer> {
        loop {
            let (_, answers) = self.thread.as_ref()?;
            let answer = answers.try_recv().ok()?;
            self.outstanding -= 1;
            let Some(asker) = answer.asker else {
                let known = match &answer.addresses {
                    Ok(addresses) => Known::Addresses(addresses.clone()),
                    Err(detail) => {
                        Known::Failed { detail: detail.clone(), until_ns: now_ns.saturating_add(FAILURE_KEPT_NS) }
                    }
                };
                self.known.insert(answer.name.clone(), known);
                return Some(answer);
            };
            match self.pending.remove(&asker.index).flatten() {
                // The connection asked again while this query was outstanding.
                Some(next) => self.forward(next),
                None => return Some(answer),
            }
        }
    }

    /// When to poll for answers again, ns; `None` if no query is outstanding.
    pub fn next_poll_ns(&self, now_ns: u64) -> Option<u64> {
        (self.outstanding > 0).then(|| now_ns + POLL_NS)
    }

    fn forward(&mut self, query: Query) {
        if let Some(look_up) = self.look_up.take() {
            self.thread = Some(begin(look_up));
        }
        let Some((queries, _)) = &self.thread else { return };
        if let Some(asker) = query.1 {
            self.pending.insert(asker.index, None);
        }
        // The thread ends only when this resolver does.
        self.outstanding += usize::from(queries.send(query).is_ok());
    }
}

/// Begins the thread that makes the queries.
fn begin(look_up: LookUp) -> (Sender<Query>, Receiver<Answer>) {
    let (queries, received) = mpsc::channel::<Query>();
    let (replies, answers) = mpsc::channel();
    std::thread::spawn(move || {
        for (name, asker) in received {
            let began_ns = monotonic_ns();
            // A connection has given up by then; resolving its query would delay the others.
            let is_late = asker.is_some_and(|asker| began_ns >= asker.until_ns);
            let addresses = if is_late { Err("the query was made too late".to_owned()) } else { look_up(&name) };
            let took_ns = monotonic_ns() - began_ns;
            if replies.send(Answer { name, asker, addresses, took_ns }).is_err() {
                return;
            }
        }
    });
    (queries, answers)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{self, Sender};
    use std::sync::{Arc, Mutex};

    use super::*;

    const CONNECTIONS: usize = 3;
    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

    fn name() -> Name {
        (Arc::from("a.test"), 80)
    }

    fn asker(index: usize, epoch: u32, until_ns: u64) -> Asker {
        Asker { index, epoch, until_ns }
    }

    /// Returns a resolver whose name server hangs until the sender is dropped, and the counter of its lookups.
    fn hanging() -> (Resolver, Sender<()>, Arc<AtomicUsize>) {
        let (resume, hangs) = mpsc::channel::<()>();
        let lookups = Arc::new(AtomicUsize::new(0));
        let (count, hangs) = (Arc::clone(&lookups), Mutex::new(hangs));
        let resolver = Resolver::with(Arc::default(), move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            let _ = hangs.lock().unwrap().recv();
            Ok(ADDRESS.into())
        });
        (resolver, resume, lookups)
    }

    /// Returns every answer until no query is outstanding.
    fn answers(resolver: &mut Resolver, now_ns: u64) -> Vec<Answer> {
        let mut all = Vec::new();
        while resolver.next_poll_ns(0).is_some() {
            match resolver.answer(now_ns) {
                Some(answer) => all.push(answer),
                None => std::thread::yield_now(),
            }
        }
        all
    }

    #[test]
    fn a_hanging_name_server_gets_one_query_per_connection() {
        let (mut resolver, resume, lookups) = hanging();
        // Each connection gives up and asks again a thousand times.
        for epoch in 1..=1000 {
            (0..CONNECTIONS).for_each(|index| resolver.ask(&name(), asker(index, epoch, u64::MAX)));
            assert!(resolver.outstanding <= CONNECTIONS, "{} queries", resolver.outstanding);
        }
        drop(resume);
        let mut askers: Vec<_> = answers(&mut resolver, 0).into_iter().filter_map(|one| one.asker).collect();
        askers.sort_unstable_by_key(|asker| asker.index);
        assert_eq!(askers, [0, 1, 2].map(|index| asker(index, 1000, u64::MAX)));
        assert_eq!(lookups.load(Ordering::Relaxed), 2 * CONNECTIONS, "the first query of each, and the last");
    }

    #[test]
    fn each_connection_gets_its_own_answer() {
        let (mut resolver, resume, lookups) = hanging();
        drop(resume);
        for epoch in 1..=2 {
            (0..CONNECTIONS).for_each(|index| resolver.ask(&name(), asker(index, epoch, u64::MAX)));
            let answers = answers(&mut resolver, 0);
            let askers: Vec<_> = answers.iter().filter_map(|one| one.asker).collect();
            assert_eq!(askers, [0, 1, 2].map(|index| asker(index, epoch, u64::MAX)));
            assert!(answers.iter().all(|one| one.addresses == Ok(ADDRESS.into())));
        }
        assert_eq!(lookups.load(Ordering::Relaxed), 2 * CONNECTIONS);
    }

    #[test]
    fn an_expired_query_is_not_looked_up() {
        let (mut resolver, _resume, lookups) = hanging();
        resolver.ask(&name(), asker(0, 1, 0));
        let answers = answers(&mut resolver, 0);
        assert!(matches!(
            &answers[..],
            [Answer { asker: Some(Asker { index: 0, epoch: 1, .. }), addresses: Err(_), .. }]
        ));
        assert_eq!(lookups.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn failed_name_is_resolved_again_after_a_second() {
        const MS: u64 = 1_000_000;
        let (results, next) = mpsc::channel();
        let next = Mutex::new(next);
        let mut resolver = Resolver::with(Arc::default(), move |_| next.lock().unwrap().recv().unwrap());
        assert_eq!(resolver.addresses(&name(), 0), None);
        results.send(Err("try again".to_owned())).unwrap();
        assert_eq!(answers(&mut resolver, 10 * MS).len(), 1);
        for at_ns in [10 * MS, 10 * MS + FAILURE_KEPT_NS - 1] {
            assert_eq!(resolver.addresses(&name(), at_ns), Some(Err("try again".to_owned())));
            assert_eq!(resolver.next_poll_ns(0), None);
        }
        // A second later; while it is being resolved it is not asked for twice.
        for at_ns in [10 * MS + FAILURE_KEPT_NS, 3 * FAILURE_KEPT_NS] {
            assert_eq!(resolver.addresses(&name(), at_ns), None);
            assert_eq!(resolver.outstanding, 1);
        }
        let found = || Addresses::from(ADDRESS);
        results.send(Ok(found())).unwrap();
        assert_eq!(answers(&mut resolver, 3 * FAILURE_KEPT_NS).len(), 1);
        for at_ns in [3 * FAILURE_KEPT_NS, u64::MAX] {
            assert_eq!(resolver.addresses(&name(), at_ns), Some(Ok(found())));
        }
        assert_eq!(resolver.next_poll_ns(0), None);
    }

    #[test]
    fn name_with_a_known_address_needs_no_thread() {
        let mut resolver = Resolver::new(Arc::default());
        assert_eq!(resolver.addresses(&("127.0.0.1".into(), 80), 0), Some(Ok(ADDRESS.into())));
        assert!(resolver.thread.is_none());
    }
}
