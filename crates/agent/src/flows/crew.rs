//! The threads of one task or session: started together, asked whether they are done, joined.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Role, WorkerReport};
use crate::gate::Gate;

/// What one thread runs.
pub type Worker = Box<dyn FnOnce(&Gate) -> io::Result<WorkerReport> + Send>;

/// Running workers. Senders and receivers are never on one thread: each side's receivers wait for the other's count.
pub struct Crew {
    members: Vec<JoinHandle<io::Result<WorkerReport>>>,
    sending: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

impl Crew {
    /// Start every worker; `wake` is called whenever one has ended.
    pub fn start(workers: Vec<(Role, Worker)>, gate: &Arc<Gate>, wake: impl Fn() + Clone + Send + 'static) -> Self {
        let senders = workers.iter().filter(|(role, _)| *role == Role::Send).count();
        let sending = Arc::new(AtomicUsize::new(senders));
        let running = Arc::new(AtomicUsize::new(workers.len()));
        let members = workers
            .into_iter()
            .map(|(role, worker)| {
                let (gate, sending, running, wake) =
                    (Arc::clone(gate), Arc::clone(&sending), Arc::clone(&running), wake.clone());
                std::thread::spawn(move || {
                    let report = worker(&gate);
                    if role == Role::Send {
                        sending.fetch_sub(1, Ordering::Release);
                    }
                    running.fetch_sub(1, Ordering::Release);
                    wake();
                    report
                })
            })
            .collect();
        Self { members, sending, running }
    }

    /// Whether every sender has ended.
    pub fn senders_done(&self) -> bool {
        self.sending.load(Ordering::Acquire) == 0
    }

    /// Whether every worker has ended.
    pub fn done(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Wait for all; the first error wins.
    pub fn join(self) -> io::Result<Vec<WorkerReport>> {
        let join = |member: JoinHandle<io::Result<WorkerReport>>| {
            member.join().unwrap_or_else(|_| Err(io::Error::other("a worker thread panicked")))
        };
        // Every member is joined before an error is returned: none outlives its task.
        let reports: Vec<_> = self.members.into_iter().map(join).collect();
        reports.into_iter().collect()
    }
}
