//! Computes when each request is due. A closed loop sends a connection's next request when its last one has ended. An
//! open loop sends requests at a rate, whether or not a connection is free; its backlog is the difference of two
//! counts and needs no memory. Latency counts from `due_ns` in both.

use leadline_pace::{Arrivals, Stages};

/// The schedule of a thread's requests.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// As fast as responses arrive.
    Closed(ClosedLoop),
    /// At a rate, constant or in stages.
    Open(OpenLoop),
}

impl Schedule {
    /// Returns the due time of a request that can be sent now on a connection free since `free_ns`; `None` if none is
    /// due.
    #[inline]
    pub fn take(&mut self, now_ns: u64, free_ns: u64) -> Option<u64> {
        match self {
            Schedule::Closed(closed) => closed.take(now_ns, free_ns),
            Schedule::Open(open) => open.take(now_ns),
        }
    }

    /// When the next request is due if a connection is free; `None` if no more will be.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        match self {
            Schedule::Closed(closed) => (!closed.is_exhausted()).then_some(closed.start_ns),
            Schedule::Open(open) => (open.taken < open.total).then_some(open.next_due_ns),
        }
    }

    /// When the request after the last taken one is due, or would be if the load had one more; at the latest when the
    /// stages end. `None` in a closed loop. A paced flow ends here: n requests last n gaps, not n - 1.
    #[must_use]
    pub fn following_ns(&self) -> Option<u64> {
        match self {
            Schedule::Closed(_) => None,
            Schedule::Open(open) => Some(open.next_due_ns),
        }
    }

    /// Number of requests that were due by `now_ns`.
    #[must_use]
    pub fn due_count(&self, now_ns: u64) -> u64 {
        match self {
            Schedule::Closed(closed) => closed.taken,
            Schedule::Open(open) => open.due_count(now_ns),
        }
    }

    /// Number of requests left to take; `None` if only the time limits them.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        match self {
            Schedule::Closed(closed) => closed.total.map(|total| total - closed.taken),
            Schedule::Open(open) => Some(open.total - open.taken),
        }
    }

    /// Number of requests taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        match self {
            Schedule::Closed(closed) => closed.taken,
            Schedule::Open(open) => open.taken,
        }
    }
}

/// A thread's share of a load's requests. Requests are sent in pieces of `batch` requests; thread `index` of
/// `threads` sends every `threads`-th piece. A schedule counts pieces. A piece is due when its first request is, so
/// the requests keep the configured rate. The last piece has full size even if fewer requests are left.
#[derive(Clone, Copy, Debug)]
pub struct ThreadShare {
    /// The thread's index, from 0.
    pub index: u64,
    /// The number of threads.
    pub threads: u64,
    /// Requests per piece; at least 1.
    pub batch: u64,
}

impl ThreadShare {
    /// Number of this thread's pieces that begin within the first `requests` of the load.
    fn pieces(self, requests: u64) -> u64 {
        let pieces = requests.div_ceil(self.batch.max(1));
        pieces.saturating_sub(self.index).div_ceil(self.threads.max(1))
    }
}

/// A closed loop: requests as fast as responses arrive.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    start_ns: u64,
    end_ns: u64,
    /// Pieces of this thread; `None` if only the time limits them. At least `taken`.
    total: Option<u64>,
    taken: u64,
}

impl ClosedLoop {
    /// Creates a schedule for `[start_ns, start_ns + duration_ns)`, with this thread's share of `number` requests if
    /// set.
    #[must_use]
    pub fn new(start_ns: u64, duration_ns: u64, number: Option<u64>, share: ThreadShare) -> Self {
        let end_ns = start_ns.saturating_add(duration_ns);
        Self { start_ns, end_ns, total: number.map(|number| share.pieces(number)), taken: 0 }
    }

    /// See [`Schedule::take`].
    #[inline]
    pub fn take(&mut self, now_ns: u64, free_ns: u64) -> Option<u64> {
        if self.is_exhausted() || now_ns < self.start_ns || now_ns >= self.end_ns {
            return None;
        }
        self.taken += 1;
        Some(free_ns.max(self.start_ns))
    }

    /// Whether all requests of a limited number are taken.
    #[inline]
    fn is_exhausted(&self) -> bool {
        self.total.is_some_and(|total| self.taken >= total)
    }
}

