//! What a thread of a scenario passes to the one that reports. Owns the bound on samples that wait there: those beyond
//! it are counted and dropped, so that a slow reader costs no memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::Arc;

use leadline_scenario::figures::{Figures, PopulationHistograms, Recent};
use leadline_wire::scenario::{PopulationProgress, SampleBatch};
use leadline_wire::{HttpCounts, ThreadReport};

/// The most rows of samples that wait.
const MOST_WAITING: u64 = 200_000;

/// The state of a thread, and what ended since its last snapshot.
pub struct Snapshot {
    pub worker: usize,
    pub counts: HttpCounts,
    pub populations: Vec<PopulationProgress>,
    pub recent: Vec<(u32, Recent)>,
    /// Iterations that ended, by population.
    pub iterations: Vec<PopulationHistograms>,
    pub thread: ThreadReport,
    /// Its figures since the beginning, in the snapshots that have them.
    pub so_far: Option<Box<Figures>>,
}

/// What a thread passes on.
pub enum Message {
    /// Its state.
    Snapshot(Snapshot),
    /// What ended.
    Samples(SampleBatch),
}

/// The rows of samples of all threads.
#[derive(Default)]
pub struct SampleRows {
    waiting: AtomicU64,
    left_out: AtomicU64,
}

impl SampleRows {
    /// Takes the rows of a batch from those that wait.
    pub fn taken(&self, batch: &SampleBatch) {
        self.waiting.fetch_sub(batch.name.len() as u64, Relaxed);
    }

    /// Rows that were dropped so far.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

/// The way of a thread to the one that reports.
#[derive(Clone)]
pub struct Outbox {
    messages: Sender<Message>,
    rows: Arc<SampleRows>,
}

impl Outbox {
    pub fn new(messages: Sender<Message>, rows: Arc<SampleRows>) -> Self {
        Self { messages, rows }
    }

    /// Passes something on.
    pub fn send(&self, message: Message) {
        // The reader has ended only if the task is over.
        let _ = self.messages.send(message);
    }

    /// Passes samples on, or drops them if too many wait.
    pub fn send_samples(&self, batch: SampleBatch) {
        let rows = batch.name.len() as u64;
        if self.rows.waiting.fetch_add(rows, Relaxed) + rows > MOST_WAITING {
            self.rows.waiting.fetch_sub(rows, Relaxed);
            self.rows.left_out.fetch_add(rows, Relaxed);
            return;
        }
        self.send(Message::Samples(batch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_beyond_the_bound_are_counted() {
        let (messages, received) = std::sync::mpsc::channel();
        let rows = Arc::new(SampleRows::default());
        let outbox = Outbox::new(messages, Arc::clone(&rows));
        let batch = || SampleBatch { name: vec![0; 150_000], ..SampleBatch::default() };
        outbox.send_samples(batch());
        outbox.send_samples(batch());
        assert_eq!(rows.left_out(), 150_000);
        let Ok(Message::Samples(first)) = received.try_recv() else { panic!("no batch") };
        rows.taken(&first);
        outbox.send_samples(batch());
        assert_eq!((received.try_iter().count(), rows.left_out()), (1, 150_000));
    }
}
