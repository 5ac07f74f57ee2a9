//! Moving payload over open sockets. The same workers run on the client's and on the server's side of a session; what differs
//! is which flows send. One worker is one thread with one poll.

pub mod account;
pub mod answer;
pub mod datagram;
pub mod stream;
pub mod thread_group;

use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_stats::Histogram;
use leadline_transport::SideReport;
use leadline_wire::{Direction, ThreadReport};

use crate::metering::FlowCounters;

/// Whether this side of a flow sends or receives its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This side sends.
    Send,
    /// This side receives.
    Receive,
}

/// When a worker's flows begin and end, on this host's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First byte, ns.
    pub at_ns: u64,
    /// Senders stop here, ns; receivers go on for what is under way.
    pub end_ns: u64,
}

/// How long a receiver goes on in silence after its sender should have ended, ns.
pub const DRAIN_NS: u64 = 5_000_000_000;

/// How long it goes on at most while something still comes: what lay in the sender's buffer may take its time, ns.
pub const LONGEST_DRAIN_NS: u64 = 20_000_000_000;

/// The longest that a worker sleeps before it looks at its stop flag again, ns.
pub const TURN_NS: u64 = 50_000_000;

/// What a worker leaves.
#[derive(Debug)]
pub struct WorkerReport {
    /// One row per flow.
    pub flows: Vec<SideReport>,
    /// What its thread cost.
    pub thread: ThreadReport,
    /// Sends that the socket refused to take at once.
    pub pushback: u64,
    /// Failed operations by name.
    pub errors: BTreeMap<String, u64>,
    /// From due to sent, of paced sends.
    pub late: Option<Histogram>,
}

/// The 99th percentile over all workers' lateness, µs; `None` where nothing was paced.
pub fn late_p99_us(workers: &[WorkerReport]) -> Option<f64> {
    let mut all: Option<Histogram> = None;
    for late in workers.iter().filter_map(|worker| worker.late.as_ref()) {
        all.get_or_insert_default().merge(late);
    }
    all?.quantile_ns(0.99).map(|ns| ns as f64 / 1e3)
}

/// Deal items out to at most `threads` groups as evenly as it goes, in order; no group is empty.
pub fn deal_out<T>(items: Vec<T>, threads: u32) -> Vec<Vec<T>> {
    let groups = (threads.max(1) as usize).min(items.len().max(1));
    let mut dealt: Vec<Vec<T>> = (0..groups).map(|_| Vec::new()).collect();
    for (index, item) in items.into_iter().enumerate() {
        dealt[index % groups].push(item);
    }
    dealt
}

/// Counters for `count` flows.
pub fn counters(count: u32) -> Vec<Arc<FlowCounters>> {
    (0..count).map(|_| Arc::new(FlowCounters::default())).collect()
}

/// Count one failure by name.
pub fn count_error(errors: &mut BTreeMap<String, u64>, name: &str) {
    match errors.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            errors.insert(name.to_owned(), 1);
        }
    }
}

/// The flows of a direction in their order: upward ones first; `both` has each flow once up and once down.
pub fn planned_directions(direction: Direction, flows: u32) -> Vec<Direction> {
    let both: &[Direction] = match direction {
        Direction::Up => &[Direction::Up],
        Direction::Down => &[Direction::Down],
        Direction::Both => &[Direction::Up, Direction::Down],
    };
    both.iter().flat_map(|one| std::iter::repeat_n(*one, flows as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_distributed_evenly() {
        assert_eq!(deal_out(vec![1, 2, 3, 4, 5], 2), [vec![1, 3, 5], vec![2, 4]]);
        assert_eq!(deal_out(vec![1], 4), [vec![1]]);
    }
}
