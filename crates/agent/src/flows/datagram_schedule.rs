//! How many datagrams a flow may have sent at an instant: as its rate, its number and its time allow. Owns no clock and
//! no socket.

use leadline_pace::{CatchUp, Pace};

use super::Span;

/// How long after the span's end datagrams that were due in it may still be sent, ns: a thread that woke up late
/// loses no datagrams. Later ones are `unsent`.
const OVERTIME_NS: u64 = 100_000_000;
/// How long after the span's end what is late leaves at a bounded rate, ns: all at once, it would be the burst that the
/// bound avoids. Afterwards it has to leave at once.
const SPREAD_NS: u64 = OVERTIME_NS / 2;

/// The schedule of one sending flow.
#[derive(Clone, Copy, Debug)]
pub struct DatagramSchedule {
    pace: Option<Pace>,
    /// How many datagrams are due together.
    burst: u64,
    /// When the first datagram is due, ns.
    at_ns: u64,
    /// How many datagrams it may send: the configured number, or what its rate allows in the span; `None` if only the
    /// time limits it.
    most: Option<u64>,
    /// When it has finished, ns. A paced flow lasts until its next datagram would be due: n datagrams take n gaps of
    /// time, not n - 1.
    ends_ns: u64,
    span_ends_ns: u64,
    /// What bounds the bursts of a paced flow that is late.
    catch_up: Option<CatchUp>,
}

impl DatagramSchedule {
    /// Returns the schedule of a flow that begins `offset_ns` later than the span and sends at most `number` datagrams.
    pub fn new(pace: Option<Pace>, number: Option<u64>, span: Span, offset_ns: u64) -> Self {
        let at_ns = span.at_ns.saturating_add(offset_ns);
        let in_span = pace.map(|pace| pace.count_within(span.end_ns.saturating_sub(at_ns)));
        let most = [number, in_span].into_iter().flatten().min();
        let all_due_ns = pace.zip(most).map(|(pace, most)| at_ns.saturating_add(pace.due_ns(most)));
        let ends_ns = all_due_ns.map_or(span.end_ns, |all_due_ns| all_due_ns.min(span.end_ns));
        let catch_up = pace.map(|pace| CatchUp::between(pace, at_ns, ends_ns));
        Self { pace, burst: 1, at_ns, most, ends_ns, span_ends_ns: span.end_ns, catch_up }
    }

    /// Returns the same schedule with bursts: as many datagrams are due together as this, at the time of the first one.
    #[must_use]
    pub fn with_bursts(self, burst: u32) -> Self {
        let burst = u64::from(burst.max(1));
        // A bound of bursts would undo those that were asked for.
        Self { burst, catch_up: self.catch_up.filter(|_| burst == 1), ..self }
    }

    /// Returns how many datagrams should have been sent by now, of which `sent` were; `None` if only the time limits them.
    pub fn due(&self, now: u64, sent: u64) -> Option<u64> {
        match self.pace {
            Some(pace) => {
                let due = now.checked_sub(self.at_ns).map_or(0, |elapsed| pace.due_count(elapsed));
                let due = due.checked_next_multiple_of(self.burst).unwrap_or(due);
                Some(self.most.map_or(due, |most| due.min(most)))
            }
            None if now >= self.span_ends_ns => Some(sent),
            None => self.most,
        }
    }

    /// Returns how many of those that are due may have been sent by now.
    pub fn allowed(&mut self, now: u64, sent: u64) -> Option<u64> {
        let due = self.due(now, sent)?;
        match &mut self.catch_up {
            Some(catch_up) if now < self.span_ends_ns.saturating_add(SPREAD_NS) => {
                Some(catch_up.allowed(now, due, sent))
            }
            _ => Some(due),
        }
    }

    /// Returns when the next datagram may be sent if it was not allowed at `now`, or when the flow ends, ns.
    pub fn next_ns(&self, now: u64, sent: u64) -> u64 {
        let due_ns = self.pace.map_or(now, |pace| self.due_ns(pace, sent));
        match self.catch_up.and_then(|catch_up| catch_up.next_ns(sent)) {
            Some(late_ns) => late_ns.max(due_ns),
            None => due_ns.min(self.ends_ns),
        }
    }

