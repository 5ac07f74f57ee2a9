//! Generating load. Each file drives one protocol's machine over real sockets; `Ready::run` is its whole life after the
//! start signal. What all of them share: `Task` (whose it is, when to stop, where progress goes), `threads` (counters and
//! histograms that hot loops fill without locks).
//!
//! Shape of a load: `prepare` opens sockets and makes handshakes and may fail; `run` sleeps until `at_ns`, lets its threads
//! go, reports progress each interval from the task's own thread, and returns the whole figures. A stopped load returns
//! what it has: an early end is no error.

mod crypto;
pub mod http;
mod rr;
mod session;
mod session_runner;
mod tcp;
pub mod threads;
mod tunnel;
mod udp;

use std::sync::Arc;

use leadline_wire::{Direction, ErrorReport, Event, FlowProgress, HistogramReport, Outcome, Side, Standing, Workload};

use crate::control_signal::ControlSignal;
use crate::events::{input_error, Events};

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

/// Make a measuring workload ready.
pub fn prepare(workload: Workload, task: &Task) -> Result<Box<dyn Ready>, ErrorReport> {
    match workload {
        Workload::Tcp(spec) => tcp::prepare(spec),
        Workload::Udp(spec) => udp::prepare(spec),
        Workload::Rr(spec) => rr::prepare(spec),
        Workload::Http(spec) => http::prepare(*spec, task),
        Workload::Tunnel(spec) => tunnel::prepare(&spec),
        Workload::Crypto(spec) => crypto::prepare(spec),
        Workload::Serve(_) | Workload::Process(_) | Workload::Profile(_) => {
            Err(input_error("not_a_load", "this workload generates no load"))
        }
    }
}

/// The flows of a direction in their order: upward ones first; `both` has each flow once up and once down.
pub fn planned_directions(direction: Direction, flows: u32) -> Vec<Direction> {
    let ways: &[Direction] = match direction {
        Direction::Up => &[Direction::Up],
        Direction::Down => &[Direction::Down],
        Direction::Both => &[Direction::Up, Direction::Down],
    };
    ways.iter().flat_map(|way| std::iter::repeat_n(*way, flows as usize)).collect()
}
