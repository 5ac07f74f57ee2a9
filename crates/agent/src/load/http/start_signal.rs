//! How a load's threads learn that they are to begin, or that they are not wanted any more; and what they say once their
//! connections are open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use leadline_http::Schedule;

use crate::control_signal::ControlSignal;
use crate::failures::Failures;
use crate::flows::Span;

/// What a thread reached before the start.
pub struct Opened {
    /// Connections that are up.
    pub up: usize,
    /// What went wrong with the others.
    pub failures: Failures,
}

/// What begins.
#[derive(Clone)]
pub struct Begin {
    /// From when to when.
    pub span: Span,
    /// What is due before this is warm-up, ns.
    pub warm_until_ns: u64,
    /// Stops it early.
    pub signal: Arc<ControlSignal>,
    /// The requests of thread so-and-so.
    pub schedule: Arc<dyn Fn(usize) -> Schedule + Send + Sync>,
}

/// One load's signal.
#[derive(Default)]
pub struct StartSignal {
    begin: OnceLock<Begin>,
    cancelled: AtomicBool,
}

impl StartSignal {
    /// Let the threads begin.
    pub fn give(&self, begin: Begin) {
        let _ = self.begin.set(begin);
    }

    /// What begins, once that is known.
    pub fn begin(&self) -> Option<Begin> {
        self.begin.get().cloned()
    }

    /// Let the threads end that have not begun.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether nobody wants the load any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}