    /// Returns when a datagram is due by this pace, ns.
    pub fn due_ns(&self, pace: Pace, sequence: u64) -> u64 {
        self.at_ns.saturating_add(pace.due_ns(sequence - sequence % self.burst))
    }

    /// Whether it is too late for datagrams that are still not sent.
    pub fn is_past(&self, now: u64) -> bool {
        now >= self.span_ends_ns.saturating_add(OVERTIME_NS)
    }

    /// Returns when the flow stopped trying, if it has sent this many by now; its last datagram was sent at `last_ns`.
    pub fn ended_ns(&self, now: u64, sent: u64, last_ns: Option<u64>, is_last_call: bool) -> Option<u64> {
        if self.pace.is_none() && self.most.is_some_and(|most| sent >= most) {
            return last_ns.or(Some(now));
        }
        let is_through = now >= self.ends_ns && self.due(now, sent).is_some_and(|due| sent >= due);
        (is_through || is_last_call).then(|| now.min(self.ends_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const STEP_NS: u64 = 5_000;
    const SPAN: Span = Span { at_ns: 3 * MS, end_ns: 203 * MS };
    /// Datagrams of 1400 bytes at 100 Mbit/s and at 1 Gbit/s.
    const RATES: [f64; 2] = [100e6 / 8.0 / 1400.0, 1e9 / 8.0 / 1400.0];

    /// When the datagrams leave of a thread that stands still in one stall (from when, until when, ns).
    fn leaving(pace: Pace, stall: (u64, u64)) -> Vec<u64> {
        leaving_in(pace, SPAN, stall)
    }

    fn leaving_in(pace: Pace, span: Span, stall: (u64, u64)) -> Vec<u64> {
        let mut schedule = DatagramSchedule::new(Some(pace), None, span, 0);
        let (mut now, mut left) = (span.at_ns, Vec::new());
        loop {
            let sent = left.len() as u64;
            let is_last_call = schedule.is_past(now);
            let allowed = schedule.allowed(now, sent).unwrap();
            if !is_last_call && allowed > sent {
                left.resize(allowed as usize, now);
            } else if schedule.ended_ns(now, sent, None, is_last_call).is_some() {
                return left;
            }
            now += STEP_NS;
            if (stall.0..stall.1).contains(&now) {
                now = stall.1;
            }
        }
    }

    /// The most that leave within a millisecond.
    fn worst(left: &[u64]) -> usize {
        left.iter()
            .enumerate()
            .map(|(first, from_ns)| left[first..].partition_point(|at| *at < from_ns + MS))
            .max()
            .unwrap()
    }

    #[test]
    fn what_is_late_at_the_end_leaves_no_burst() {
        for rate in RATES {
            let pace = Pace::per_second(rate).unwrap();
            for stall_ns in [MS / 2, 2 * MS, 20 * MS, 40 * MS] {
                let left = leaving(pace, (SPAN.end_ns - stall_ns, SPAN.end_ns + MS / 10));
                assert_eq!(left.len() as u64, pace.count_within(200 * MS), "{stall_ns} ns at {rate}/s");
                // 1.5 times the rate, and one more at an edge of the millisecond.
                let most = rate / 1000.0 * 1.5 + 2.0;
                assert!(worst(&left) as f64 <= most, "{} at {rate}/s with {stall_ns} ns", worst(&left));
            }
        }
    }

    #[test]
    fn rate_of_two_seconds_is_exact_though_a_stall_is_near_their_end() {
        let span = Span { at_ns: 3 * MS, end_ns: 2003 * MS };
        for rate in RATES {
            let pace = Pace::per_second(rate).unwrap();
            for (stall_ns, before_end_ns) in [
                (MS, 0),
                (3 * MS / 2, 0),
                (2 * MS, 0),
                (5 * MS / 2, 0),
                (5 * MS / 2, MS / 2),
                (3 * MS, MS),
                (4 * MS, 4 * MS),
                (8 * MS, 20 * MS),
                (20 * MS, 60 * MS),
            ] {
                let until_ns = span.end_ns + MS / 10 - before_end_ns;
                let left = leaving_in(pace, span, (until_ns - stall_ns, until_ns));
                let case = format!("{stall_ns} ns, {before_end_ns} ns before the end, at {rate}/s");
                assert_eq!(left.len() as u64, pace.count_within(2000 * MS), "{case}");
                // As the benchmark counts: from the first datagram to the last one.
                let took_s = (left.last().unwrap() - left[0]) as f64 / 1e9;
                let error = ((left.len() - 1) as f64 / took_s / rate - 1.0).abs();
                assert!(error <= 0.001, "{error}: {case}");
                // A fifth of what is late leaves on top of the rate, and two more at the edges of the millisecond.
                let late_ns = (stall_ns + MS / 10) as f64;
                let most = rate / 1000.0 * (1.0 + late_ns / 5e6).clamp(1.2, 1.5) + 2.0;
                assert!(worst(&left) as f64 <= most, "{} of {most}: {case}", worst(&left));
            }
        }
    }

    #[test]
    fn whatever_was_due_is_sent_by_a_thread_that_wakes_within_the_overtime() {
        for rate in RATES {
            let pace = Pace::per_second(rate).unwrap();
            for woke_ns in [SPAN.end_ns + 30 * MS, SPAN.end_ns + 99 * MS] {
                let left = leaving(pace, (SPAN.end_ns - 90 * MS, woke_ns));
                assert_eq!(left.len() as u64, pace.count_within(200 * MS), "awake at {woke_ns} ns, {rate}/s");
            }
            let left = leaving(pace, (SPAN.end_ns - 90 * MS, SPAN.end_ns + OVERTIME_NS));
            assert_eq!(left.len() as u64, pace.due_count(110 * MS - STEP_NS), "too late at {rate}/s");
        }
    }

    #[test]
    fn datagrams_of_a_burst_are_due_together() {
        let pace = Pace::per_second(1000.0).unwrap();
        let mut schedule = DatagramSchedule::new(Some(pace), Some(25), SPAN, 0).with_bursts(10);
        let allowed = |schedule: &mut DatagramSchedule, at_ns| schedule.allowed(SPAN.at_ns + at_ns, 0).unwrap();
        assert_eq!([0, 10 * MS - 1, 10 * MS].map(|at_ns| allowed(&mut schedule, at_ns)), [10, 10, 20]);
        // As late as it is, and never more than there are.
        assert_eq!([20 * MS, 90 * MS].map(|at_ns| allowed(&mut schedule, at_ns)), [25, 25]);
        assert_eq!([0, 9, 10].map(|sent| schedule.due_ns(pace, sent)), [0, 0, 10 * MS].map(|at| SPAN.at_ns + at));
        assert_eq!(schedule.next_ns(SPAN.at_ns, 10), SPAN.at_ns + 10 * MS);
        assert_eq!(schedule.ended_ns(SPAN.at_ns + 25 * MS, 25, None, false), Some(SPAN.at_ns + 25 * MS));
    }

    #[test]
    fn flow_without_a_rate_ends_by_its_number_or_its_time() {
        let mut timed = DatagramSchedule::new(None, None, SPAN, 0);
        assert_eq!((timed.allowed(SPAN.at_ns, 7), timed.allowed(SPAN.end_ns, 7)), (None, Some(7)));
        assert_eq!(timed.ended_ns(SPAN.end_ns - 1, 7, Some(5), false), None);
        assert_eq!(timed.ended_ns(SPAN.end_ns, 7, Some(5), false), Some(SPAN.end_ns));
        let counted = DatagramSchedule::new(None, Some(9), SPAN, 0);
        assert_eq!(counted.ended_ns(SPAN.at_ns, 8, Some(5), false), None);
        assert_eq!(counted.ended_ns(SPAN.at_ns, 9, Some(5), false), Some(5));
    }
}
