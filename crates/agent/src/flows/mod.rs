//! Transfer of payload over open sockets. The same workers run on the client's and on the server's side of a session;
//! the sides differ in which flows send. One worker is one thread with one poll.

pub mod account;
pub mod answer;
pub mod connect_answer;
pub mod datagram;
pub mod datagram_io;
pub mod datagram_schedule;
pub mod drain;
pub mod iperf3;
pub mod payload;
pub mod punctual;
pub mod receive_coalescing;
pub mod stream;
pub mod stream_options;
pub mod thread_group;

use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_stats::Histogram;
use leadline_transport::SideReport;
use leadline_wire::{Direction, ThreadReport};

use crate::machine_meter::Moved;
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
    /// Senders stop at this instant, ns; receivers continue while payload is in transit.
    pub end_ns: u64,
}

/// How long a receiver waits in silence after its sender should have ended, ns.
pub const DRAIN_NS: u64 = 5_000_000_000;

/// The maximum time that a receiver waits while payload still arrives, ns: data in the sender's buffer may take long.
pub const MAX_DRAIN_NS: u64 = 20_000_000_000;

/// The longest sleep of a worker between checks of its stop flag, ns.
pub const TURN_NS: u64 = 50_000_000;

/// A worker's figures at its end.
#[derive(Debug)]
pub struct WorkerReport {
    /// One row per flow.
    pub flows: Vec<SideReport>,
    /// The cost of its thread.
    pub thread: ThreadReport,
    /// Sends that the socket did not accept at once.
    pub pushback: u64,
    /// Failed operations by name.
    pub errors: BTreeMap<String, u64>,
    /// From due to sent, for paced sends.
    pub late: Option<Histogram>,
}

/// The 99th percentile of all workers' lateness, µs; `None` if no sends were paced.
pub fn late_p99_us(workers: &[WorkerReport]) -> Option<f64> {
    let mut all: Option<Histogram> = None;
    for late in workers.iter().filter_map(|worker| worker.late.as_ref()) {
        all.get_or_insert_default().merge(late);
    }
    all?.quantile_ns(0.99).map(|ns| ns as f64 / 1e3)
}

/// Distributes items evenly to at most `threads` groups, in order; no group is empty.
pub fn deal_out<T>(items: Vec<T>, threads: u32) -> Vec<Vec<T>> {
    let groups = (threads.max(1) as usize).min(items.len().max(1));
    let mut dealt: Vec<Vec<T>> = (0..groups).map(|_| Vec::new()).collect();
    for (index, item) in items.into_iter().enumerate() {
        dealt[index % groups].push(item);
    }
    dealt
}

/// Returns groups of flows that send and groups that receive.
pub fn by_role<F>(flows: Vec<F>, threads: u32, role: impl Fn(&F) -> Role) -> Vec<(Role, Vec<F>)> {
    let (sending, receiving): (Vec<F>, Vec<F>) = flows.into_iter().partition(|flow| role(flow) == Role::Send);
    let sending = deal_out(sending, threads).into_iter().map(|group| (Role::Send, group));
    let receiving = deal_out(receiving, threads).into_iter().map(|group| (Role::Receive, group));
    sending.chain(receiving).filter(|(_, group)| !group.is_empty()).collect()
}

/// Returns counters for `count` flows.
pub fn counters(count: u32) -> Vec<Arc<FlowCounters>> {
    (0..count).map(|_| Arc::new(FlowCounters::default())).collect()
}

/// Returns what flows have moved on this side, for the machine's meter.
pub fn moved<'f>(flows: impl Iterator<Item = &'f Arc<FlowCounters>>) -> Moved {
    flows.fold([0; 4], |sum, flow| {
        let moved = [flow.sent_bytes(), flow.received_bytes(), flow.sent_units(), flow.received_units()];
        std::array::from_fn(|which| sum[which] + moved[which])
    })
}

/// Counts one failure by name.
pub fn count_error(errors: &mut BTreeMap<String, u64>, name: &str) {
    match errors.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            errors.insert(name.to_owned(), 1);
        }
    }
}

/// Returns the direction of each flow, upward ones first; with `both` each flow exists once up and once down.
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