/// An open loop: requests at a rate that may change.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    stages: Stages,
    arrivals: Arrivals,
    start_ns: u64,
    end_ns: u64,
    share: ThreadShare,
    total: u64,
    taken: u64,
    /// When the request after the last taken one is due, ns, also after the last one of the load. It never moves back.
    next_due_ns: u64,
}

impl OpenLoop {
    /// Creates a schedule for `[start_ns, start_ns + duration_ns)`, with at most `number` requests over all threads.
    /// If the stages end before that time, so do the requests.
    #[must_use]
    pub fn new(stages: Stages, start_ns: u64, duration_ns: u64, number: Option<u64>, share: ThreadShare) -> Self {
        let in_time = stages.count_within(duration_ns);
        let all = number.map_or(in_time, |number| number.min(in_time));
        let ThreadShare { index, threads, batch } = share;
        let arrivals = stages.every(index.saturating_mul(batch), threads.saturating_mul(batch));
        Self {
            start_ns,
            end_ns: start_ns.saturating_add(duration_ns),
            share,
            total: share.pieces(all),
            taken: 0,
            next_due_ns: start_ns.saturating_add(arrivals.due_ns()),
            stages,
            arrivals,
        }
    }

    /// See [`Schedule::take`].
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        if self.taken >= self.total || now_ns < self.next_due_ns || now_ns >= self.end_ns {
            return None;
        }
        let due_ns = self.next_due_ns;
        self.taken += 1;
        self.arrivals.advance();
        self.next_due_ns = self.start_ns.saturating_add(self.arrivals.due_ns());
        Some(due_ns)
    }

    /// Number of this thread's requests that were due by `now_ns`.
    #[must_use]
    pub fn due_count(&self, now_ns: u64) -> u64 {
        let Some(elapsed_ns) = now_ns.checked_sub(self.start_ns) else { return 0 };
        self.share.pieces(self.stages.due_count(elapsed_ns)).min(self.total)
    }
}

#[cfg(test)]
mod tests {
    use leadline_pace::{Stage, Stages};
    use proptest::prelude::*;

    use super::{ClosedLoop, OpenLoop, Schedule, ThreadShare};

    /// One request per piece.
    fn share(index: u64, threads: u64) -> ThreadShare {
        ThreadShare { index, threads, batch: 1 }
    }

    fn constant(per_s: f64) -> Stages {
        Stages::new([Stage { from_per_s: per_s, to_per_s: per_s, duration_ns: 1_000_000_000 }]).unwrap()
    }

    #[test]
    fn a_closed_loop_is_due_when_a_connection_is_free() {
        let mut closed = Schedule::Closed(ClosedLoop::new(8, 992, Some(3), share(0, 2)));
        assert_eq!(closed.take(7, 7), None, "before the start");
        assert_eq!(closed.take(10, 7), Some(8));
        assert_eq!(closed.take(20, 15), Some(15));
        assert_eq!((closed.left(), Schedule::Closed(ClosedLoop::new(0, 9, None, share(0, 1))).left()), (Some(0), None));
        assert_eq!(closed.take(30, 25), None, "the other thread has the third request");
        assert_eq!(closed.next_due_ns(), None);
        assert_eq!(closed.due_count(30), 2);
        assert_eq!(ClosedLoop::new(0, 1000, None, share(0, 1)).take(1000, 5), None, "after the end");
    }

    #[test]
    fn an_open_loop_keeps_its_due_times_when_it_falls_behind() {
        let mut open = OpenLoop::new(constant(1000.0), 5_000_000, 10_000_000, None, share(0, 1));
        assert_eq!(open.take(4_999_999), None);
        assert_eq!(open.due_count(4_999_999), 0);
        assert_eq!(open.take(5_000_000), Some(5_000_000));
        assert_eq!(open.take(5_000_001), None);
        assert_eq!(open.due_count(9_500_000), 5);
        for due_ns in [6_000_000, 7_000_000, 8_000_000, 9_000_000] {
            assert_eq!(open.take(9_500_000), Some(due_ns));
        }
        assert_eq!(open.take(9_500_000), None);
        assert_eq!(open.due_count(u64::MAX), 10);
        assert_eq!(open.take(15_000_000), None, "five were never sent before the end");
    }

