//! When each frame of a replay is due: absolute, from its ordinal, its bytes or its time in the capture, so that neither
//! lateness nor rounding adds up. Owns no clock.

use leadline_pace::Pace;

/// Millionths of a factor.
const MICRO: u128 = 1_000_000;

/// How the frames are spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// As they were captured, this many times as fast.
    Own {
        /// In millionths, so that a whole factor is exact.
        speed_micro: u64,
    },
    /// Evenly, frames in a second.
    Frames(Pace),
    /// As their bits fill a link of this rate.
    Bits {
        /// Bits in a second.
        rate: Pace,
        /// What each frame takes beyond its own bytes: 24 for FCS, preamble and gap; 0 at layer 2.
        overhead_bytes: u32,
    },
    /// As fast as they go.
    Top,
}

impl Timing {
    /// Returns the times of the capture, sped up; `None` unless the factor is at least 10^-6 and at most 10^6.
    pub fn own(speed: f64) -> Option<Self> {
        let micro = (speed * 1e6).round();
        (1.0..=1e12).contains(&micro).then_some(Self::Own { speed_micro: micro as u64 })
    }
}

/// The schedule of one replay over all its loops.
#[derive(Clone, Debug)]
pub struct Schedule {
    timing: Timing,
    loop_gap_ns: Option<u64>,
    /// Frames and bits of the whole replay so far.
    frames: u64,
    bits: u64,
    /// When the loop began, and its first frame's time in the capture.
    loop_ns: u64,
    first_ns: Option<u64>,
    loop_frames: u64,
    last_due_ns: u64,
    out_of_order: u64,
    untimed: u64,
}

impl Schedule {
    /// Begins a replay. Between two loops at their own timing lie `loop_gap_ns`, or else the mean gap of the loop that ends.
    pub fn new(timing: Timing, loop_gap_ns: Option<u64>) -> Self {
        Self {
            timing,
            loop_gap_ns,
            frames: 0,
            bits: 0,
            loop_ns: 0,
            first_ns: None,
            loop_frames: 0,
            last_due_ns: 0,
            out_of_order: 0,
            untimed: 0,
        }
    }

    /// Returns when the next frame is due, ns after the start: never before the one before it.
    pub fn next_due_ns(&mut self, captured_ns: Option<u64>, frame_bytes: usize) -> u64 {
        let due_ns = match self.timing {
            Timing::Own { speed_micro } => self.own_due_ns(captured_ns, speed_micro),
            Timing::Frames(pace) => pace.due_ns(self.frames),
            Timing::Bits { rate, .. } => rate.due_ns(self.bits),
            Timing::Top => 0,
        };
        if let Timing::Bits { overhead_bytes, .. } = self.timing {
            self.bits = self.bits.saturating_add((frame_bytes as u64 + u64::from(overhead_bytes)) * 8);
        }
        self.frames += 1;
        self.loop_frames += 1;
        self.last_due_ns = due_ns;
        due_ns
    }

    /// Ends a loop; the next frame is the first one of the capture again.
    pub fn begin_loop(&mut self) {
        if let Timing::Own { speed_micro } = self.timing {
            let mean_ns = (self.last_due_ns - self.loop_ns).checked_div(self.loop_frames.saturating_sub(1));
            let gap_ns = self.loop_gap_ns.map_or(mean_ns.unwrap_or(0), |gap_ns| scale(gap_ns, speed_micro));
            self.loop_ns = self.last_due_ns.saturating_add(gap_ns);
        }
        (self.first_ns, self.loop_frames) = (None, 0);
    }

    /// Returns the frames whose time in the capture was before that of a frame before them; they are due with the latter.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Returns the frames without a time, if that was asked for; they are due with the frame before them.
    pub fn untimed(&self) -> u64 {
        self.untimed
    }

    fn own_due_ns(&mut self, captured_ns: Option<u64>, speed_micro: u64) -> u64 {
        let earliest_ns = if self.loop_frames == 0 { self.loop_ns } else { self.last_due_ns };
        let Some(captured_ns) = captured_ns else {
            self.untimed += 1;
            return earliest_ns;
        };
        let first_ns = *self.first_ns.get_or_insert(captured_ns);
        let due_ns = captured_ns.checked_sub(first_ns).map(|ns| self.loop_ns.saturating_add(scale(ns, speed_micro)));
        if due_ns.is_none_or(|due_ns| due_ns < earliest_ns) {
            self.out_of_order += 1;
        }
        due_ns.unwrap_or(0).max(earliest_ns)
    }
}

