//! When one client's paced sends are due, the latencies of its flow, and the flow's row. Owns no state of a flow.

use leadline_pace::Pace;
use leadline_wire::{Direction, FlowReport};

use super::interface::ClientContext;

/// The maximum number of packets that one call sends, so that one client delays neither the others nor the timers.
pub const BATCH: u64 = 64;
/// How long a refused send waits before it is tried again, ns; room in the socket ends the wait earlier.
pub const RETRY_NS: u64 = 1_000_000;
/// Packets that are later than this cannot be distinguished from duplicates, s.
pub const REMEMBERED_S: f64 = 4.0;
/// How long after the end packets that were due before it may still be sent, ns: a thread that woke up late loses no
/// packets. Later ones are `unsent`.
pub const OVERTIME_NS: u64 = 100_000_000;

/// A client's share of the fleet's schedule: the same rate for each client, spread over one gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pace: Pace,
    offset_ns: u64,
    total: u64,
}

impl Schedule {
    /// Returns the schedule of the sends within `duration_ns`.
    pub fn new(pace: Pace, context: &ClientContext, duration_ns: u64) -> Self {
        Self::beginning_at(pace.turn_ns(context.client, context.clients), pace, duration_ns)
    }

    /// Returns the schedule of the sends within `duration_ns`, which begin after `offset_ns`.
    pub fn beginning_at(offset_ns: u64, pace: Pace, duration_ns: u64) -> Self {
        // The first packet is due in the first gap, which may be longer than the load.
        Self { pace, offset_ns, total: pace.count_within(duration_ns.saturating_sub(offset_ns)) }
    }

    /// The total number of sends.
    pub fn total(self) -> u64 {
        self.total
    }

    /// When the send with this number is due, ns after the start.
    pub fn due_ns(self, number: u64) -> u64 {
        self.offset_ns.saturating_add(self.pace.due_ns(number))
    }

    /// The number of sends that are due by this time after the start.
    pub fn due_count(self, elapsed_ns: u64) -> u64 {
        elapsed_ns.checked_sub(self.offset_ns).map_or(0, |elapsed| self.pace.due_count(elapsed).min(self.total))
    }
}

/// The latencies of one client; the fleet's histograms do not separate clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    count: u64,
    sum_ns: u128,
    longest_ns: u64,
}

impl Latency {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns += u128::from(latency_ns);
        self.longest_ns = self.longest_ns.max(latency_ns);
    }

    /// The mean latency, µs.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e3)
    }

    /// The longest latency, µs.
    pub fn longest_us(&self) -> Option<f64> {
        (self.count > 0).then_some(self.longest_ns as f64 / 1e3)
    }
}

/// Returns the row of a flow of which only the due time is known.
pub fn row(client: u32, direction: Direction, due_ns: u64) -> FlowReport {
    FlowReport {
        flow: client,
        direction,
        due_ns,
        start_ns: None,
        end_ns: None,
        sent_bytes: None,
        received_bytes: None,
        sent_units: None,
        received_units: None,
        lost: None,
        duplicates: None,
        reordered: None,
        jitter_us: None,
        latency_mean_us: None,
        latency_max_us: None,
        retransmits: None,
        rtt_mean_us: None,
        congestion: None,
        peer_congestion: None,
        local: None,
        remote: None,
        datagrams: None,
        sender_tcp: None,
        receiver_tcp: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(client: u32, clients: u32) -> ClientContext {
        ClientContext { client, clients, ipv4: None, ipv6: None, server_ipv4: None, server_ipv6: None, mtu: 1500 }
    }

    #[test]
    fn clients_sends_are_spread_over_one_gap() {
        let pace = Pace::per_second(10.0).unwrap();
        let schedules: Vec<_> = (0..4).map(|client| Schedule::new(pace, &context(client, 4), 1_000_000_000)).collect();
        assert_eq!(
            schedules.iter().map(|schedule| schedule.due_ns(0)).collect::<Vec<_>>(),
            [0, 25_000_000, 50_000_000, 75_000_000]
        );
        assert!(schedules.iter().all(|schedule| schedule.total() == 10));
        assert_eq!((schedules[2].due_count(49_999_999), schedules[2].due_count(50_000_000)), (0, 1));
        assert_eq!(schedules[2].due_count(u64::MAX), 10);
    }

    #[test]
    fn latency_without_samples_is_unknown() {
        let mut latency = Latency::default();
        assert_eq!((latency.mean_us(), latency.longest_us()), (None, None));
        [1_000, 5_000, 3_000].into_iter().for_each(|one_ns| latency.record(one_ns));
        assert_eq!((latency.mean_us(), latency.longest_us()), (Some(3.0), Some(5.0)));
    }

    #[test]
    fn gap_longer_than_the_load_leaves_some_clients_without_sends() {
        let pace = Pace::per_second(0.5).unwrap();
        let counts: Vec<_> =
            (0..4).map(|client| Schedule::new(pace, &context(client, 4), 1_000_000_000).total()).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
    }
}
