//! The threads of one task or session: started together, asked whether they are done, joined.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Role, WorkerReport};
use crate::control_signal::ControlSignal;

/// What one thread runs.
pub type Worker = Box<dyn FnOnce(&ControlSignal) -> io::Result<WorkerReport> + Send>;

/// Running workers. Senders and receivers are never on one thread: each side's receivers wait for the other's count.
pub struct Crew {
    members: Vec<JoinHandle<io::Result<WorkerReport>>>,
    sending: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

/// Signs its worker off whichever way that ends, by a panic too.
struct Duty<F: Fn()> {
    sending: Option<Arc<AtomicUsize>>,
    running: Arc<AtomicUsize>,
    wake: F,
}

impl<F: Fn()> Drop for Duty<F> {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.fetch_sub(1, Ordering::Release);
        }
        self.running.fetch_sub(1, Ordering::Release);
        (self.wake)();
    }
}

impl Crew {
    /// Start every worker; `wake` is called whenever one has ended. Where a thread cannot be had, those that run already
    /// are stopped and joined.
    pub fn start(
        workers: Vec<(Role, Worker)>,
        signal: &Arc<ControlSignal>,
        wake: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let senders = workers.iter().filter(|(role, _)| *role == Role::Send).count();
        let mut crew = Self {
            members: Vec::with_capacity(workers.len()),
            sending: Arc::new(AtomicUsize::new(senders)),
            running: Arc::new(AtomicUsize::new(workers.len())),
        };
        for (role, worker) in workers {
            let sending = (role == Role::Send).then(|| Arc::clone(&crew.sending));
            let duty = Duty { sending, running: Arc::clone(&crew.running), wake: wake.clone() };
            let own_signal = Arc::clone(signal);
            let life = move || {
                let _duty = duty;
                worker(&own_signal)
            };
            match std::thread::Builder::new().spawn(life) {
                Ok(member) => crew.members.push(member),
                Err(error) => {
                    signal.abandon();
                    let _ = crew.join();
                    return Err(error);
                }
            }
        }
        Ok(crew)
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
