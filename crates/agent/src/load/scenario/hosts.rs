//! Resolves the names of hosts, each once, on a separate thread, because the system's resolver blocks. A name that could not
//! be resolved is asked for again after a pause: a lost packet must not fail the rest of a scenario.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;

use super::plan::Plan;
use crate::load::session::resolve_host;

/// How often answers are polled while queries are outstanding, ns.
const POLL_NS: u64 = 500_000;
/// How long a failure is the answer for its name, ns; then the name is resolved again.
const FAILURE_KEPT_NS: u64 = 1_000_000_000;

/// A host and a port.
pub type Name = (Arc<str>, u16);

/// An answer: the name, its address or why there is none, and how long the query took, ns.
type Answer = (Name, Result<SocketAddr, String>, u64);

/// What is known about a name.
enum Known {
    /// It is being resolved.
    Asked,
    /// Its address.
    Address(SocketAddr),
    /// Why it has no address, and until when this is the answer, ns.
    Failed { detail: String, until_ns: u64 },
}

/// The addresses of one thread's hosts.
pub struct Hosts {
    known: HashMap<Name, Known>,
    queries: Option<Sender<Name>>,
    answers: Option<Receiver<Answer>>,
    outstanding: usize,
}

impl Hosts {
    /// Returns no addresses.
    pub fn new() -> Self {
        Self { known: HashMap::new(), queries: None, answers: None, outstanding: 0 }
    }

    /// Returns the address of a host, or why there is none; `None` while it is being resolved.
    pub fn address(&mut self, plan: &Plan, name: &Name, now_ns: u64) -> Option<Result<SocketAddr, String>> {
        match self.known.get(name) {
            Some(Known::Asked) => return None,
            Some(Known::Address(address)) => return Some(Ok(*address)),
            Some(Known::Failed { detail, until_ns }) if now_ns < *until_ns => return Some(Err(detail.clone())),
            Some(Known::Failed { .. }) | None => {}
        }
        let fixed = plan.resolved.get(&(name.0.to_string(), name.1)).copied();
        if let Some(address) = fixed.or_else(|| name.0.parse::<IpAddr>().ok()) {
            let address = SocketAddr::new(address, name.1);
            self.known.insert(name.clone(), Known::Address(address));
            return Some(Ok(address));
        }
        self.known.insert(name.clone(), Known::Asked);
        self.ask(plan, name);
        None
    }

    fn ask(&mut self, plan: &Plan, name: &Name) {
        let queries = self.queries.get_or_insert_with(|| {
            let (queries, received) = mpsc::channel::<Name>();
            let (replies, answers) = mpsc::channel();
            self.answers = Some(answers);
            let ip_version = plan.ip_version;
            std::thread::spawn(move || {
                for name in received {
                    let began_ns = monotonic_ns();
                    let address = resolve_host(&name.0, name.1, ip_version).map_err(|error| error.message);
                    if replies.send((name, address, monotonic_ns() - began_ns)).is_err() {
                        return;
                    }
                }
            });
            queries
        });
        // The thread ends only when this resolver does.
        if queries.send(name.clone()).is_ok() {
            self.outstanding += 1;
        }
    }

    /// Takes the next answer; returns its name and how long the query took, ns.
    pub fn answer(&mut self, now_ns: u64) -> Option<(Name, u64)> {
        let (name, address, took_ns) = self.answers.as_ref()?.try_recv().ok()?;
        self.outstanding -= 1;
        let known = match address {
            Ok(address) => Known::Address(address),
            Err(detail) => Known::Failed { detail, until_ns: now_ns.saturating_add(FAILURE_KEPT_NS) },
        };
        self.known.insert(name.clone(), known);
        Some((name, took_ns))
    }

    /// When to poll for answers again, ns, while there are queries.
    pub fn next_poll_ns(&self, now_ns: u64) -> Option<u64> {
        (self.outstanding > 0).then(|| now_ns + POLL_NS)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::sync::Arc;

    use super::{Answer, Hosts, Name, FAILURE_KEPT_NS};
    use crate::load::scenario::plan::tests::plan;

    /// A thread's hosts whose queries this test answers.
    fn hosts() -> (Hosts, Receiver<Name>, Sender<Answer>) {
        let (queries, asked) = mpsc::channel();
        let (replies, answers) = mpsc::channel();
        (Hosts { queries: Some(queries), answers: Some(answers), ..Hosts::new() }, asked, replies)
    }

    #[test]
    fn failed_name_is_resolved_again_after_a_second() {
        const MS: u64 = 1_000_000;
        let (plan, name) = (plan("http"), (Arc::from("a.test"), 80));
        let (mut hosts, asked, replies) = hosts();
        let address = "192.0.2.1:80".parse().unwrap();
        assert_eq!(hosts.address(&plan, &name, 0), None);
        assert_eq!(asked.try_iter().count(), 1);
        replies.send((name.clone(), Err("try again".to_owned()), 3)).unwrap();
        assert_eq!(hosts.answer(10 * MS), Some((name.clone(), 3)));
        for at_ns in [10 * MS, 10 * MS + FAILURE_KEPT_NS - 1] {
            assert_eq!(hosts.address(&plan, &name, at_ns), Some(Err("try again".to_owned())));
        }
        assert_eq!((asked.try_iter().count(), hosts.next_poll_ns(0)), (0, None));
        // A second later; while it is being resolved it is not asked for twice.
        for at_ns in [10 * MS + FAILURE_KEPT_NS, 3 * FAILURE_KEPT_NS] {
            assert_eq!(hosts.address(&plan, &name, at_ns), None);
        }
        assert_eq!((asked.try_iter().count(), hosts.next_poll_ns(0).is_some()), (1, true));
        replies.send((name.clone(), Ok(address), 4)).unwrap();
        assert_eq!(hosts.answer(3 * FAILURE_KEPT_NS), Some((name.clone(), 4)));
        for at_ns in [3 * FAILURE_KEPT_NS, u64::MAX] {
            assert_eq!(hosts.address(&plan, &name, at_ns), Some(Ok(address)));
        }
        assert_eq!((asked.try_iter().count(), hosts.next_poll_ns(0)), (0, None));
    }
}
