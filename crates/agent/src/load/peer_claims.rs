//! What a server says, held against what this end knows. Owns the limits of what can be true; the caller ends a load
//! whose server exceeds them: its other figures cannot be believed either.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leadline_transport::SideReport;
use leadline_wire::{Direction, LoadReport};

use crate::events::one_line;
use crate::metering::FlowCounters;

/// What this end has counted of a flow.
pub struct OwnCount<'f> {
    /// The flow's number.
    pub id: u32,
    /// Its direction, as seen from here.
    pub direction: Direction,
    /// This end's counters.
    pub counters: &'f FlowCounters,
}

/// What the two ends of a flow count in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bytes of a stream.
    Bytes,
    /// Datagrams with numbers.
    Datagrams,
    /// Datagrams without numbers, each of which may have been doubled on its way.
    DoubledDatagrams,
    /// Nothing: a transaction may fail between the two counts.
    Nothing,
}

impl Counted {
    /// What the ends of a session count, by its runner's flags.
    pub fn of(has_units: bool, counts_loss: bool) -> Self {
        match (has_units, counts_loss) {
            (false, _) => Self::Bytes,
            (true, true) => Self::Datagrams,
            (true, false) => Self::Nothing,
        }
    }
}

/// Returns what cannot be true of the server's rows, in words: more arrived there than was sent here, or less was sent
/// there than arrived here. The counters have to be final.
pub fn contradiction<'f>(
    mut flows: impl Iterator<Item = OwnCount<'f>>,
    rows: &[SideReport],
    counted: Counted,
) -> Option<String> {
    let unit = match counted {
        Counted::Bytes => "bytes",
        Counted::Datagrams | Counted::DoubledDatagrams => "datagrams",
        Counted::Nothing => return None,
    };
    let rows: BTreeMap<u32, &SideReport> = rows.iter().map(|row| (row.flow, row)).collect();
    flows.find_map(|OwnCount { id, direction, counters: own }| {
        let row = rows.get(&id)?;
        let bytes = counted == Counted::Bytes;
        if direction == Direction::Down {
            let sent = if bytes { Some(row.sent_bytes) } else { row.sent_units }?;
            let arrived = if bytes { own.received_bytes() } else { own.received_units() };
            (sent < arrived).then(|| format!("to have sent {sent} {unit} of flow {id}, of which {arrived} arrived"))
        } else {
            let arrived = if bytes { Some(row.received_bytes) } else { row.received_units }?;
            let sent = if bytes { own.sent_bytes() } else { own.sent_units() };
            let most = if counted == Counted::DoubledDatagrams { sent.saturating_mul(2) } else { sent };
            (arrived > most)
                .then(|| format!("to have received {arrived} {unit} of flow {id}, of which {sent} were sent"))
        }
    })
}

/// Returns a jitter of the server's rows that cannot be one, in words.
pub fn impossible_jitter(rows: &[SideReport]) -> Option<String> {
    let wrong = rows.iter().filter_map(|row| row.jitter_us).find(|us| *us < 0.0 || !us.is_finite())?;
    Some(format!("a jitter of {wrong:e} µs"))
}

/// The largest figure that a report may have: of ns, more than a hundred years. Sums of larger ones may not be finite.
const MOST: f64 = 9e18;

/// Returns a figure of the server's report that is too large to be one, in words.
pub fn wild_figure(rows: &[SideReport], load: &LoadReport) -> Option<String> {
    // Plain data: this cannot fail. A number that JSON does not have is null.
    let values = [serde_json::to_value(rows), serde_json::to_value(load)].into_iter().flatten();
    values.into_iter().find_map(|value| largest(&value)).map(|number| format!("a figure of {number:e}"))
}

/// Returns the first number beyond the limit.
fn largest(value: &serde_json::Value) -> Option<f64> {
    match value {
        serde_json::Value::Number(number) => number.as_f64().filter(|number| number.abs() > MOST),
        serde_json::Value::Array(values) => values.iter().find_map(largest),
        serde_json::Value::Object(fields) => fields.values().find_map(largest),
        _ => None,
    }
}

/// Counts a server's progress messages: one per interval is what it was asked for.
pub struct ProgressLimit {
    began: Instant,
    interval: Duration,
    seen: u64,
}

/// More messages than the intervals that have passed: those of a server that was stopped for a while come at once.
const SPARE_MESSAGES: u64 = 64;

impl ProgressLimit {
    /// Begins to count.
    pub fn new(began: Instant, interval: Duration) -> Self {
        Self { began, interval, seen: 0 }
    }

    /// Counts a message; returns whether there are too many by now.
    pub fn exceeded(&mut self, now: Instant) -> bool {
        self.seen += 1;
        let passed = now.saturating_duration_since(self.began).as_nanos() / self.interval.as_nanos().max(1);
        u128::from(self.seen) > 2 * passed + u128::from(SPARE_MESSAGES)
    }
}

