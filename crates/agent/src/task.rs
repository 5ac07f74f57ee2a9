//! A command's task while it runs: its name, its trial, its signals and where its events go, and what a load that is ready to
//! start can do. What each load does is in `load`.

use std::sync::Arc;

use leadline_wire::{ErrorReport, Event, FlowProgress, HistogramReport, Outcome, Side, Standing};

use crate::control_signal::ControlSignal;
use crate::events::Events;

/// A task as its load sees it.
#[derive(Clone)]
pub struct Task {
    /// The trial that it belongs to.
    pub trial: String,
    /// Its name.
    pub name: String,
    /// Its start and stop signals.
    pub signal: Arc<ControlSignal>,
    /// Where its events go.
    pub events: Events,
}

impl Task {
    /// Tell how far the flows have come.
    pub fn progress(&self, side: Side, t_ns: u64, flows: Vec<FlowProgress>, histograms: Vec<HistogramReport>) {
        self.progress_standing(side, t_ns, flows, histograms, None);
    }

    /// Tell it together with how the load stands.
    pub fn progress_standing(
        &self,
        side: Side,
        t_ns: u64,
        flows: Vec<FlowProgress>,
        histograms: Vec<HistogramReport>,
        standing: Option<Standing>,
    ) {
        self.events.send(&Event::Progress {
            trial: self.trial.clone(),
            task: self.name.clone(),
            t_ns,
            side,
            flows,
            histograms,
            standing,
        });
    }
}

/// A load whose sockets are open and whose handshakes are done.
pub trait Ready: Send {
    /// Generate from `at_ns` on (monotonic; the past begins at once) until the load's end or the task's stop.
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport>;
}
