//! The figures of one side, added up from its workers: the same for a load's client and for its server.

use std::collections::BTreeMap;

use leadline_transport::SideReport;
use leadline_wire::{LoadReport, Side};

use super::{late_p99_us, WorkerReport};

/// The figures of one side.
#[derive(Debug)]
pub struct Account {
    /// One row per flow.
    pub rows: Vec<SideReport>,
    /// The cost of its threads.
    pub load: LoadReport,
    /// Failed operations by name.
    pub errors: BTreeMap<String, u64>,
}

impl Account {
    /// Returns the figures of all workers of a task or session.
    pub fn of(workers: Vec<WorkerReport>) -> Self {
        let mut load = LoadReport {
            side: Side::Local,
            wall_s: 0.0,
            threads: Vec::new(),
            pushback: 0,
            late_p99_us: late_p99_us(&workers),
            socket_drops: None,
            engine: None,
            engine_reason: None,
            machine: None,
            quota: None,
        };
        let mut rows = Vec::new();
        let mut errors = BTreeMap::new();
        for worker in workers {
            load.wall_s = worker.thread.wall_s.max(load.wall_s);
            load.threads.push(worker.thread);
            load.pushback += worker.pushback;
            add_errors(&mut errors, "", worker.errors);
            rows.extend(worker.flows);
        }
        load.socket_drops = total(rows.iter().map(|row: &SideReport| row.socket_drops));
        Self { rows, load, errors }
    }
}

/// Adds counts by name, with a prefix that names the side. A server's numbers are limited, because they may be
/// forged.
pub fn add_errors(errors: &mut BTreeMap<String, u64>, prefix: &str, more: BTreeMap<String, u64>) {
    for (name, count) in more {
        let sum = errors.entry(format!("{prefix}{name}")).or_insert(0);
        *sum = sum.saturating_add(count);
    }
}

/// Returns the sum of the known values; `None` if none is known.
pub fn total(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().fold(None, |sum: Option<u64>, value| Some(sum.unwrap_or(0).saturating_add(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_errors_keep_a_prefix_of_their_own() {
        let counted = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
        let mut errors = counted("timeout", 2);
        add_errors(&mut errors, "peer_", counted("timeout", 3));
        add_errors(&mut errors, "peer_", counted("timeout", u64::MAX));
        assert_eq!(errors, [counted("timeout", 2), counted("peer_timeout", u64::MAX)].into_iter().flatten().collect());
    }
}
