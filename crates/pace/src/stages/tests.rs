//! Tests of the curve against arithmetic of arbitrary precision. Both share only the definition: arrival `n` is due
//! at the last ns at which the area is at most `n`.

use num_bigint::BigInt;
use proptest::prelude::*;

use super::{Stage, Stages, StagesError};
use crate::Pace;

const SECOND_NS: u64 = 1_000_000_000;

fn stage(from_per_s: f64, to_per_s: f64, seconds: u64) -> Stage {
    Stage { from_per_s, to_per_s, duration_ns: seconds * SECOND_NS }
}

fn curve(stages: &[Stage]) -> Stages {
    Stages::new(stages.iter().copied()).unwrap()
}

/// Whether the area after `time_ns` is more than `n`, all denominators multiplied out.
fn exceeds(stages: &[Stage], time_ns: u64, n: u64) -> bool {
    let big = |number: u64| BigInt::from(number);
    // Area as `over` / `under`, in 10^-15 arrivals.
    let (mut over, mut under) = (big(0), big(1));
    let mut left_ns = time_ns;
    for stage in stages.iter().filter(|stage| stage.duration_ns > 0) {
        let time_ns = left_ns.min(stage.duration_ns);
        left_ns -= time_ns;
        let micro = |per_s: f64| big((per_s * 1e6).round() as u64);
        let (from, to) = (micro(stage.from_per_s), micro(stage.to_per_s));
        // from·t + (to - from)·t²/2d
        let (time, twice) = (big(time_ns), big(stage.duration_ns) * 2);
        let own = &from * &time * &twice + (to - &from) * &time * &time;
        over = over * &twice + own * &under;
        under *= twice;
    }
    over > under * big(n) * big(1_000_000_000_000_000)
}

#[test]
fn a_constant_stage_is_a_pace_with_an_end() {
    let pace = Pace::per_second(3.0).unwrap();
    let stages = curve(&[stage(3.0, 3.0, 86_400)]);
    assert_eq!((stages.count(), stages.duration_ns()), (3 * 86_400, 86_400 * SECOND_NS));
    for n in [0, 1, 2, 3, 1000, 3 * 86_400 - 1, 3 * 86_400] {
        assert_eq!(stages.due_ns(n), pace.due_ns(n), "{n}");
    }
    assert_eq!(stages.due_ns(u64::MAX), 86_400 * SECOND_NS, "beyond it is its end");
    assert_eq!(stages.count_within(10 * SECOND_NS), 30);
}

#[test]
fn a_ramp_has_the_area_under_it() {
    let stages = curve(&[stage(0.0, 1000.0, 10), stage(1000.0, 1000.0, 60)]);
    assert_eq!(stages.count(), 5000 + 60_000);
    assert_eq!(stages.count_within(10 * SECOND_NS), 5000);
    assert_eq!(stages.due_ns(0), 0);
    // 50 t² arrivals after t seconds.
    assert_eq!(stages.due_ns(50), SECOND_NS);
    assert_eq!(stages.due_ns(1250), 5 * SECOND_NS);
    assert_eq!(stages.due_ns(5000), 10 * SECOND_NS);
    assert_eq!(stages.due_ns(5001), 10_001_000_000);
}

#[test]
fn a_ramp_down_is_a_ramp_up_seen_from_its_end() {
    let (up, down) = (curve(&[stage(0.0, 1000.0, 10)]), curve(&[stage(1000.0, 0.0, 10)]));
    assert_eq!((up.count(), down.count()), (5000, 5000));
    for n in 1..5000 {
        let from_end_ns = 10 * SECOND_NS - down.due_ns(5000 - n);
        assert!((0..=1).contains(&(from_end_ns - up.due_ns(n))), "{n}");
    }
    assert_eq!(down.due_ns(5000), 10 * SECOND_NS);
}

#[test]
fn nothing_is_due_in_a_pause() {
    let stages = curve(&[
        stage(0.0, 0.0, 5),
        stage(10.0, 10.0, 1),
        stage(0.0, 0.0, 5),
        stage(10.0, 10.0, 1),
        stage(0.0, 0.0, 5),
    ]);
    assert_eq!(stages.count(), 20);
    assert_eq!(
        (stages.due_ns(0), stages.due_count(5 * SECOND_NS - 1), stages.due_count(5 * SECOND_NS)),
        (5 * SECOND_NS, 0, 1)
    );
    assert_eq!((stages.due_ns(9), stages.due_ns(10)), (5_900_000_000, 11 * SECOND_NS));
    assert_eq!((stages.due_ns(19), stages.due_ns(20)), (11_900_000_000, 17 * SECOND_NS));
    let times: Vec<u64> = std::iter::successors(Some(stages.every(8, 1)), |last| {
        let mut next = last.clone();
        next.advance();
        Some(next)
    })
    .map(|arrivals| arrivals.due_ns() / 1_000_000)
    .take(4)
    .collect();
    assert_eq!(times, [5800, 5900, 11_000, 11_100]);
}

