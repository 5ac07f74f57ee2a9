//! The threads of one task or session: they start together, report whether they have ended, and are joined.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Role, WorkerReport};
use crate::control_signal::ControlSignal;

/// The function that one thread runs.
pub type Worker = Box<dyn FnOnce(&ControlSignal) -> io::Result<WorkerReport> + Send>;

/// Running workers. Senders and receivers never share a thread: each side's receivers wait for the other side's
/// count.
pub struct ThreadGroup {
    threads: Vec<JoinHandle<io::Result<WorkerReport>>>,
    sending: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

/// Counts its worker as ended when dropped, even if the worker panics.
struct DoneGuard<F: Fn()> {
    sending: Option<Arc<AtomicUsize>>,
    running: Arc<AtomicUsize>,
    wake: F,
}

impl<F: Fn()> Drop for DoneGuard<F> {
    fn drop(&mut self) {
        if let Some(sending) = &self.sending {
            sending.fetch_sub(1, Ordering::Release);
        }
        self.running.fetch_sub(1, Ordering::Release);
        (self.wake)();
    }
}

impl ThreadGroup {
    /// Starts every worker; `wake` is called whenever one has ended. If a thread cannot be created, the running ones
    /// are stopped and joined.
    pub fn start(
        workers: Vec<(Role, Worker)>,
        signal: &Arc<ControlSignal>,
        wake: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let senders = workers.iter().filter(|(role, _)| *role == Role::Send).count();
        let mut group = Self {
            threads: Vec::with_capacity(workers.len()),
            sending: Arc::new(AtomicUsize::new(senders)),
            running: Arc::new(AtomicUsize::new(workers.len())),
        };
        for (role, worker) in workers {
            let sending = (role == Role::Send).then(|| Arc::clone(&group.sending));
            let done_guard = DoneGuard { sending, running: Arc::clone(&group.running), wake: wake.clone() };
            let own_signal = Arc::clone(signal);
            let body = move || {
                let _done = done_guard;
                worker(&own_signal)
            };
            match std::thread::Builder::new().spawn(body) {
                Ok(thread) => group.threads.push(thread),
                Err(error) => {
                    signal.abandon();
                    let _ = group.join();
                    return Err(error);
                }
            }
        }
        Ok(group)
    }

    /// Whether every sender has ended.
    pub fn senders_done(&self) -> bool {
        self.sending.load(Ordering::Acquire) == 0
    }

    /// Whether every worker has ended.
    pub fn done(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Waits for all threads; returns the first error.
    pub fn join(self) -> io::Result<Vec<WorkerReport>> {
        let join = |thread: JoinHandle<io::Result<WorkerReport>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker thread panicked")))
        };
        // Every thread is joined before an error is returned: no thread outlives its task.
        let reports: Vec<_> = self.threads.into_iter().map(join).collect();
        reports.into_iter().collect()
    }
}
