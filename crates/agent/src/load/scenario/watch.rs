//! Reports a scenario while its threads run: its progress at each interval and once more at the end, so that the sums
//! over all intervals are the figures of the outcome, and its samples as they come. Distributions are reported once a
//! second, and at the end.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use leadline_scenario::Shared;
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_sys::priority::lower_priority;
use leadline_wire::scenario::SampleBatch;
use leadline_wire::{Event, Side};

use super::outbox::{Message, SampleRows};
use super::plan::Plan;
use super::report::Published;
use crate::metering::FlowCounters;
use crate::task::Task;

/// The time between two reports of distributions, ns.
const HAND_OVER_NS: u64 = 1_000_000_000;

/// The one that reports.
pub struct Watch<'t> {
    pub plan: &'t Plan,
    pub shared: &'t Shared,
    pub rows: &'t SampleRows,
    pub counters: &'t [Arc<FlowCounters>],
    pub task: &'t Task,
    pub interval_ns: u64,
}

impl Watch<'_> {
    /// Reports until all threads have ended.
    pub fn run(self, messages: &Receiver<Message>, at_ns: u64) {
        lower_priority();
        let mut published = Published::default();
        let mut reported_left_out = 0;
        let mut next_ns = at_ns.saturating_add(self.interval_ns);
        let mut next_hand_over_ns = at_ns.saturating_add(HAND_OVER_NS);
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= next_ns {
                next_ns += ((now_ns - next_ns) / self.interval_ns + 1) * self.interval_ns;
                let hands_over = now_ns >= next_hand_over_ns;
                if hands_over {
                    next_hand_over_ns += ((now_ns - next_hand_over_ns) / HAND_OVER_NS + 1) * HAND_OVER_NS;
                }
                self.report(&mut published, now_ns, hands_over);
            }
            match messages.recv_timeout(Duration::from_nanos(next_ns.saturating_sub(now_ns))) {
                Ok(Message::Snapshot(snapshot)) => published.take(snapshot, &self.plan.program),
                Ok(Message::Samples(batch)) => {
                    self.rows.taken(&batch);
                    reported_left_out = self.rows.left_out();
                    self.send(batch, reported_left_out);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if self.rows.left_out() != reported_left_out {
                        self.send(SampleBatch::default(), self.rows.left_out());
                    }
                    return self.report(&mut published, monotonic_ns(), true);
                }
            }
        }
    }

    fn report(&self, published: &mut Published, now_ns: u64, hands_over: bool) {
        let flows = self.counters.iter().zip(0..).map(|(counters, flow)| counters.progress(flow, true)).collect();
        let standing = published.standing();
        let (histograms, scenario) = published.progress(&self.plan.program, self.shared, hands_over);
        self.task.progress_scenario(Side::Local, now_ns, flows, histograms, standing, Some(Box::new(scenario)));
    }

    fn send(&self, batch: SampleBatch, left_out: u64) {
        let t_ns = monotonic_ns();
        let wall_offset_ns = (realtime_ns() as i64).wrapping_sub(t_ns as i64);
        let samples = Box::new(SampleBatch { wall_offset_ns, left_out, ..batch });
        let (trial, task) = (self.task.trial.clone(), self.task.name.clone());
        self.task.events.send(&Event::Samples { trial, task, t_ns, samples });
    }
}
