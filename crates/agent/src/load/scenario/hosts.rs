//! Resolves the names of hosts, each once, on a separate thread, because the system's resolver blocks.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;

use super::plan::Plan;
use crate::load::session::resolve_host;

/// How often answers are polled while queries are outstanding, ns.
const POLL_NS: u64 = 500_000;

/// A host and a port.
pub type Name = (Arc<str>, u16);

/// An answer: the name, its address or why there is none, and how long the query took, ns.
type Answer = (Name, Result<SocketAddr, String>, u64);

/// The addresses of one thread's hosts.
pub struct Hosts {
    known: HashMap<Name, Option<Result<SocketAddr, String>>>,
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
    pub fn address(&mut self, plan: &Plan, name: &Name) -> Option<Result<SocketAddr, String>> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let fixed = plan.resolved.get(&(name.0.to_string(), name.1)).copied();
        if let Some(address) = fixed.or_else(|| name.0.parse::<IpAddr>().ok()) {
            let address = Ok(SocketAddr::new(address, name.1));
            self.known.insert(name.clone(), Some(address.clone()));
            return Some(address);
        }
        self.known.insert(name.clone(), None);
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
    pub fn answer(&mut self) -> Option<(Name, u64)> {
        let (name, address, took_ns) = self.answers.as_ref()?.try_recv().ok()?;
        self.outstanding -= 1;
        self.known.insert(name.clone(), Some(address));
        Some((name, took_ns))
    }

    /// When to poll for answers again, ns, while there are queries.
    pub fn next_poll_ns(&self, now_ns: u64) -> Option<u64> {
        (self.outstanding > 0).then(|| now_ns + POLL_NS)
    }
}
