//! The signal by which a load's threads learn that they begin or that the load is cancelled, and the threads' report
//! after their connections are open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use leadline_http::Schedule;

use crate::control_signal::ControlSignal;
use crate::failures::Failures;
use crate::flows::Span;

/// A thread's report before the start.
pub struct OpenReport {
    /// Open connections.
    pub up: usize,
    /// The failures of the other connections.
    pub failures: Failures,
}

/// The parameters of a load that begins.
#[derive(Clone)]
pub struct LoadStart {
    /// The load's time.
    pub span: Span,
    /// Requests that are due before this instant are warm-up, ns.
    pub warm_until_ns: u64,
    /// Stops the load early.
    pub signal: Arc<ControlSignal>,
    /// Returns the schedule of the thread with that index.
    pub schedule: Arc<dyn Fn(usize) -> Schedule + Send + Sync>,
}

/// The start signal of one load.
#[derive(Default)]
pub struct StartSignal {
    begin: OnceLock<LoadStart>,
    cancelled: AtomicBool,
}

impl StartSignal {
    /// Starts the threads.
    pub fn give(&self, begin: LoadStart) {
        let _ = self.begin.set(begin);
    }

    /// Returns the parameters of the load, once it begins.
    pub fn begin(&self) -> Option<LoadStart> {
        self.begin.get().cloned()
    }

    /// Ends the threads that have not begun.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the load was cancelled before it began.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