    #[test]
    fn schedule_waits_for_the_end_of_a_pause() {
        let stages = [(0.0, 5_000_000), (1000.0, 2_000_000), (0.0, 5_000_000), (1000.0, 1_000_000)];
        let stages = stages.map(|(per_s, duration_ns)| Stage { from_per_s: per_s, to_per_s: per_s, duration_ns });
        let mut open = Schedule::Open(OpenLoop::new(Stages::new(stages).unwrap(), 100, u64::MAX, None, share(0, 1)));
        assert_eq!(
            (open.take(4_999_999, 0), open.next_due_ns(), open.due_count(4_999_999)),
            (None, Some(5_000_100), 0)
        );
        let due_ns: Vec<u64> = std::iter::from_fn(|| open.take(20_000_000, 0)).collect();
        assert_eq!(due_ns, [5_000_100, 6_000_100, 12_000_100]);
        assert_eq!((open.next_due_ns(), open.following_ns(), open.due_count(u64::MAX)), (None, Some(13_000_100), 3));
    }

    #[test]
    fn n_paced_requests_last_n_gaps() {
        let mut open = Schedule::Open(OpenLoop::new(constant(1000.0), 5_000_000, 10_000_000, Some(2), share(0, 1)));
        assert_eq!(open.following_ns(), Some(5_000_000));
        assert!(open.take(6_000_000, 0).is_some() && open.take(6_000_000, 0).is_some());
        assert_eq!((open.next_due_ns(), open.following_ns()), (None, Some(7_000_000)));
        assert_eq!(Schedule::Closed(ClosedLoop::new(0, 1000, None, share(0, 1))).following_ns(), None);
    }

    #[test]
    fn rate_and_number_count_requests_and_not_pieces() {
        let all = |number, threads, batch, stages: &Stages| -> Vec<u64> {
            let open =
                |index| OpenLoop::new(stages.clone(), 0, 1_000_000_000, number, ThreadShare { index, threads, batch });
            let mut due: Vec<u64> = (0..threads)
                .flat_map(|index| {
                    let mut open = open(index);
                    std::iter::from_fn(move || open.take(999_999_999))
                })
                .collect();
            due.sort_unstable();
            due
        };
        for threads in [1, 3] {
            let due = all(None, threads, 5, &constant(100.0));
            assert_eq!(due, (0..20).map(|n| n * 50_000_000).collect::<Vec<_>>(), "100 requests in pieces of five");
            assert_eq!(all(Some(12), threads, 5, &constant(100.0)), [0, 50_000_000, 100_000_000]);
            // Half a second at 20/s and half a second at 100/s: 10 and 50 requests.
            let half = |per_s| Stage { from_per_s: per_s, to_per_s: per_s, duration_ns: 500_000_000 };
            let due = all(None, threads, 10, &Stages::new([half(20.0), half(100.0)]).unwrap());
            assert_eq!(due, [0, 500, 600, 700, 800, 900].map(|due_ms| due_ms * 1_000_000));
        }
        let closed = |index| ClosedLoop::new(0, 1000, Some(12), ThreadShare { index, threads: 2, batch: 5 });
        assert_eq!([0, 1].map(|index| Schedule::Closed(closed(index)).left()), [Some(2), Some(1)]);
    }

    proptest! {
        #[test]
        fn threads_share_all_requests_exactly(all in 0u64..10_000, threads in 1u64..40) {
            prop_assert_eq!((0..threads).map(|index| share(index, threads).pieces(all)).sum::<u64>(), all);
        }

        #[test]
        fn threads_together_follow_the_stages(
            from_per_s in 0.0f64..1e6,
            to_per_s in 1.0f64..1e6,
            threads in 1u64..9,
            number in proptest::option::of(0u64..500),
            batch in 1u64..8,
        ) {
            let stage = Stage { from_per_s, to_per_s, duration_ns: 700_000 };
            let stages = Stages::new([stage, Stage { from_per_s: to_per_s, to_per_s: 0.0, ..stage }]).unwrap();
            let duration_ns = 1_000_000;
            let mut due = Vec::new();
            for index in 0..threads {
                let mut open = OpenLoop::new(stages.clone(), 0, duration_ns, number, ThreadShare { index, threads, batch });
                while let Some(due_ns) = open.take(duration_ns - 1) {
                    due.push(due_ns);
                }
                prop_assert_eq!(open.due_count(duration_ns), open.taken);
            }
            due.sort_unstable();
            let expected = stages.count_within(duration_ns).min(number.unwrap_or(u64::MAX));
            let pieces = expected.div_ceil(batch);
            prop_assert_eq!(due, (0..pieces).map(|n| stages.due_ns(n * batch)).collect::<Vec<_>>());
        }
    }
}
