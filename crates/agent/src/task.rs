//! A task while it runs: its name, its trial, its signals and its output of events, and the interface of a load that
//! is ready to start. `load` holds the loads themselves.

use std::sync::Arc;

use leadline_sys::clock::monotonic_ns;
use leadline_wire::scenario::ScenarioProgress;
use leadline_wire::{ErrorReport, Event, FlowProgress, HistogramReport, Outcome, Side, Standing};

use crate::control_signal::ControlSignal;
use crate::events::Events;

/// A task in the view of its load.
#[derive(Clone)]
pub struct Task {
    /// The trial to which it belongs.
    pub trial: String,
    /// Its name.
    pub name: String,
    /// Its start and stop signals.
    pub signal: Arc<ControlSignal>,
    /// The output of its events.
    pub events: Events,
}

impl Task {
    /// Sends the progress of the flows.
    pub fn progress(&self, side: Side, t_ns: u64, flows: Vec<FlowProgress>, histograms: Vec<HistogramReport>) {
        self.progress_standing(side, t_ns, flows, histograms, None);
    }

    /// Sends the progress of the flows together with the state of the load.
    pub fn progress_standing(
        &self,
        side: Side,
        t_ns: u64,
        flows: Vec<FlowProgress>,
        histograms: Vec<HistogramReport>,
        standing: Option<Standing>,
    ) {
        self.progress_scenario(side, t_ns, flows, histograms, standing, None);
    }

    /// Sends the progress of the flows together with the state of the load and of its scenario.
    pub fn progress_scenario(
        &self,
        side: Side,
        t_ns: u64,
        flows: Vec<FlowProgress>,
        histograms: Vec<HistogramReport>,
        standing: Option<Standing>,
        scenario: Option<Box<ScenarioProgress>>,
    ) {
        self.events.send(&Event::Progress {
            trial: self.trial.clone(),
            task: self.name.clone(),
            t_ns,
            side,
            flows,
            histograms,
            standing,
            scenario,
        });
    }
}

/// The longest line of an `output` event, bytes.
const MOST_LINE_BYTES: usize = 4096;

impl Task {
    /// Sends a line of text; the end of a line that is too long is cut off.
    pub fn output(&self, line: &str) {
        let mut end = line.len().min(MOST_LINE_BYTES);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        self.events.send(&Event::Output {
            trial: self.trial.clone(),
            task: self.name.clone(),
            t_ns: monotonic_ns(),
            line: line[..end].to_owned(),
        });
    }
}

/// A load with open sockets and finished handshakes.
pub trait Ready: Send {
    /// Generates load from `at_ns` on (monotonic; an instant in the past means at once) until the load's end or the
    /// task's stop.
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport>;
}