fn scale(ns: u64, speed_micro: u64) -> u64 {
    u64::try_from(u128::from(ns) * MICRO / u128::from(speed_micro.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: f64) -> Pace {
        Pace::per_second(rate).unwrap()
    }

    #[test]
    fn own_timing_is_exact_at_any_speed_and_never_drifts() {
        let start = 1_700_000_000_123_456_789;
        for (speed, third) in [(1.0, 333), (3.0, 111), (0.5, 666)] {
            let mut schedule = Schedule::new(Timing::own(speed).unwrap(), None);
            for n in 0..100_000u64 {
                let due = schedule.next_due_ns(Some(start + n * 333), 60);
                assert!(due.abs_diff(n * third) <= 1, "{speed} {n} {due}");
            }
        }
        assert_eq!(Timing::own(0.0), None);
        assert_eq!(Timing::own(f64::NAN), None);
        assert_eq!(Timing::own(-1.0), None);
    }

    #[test]
    fn years_between_two_frames_lose_no_nanosecond() {
        let mut schedule = Schedule::new(Timing::own(1.0).unwrap(), None);
        assert_eq!(schedule.next_due_ns(Some(1), 60), 0);
        assert_eq!(schedule.next_due_ns(Some(u64::MAX), 60), u64::MAX - 1);
        schedule.begin_loop();
        assert_eq!(schedule.next_due_ns(Some(1), 60), u64::MAX);
    }

    #[test]
    fn loops_follow_by_the_mean_gap_or_the_one_that_is_asked_for() {
        for (gap, second) in [(None, 30), (Some(100), 120)] {
            let mut schedule = Schedule::new(Timing::own(1.0).unwrap(), gap);
            let first: Vec<u64> = [5, 10, 25].map(|at| schedule.next_due_ns(Some(at), 60)).to_vec();
            assert_eq!(first, [0, 5, 20]);
            schedule.begin_loop();
            assert_eq!([5, 10, 25].map(|at| schedule.next_due_ns(Some(at), 60)), [second, second + 5, second + 20]);
        }
    }

    #[test]
    fn times_that_go_back_are_counted_and_keep_the_order() {
        let mut schedule = Schedule::new(Timing::own(1.0).unwrap(), None);
        let due = [Some(100), Some(150), Some(90), Some(140), None, Some(160)].map(|at| schedule.next_due_ns(at, 60));
        assert_eq!(due, [0, 50, 50, 50, 50, 60]);
        assert_eq!((schedule.out_of_order(), schedule.untimed()), (2, 1));
    }

    #[test]
    fn rates_count_frames_or_bits_across_loops() {
        let mut even = Schedule::new(Timing::Frames(pace(3.0)), None);
        let mut last = 0;
        for _ in 0..1000 {
            (0..3).for_each(|_| last = even.next_due_ns(None, 60));
            even.begin_loop();
        }
        assert_eq!(last, 999_666_666_666);
        // 64 bytes with FCS at 1 Gbit/s are 1.488 million frames in a second: 672 ns each.
        let timing = Timing::Bits { rate: pace(1e9), overhead_bytes: 24 };
        let mut wire = Schedule::new(timing, None);
        let due: Vec<u64> = (0..4).map(|_| wire.next_due_ns(Some(9), 60)).collect();
        assert_eq!(due, [0, 672, 1344, 2016]);
        let mut layer_2 = Schedule::new(Timing::Bits { rate: pace(8e9), overhead_bytes: 0 }, None);
        assert_eq!([100, 1500, 60].map(|bytes| layer_2.next_due_ns(None, bytes)), [0, 100, 1600]);
    }

    #[test]
    fn top_speed_has_everything_due_at_once() {
        let mut schedule = Schedule::new(Timing::Top, None);
        assert!((0..100).all(|at| schedule.next_due_ns(Some(at), 60) == 0));
    }
}