/// Makes the names in a server's report texts of one line.
pub fn plain_names(load: &mut LoadReport, errors: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    load.threads.iter_mut().for_each(|thread| thread.name = one_line(&thread.name));
    for text in [&mut load.engine, &mut load.engine_reason].into_iter().flatten() {
        *text = one_line(text);
    }
    if let Some(quota) = &mut load.quota {
        quota.group = one_line(&quota.group);
    }
    errors.into_iter().map(|(name, count)| (one_line(&name), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(flow: u32, bytes: u64, units: u64) -> SideReport {
        SideReport {
            flow,
            sent_bytes: bytes,
            received_bytes: bytes,
            sent_units: Some(units),
            received_units: Some(units),
            ..SideReport::default()
        }
    }

    #[test]
    fn more_than_was_sent_and_less_than_arrived_contradict() {
        // Each flow has sent 10 units of 100 bytes, and received 5.
        let counters = FlowCounters::default();
        counters.sent(1000, 10);
        counters.received(500, 5);
        let own = |id, direction| OwnCount { id, direction, counters: &counters };
        let flows = || [own(0, Direction::Up), own(1, Direction::Down)].into_iter();
        let found = |rows: &[SideReport], counted| contradiction(flows(), rows, counted);
        assert_eq!(found(&[row(0, 1000, 10), row(1, 500, 5)], Counted::Bytes), None);
        assert_eq!(found(&[row(0, 0, 0), row(1, 9000, 90)], Counted::Datagrams), None);
        assert!(found(&[row(0, 1001, 10)], Counted::Bytes).unwrap().contains("1001 bytes of flow 0, of which 1000"));
        assert!(found(&[row(1, 499, 5)], Counted::Bytes).unwrap().contains("499 bytes of flow 1, of which 500"));
        assert!(found(&[row(0, 0, 11)], Counted::Datagrams).unwrap().contains("11 datagrams of flow 0"));
        assert!(found(&[row(1, 500, 4)], Counted::Datagrams).unwrap().contains("4 datagrams of flow 1"));
        assert_eq!(found(&[row(0, 0, 20)], Counted::DoubledDatagrams), None);
        assert!(found(&[row(0, 0, 21)], Counted::DoubledDatagrams).unwrap().contains("21 datagrams of flow 0"));
        assert_eq!(found(&[row(0, 9999, 99), row(7, 9999, 99)], Counted::Nothing), None);
        // An unknown count is none.
        let unknown = SideReport { flow: 1, ..SideReport::default() };
        assert_eq!(found(&[unknown], Counted::Datagrams), None);
    }

    #[test]
    fn jitter_that_cannot_be_is_named() {
        let row = |us| SideReport { jitter_us: Some(us), ..SideReport::default() };
        assert_eq!(impossible_jitter(&[SideReport::default(), row(0.0)]), None);
        assert_eq!(impossible_jitter(&[row(1.0), row(-5.0)]).as_deref(), Some("a jitter of -5e0 µs"));
        assert!(impossible_jitter(&[row(f64::INFINITY)]).is_some());
    }

    #[test]
    fn figure_that_is_too_large_is_named() {
        let load = |wall_s| LoadReport {
            side: leadline_wire::Side::Peer,
            wall_s,
            threads: Vec::new(),
            pushback: 3,
            late_p99_us: None,
            socket_drops: None,
            engine: None,
            engine_reason: None,
            machine: None,
            quota: None,
        };
        let fine = SideReport { start_ns: Some(1 << 62), jitter_us: Some(-1e15), ..SideReport::default() };
        assert_eq!(wild_figure(&[fine], &load(1.0)), None);
        let wild = SideReport { rtt_mean_us: Some(-1e300), ..SideReport::default() };
        assert_eq!(wild_figure(&[wild], &load(1.0)).as_deref(), Some("a figure of -1e300"));
        let wild = SideReport { duplicates: Some(u64::MAX), ..SideReport::default() };
        assert!(wild_figure(&[wild], &load(1.0)).is_some() && wild_figure(&[], &load(1e99)).is_some());
    }

    #[test]
    fn progress_more_often_than_asked_for_is_too_much() {
        let began = Instant::now();
        let mut asked = ProgressLimit::new(began, Duration::from_millis(100));
        assert!((0..10_000).all(|number| !asked.exceeded(began + Duration::from_millis(100 * number))));
        let mut late = ProgressLimit::new(began, Duration::from_millis(100));
        assert!((0..100).all(|_| !late.exceeded(began + Duration::from_secs(10))));
        let mut flood = ProgressLimit::new(began, Duration::from_millis(100));
        assert_eq!((0..).find(|_| flood.exceeded(began + Duration::from_secs(1))), Some(84));
    }

    #[test]
    fn names_of_the_server_have_no_control_characters() {
        let mut load = LoadReport {
            side: leadline_wire::Side::Peer,
            wall_s: 1.0,
            threads: Vec::new(),
            pushback: 0,
            late_p99_us: None,
            socket_drops: None,
            engine: Some("a\x1b[31m\nb".to_owned()),
            engine_reason: None,
            machine: None,
            quota: None,
        };
        let errors = plain_names(&mut load, BTreeMap::from([("x\r\ny".to_owned(), 3)]));
        assert_eq!(errors, BTreeMap::from([("x  y".to_owned(), 3)]));
        assert_eq!(load.engine.as_deref(), Some("a [31m b"));
    }
}