#[test]
fn stages_that_take_no_time_are_none() {
    assert_eq!(curve(&[stage(7.0, 7.0, 0), stage(5.0, 5.0, 2), stage(9.0, 1.0, 0)]), curve(&[stage(5.0, 5.0, 2)]));
}

#[test]
fn invalid_stages_are_refused() {
    for per_s in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.000_001e12, 1e-7] {
        for (from, to) in [(per_s, 1.0), (1.0, per_s)] {
            let refused = Stages::new([stage(1.0, 1.0, 1), stage(from, to, 1)]);
            assert!(matches!(refused, Err(StagesError::Rate { stage: 2, .. })), "{per_s}");
        }
    }
    for none in [&[][..], &[stage(0.0, 0.0, 10)], &[stage(100.0, 0.0, 0)]] {
        assert_eq!(Stages::new(none.iter().copied()), Err(StagesError::NoArrivals));
    }
    let longest = Stage { from_per_s: 1.0, to_per_s: 0.0, duration_ns: u64::MAX };
    assert_eq!(Stages::new([longest]).unwrap().due_ns(u64::MAX), u64::MAX);
    assert_eq!(Stages::new([longest, longest]), Err(StagesError::TooMuch));
    assert_eq!(Stages::new([Stage { from_per_s: 1e12, ..longest }]), Err(StagesError::TooMuch));
    let message = StagesError::Rate { stage: 2, per_s: -1.0 }.to_string();
    assert_eq!(message, "stage 2: a rate of -1/s; it has to be 0 or between 0.000001/s and 10^12/s");
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(1000.0),
        (1u64..1_000_000).prop_map(|micro| micro as f64 / 1e6),
        (1u64..100_000).prop_map(|whole| whole as f64),
        0.001f64..1e7,
    ]
}

fn any_stage() -> impl Strategy<Value = Stage> {
    let duration = prop_oneof![
        Just(SECOND_NS),
        (0u64..100).prop_map(|ms| ms * 1_000_000),
        0u64..100_000,
        0u64..1_000_000_000_000,
        0u64..10_000_000_000_000_000
    ];
    (rate(), rate(), any::<bool>(), duration).prop_map(|(from_per_s, to, changes, duration_ns)| Stage {
        from_per_s,
        to_per_s: if changes { to } else { from_per_s },
        duration_ns,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn due_times_and_counts_are_exact(
        stages in proptest::collection::vec(any_stage(), 1..6),
        parts in proptest::collection::vec(0.0f64..1.0, 20),
    ) {
        let Ok(curve) = Stages::new(stages.iter().copied()) else { return Ok(()) };
        let count = curve.count();
        prop_assert!(exceeds(&stages, curve.duration_ns(), count - 1) && !exceeds(&stages, u64::MAX, count));
        let near_ends = [0, 1, 2, count - 1, count.saturating_sub(2)];
        for n in parts.iter().map(|part| (part * count as f64) as u64).chain(near_ends).filter(|&n| n < count) {
            let due_ns = curve.due_ns(n);
            prop_assert!(!exceeds(&stages, due_ns, n) && exceeds(&stages, due_ns + 1, n), "{} at {}", n, due_ns);
            prop_assert!(curve.due_count(due_ns) > n);
            prop_assert!(due_ns == 0 || curve.due_count(due_ns - 1) <= n);
        }
        for elapsed_ns in parts.iter().map(|part| (part * curve.duration_ns() as f64) as u64) {
            let due = curve.due_count(elapsed_ns);
            prop_assert!(!exceeds(&stages, elapsed_ns + 1, due));
            prop_assert!(due == 0 || exceeds(&stages, elapsed_ns + 1, due - 1));
        }
    }

    #[test]
    fn going_on_gives_the_same_times(
        stages in proptest::collection::vec(any_stage(), 1..6), first in 0u64..50, step in 1u64..2000,
    ) {
        let Ok(curve) = Stages::new(stages) else { return Ok(()) };
        let mut arrivals = curve.every(first, step);
        for turn in 0..200 {
            prop_assert_eq!(arrivals.due_ns(), curve.due_ns(first + turn * step));
            arrivals.advance();
        }
    }

    #[test]
    fn one_stage_is_a_pace(rate in 0.001f64..1e9, n in 0u64..1_000_000) {
        let curve = Stages::new([Stage { from_per_s: rate, to_per_s: rate, duration_ns: 1_000_000_000_000 }]).unwrap();
        let pace = Pace::per_second(rate).unwrap();
        prop_assert_eq!(curve.count(), pace.count_within(curve.duration_ns()));
        if n < curve.count() {
            prop_assert_eq!(curve.due_ns(n), pace.due_ns(n));
        }
    }
}
