//! A link in virtual time: exact counts for a seed, exact times for a rate and a delay.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::emulator::frame::tests::datagram;

const MS: u64 = 1_000_000;

/// Sends `count` numbered datagrams, one each `gap_ns`, and returns the numbers and times of those that left.
fn run(effects: LinkEffects, seed: u64, count: u32, gap_ns: u64, length: usize) -> (Vec<(u32, u64)>, LinkCounts) {
    let mut link = Link::new(effects, seed);
    let mut left = Vec::new();
    let mut drain = |link: &mut Link, until_ns: u64| {
        while let Some(due_ns) = link.next_due_ns().filter(|due_ns| *due_ns <= until_ns) {
            while let Some((due_ns, bytes)) = link.poll_due(due_ns) {
                left.push((u32::from_be_bytes(bytes[42..46].try_into().unwrap()), due_ns));
                link.recycle(bytes);
            }
        }
    };
    for number in 0..count {
        let now_ns = u64::from(number) * gap_ns;
        drain(&mut link, now_ns);
        let bytes = datagram(1000, number, length);
        link.handle_frame(now_ns, &Arrival { bytes: &bytes, ..Arrival::default() });
    }
    drain(&mut link, u64::MAX);
    let counts = link.counts();
    assert_eq!(counts.all, counts.udp);
    assert_eq!(link.held_bytes, 0);
    (left, counts)
}

#[test]
fn delay_is_exact() {
    let (left, counts) = run(LinkEffects { delay_us: 20_000, ..LinkEffects::default() }, 1, 100, MS, 60);
    assert_eq!(left, (0..100).map(|number| (number, u64::from(number) * MS + 20 * MS)).collect::<Vec<_>>());
    assert_eq!((counts.all.arrived, counts.all.forwarded), (100, 100));
}

#[test]
fn jitter_keeps_the_order_and_its_bounds() {
    let effects = LinkEffects { delay_us: 5000, jitter_us: 2000, ..LinkEffects::default() };
    let (left, _) = run(effects, 3, 10_000, 3 * MS, 60);
    assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    let delays: Vec<u64> = left.iter().map(|(number, due_ns)| due_ns - u64::from(*number) * 3 * MS).collect();
    assert!(delays.iter().all(|delay_ns| (3 * MS..=7 * MS).contains(delay_ns)));
    let mean_ns = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!((5 * MS - MS / 20..5 * MS + MS / 20).contains(&mean_ns), "{mean_ns}");
    assert!(*delays.iter().min().unwrap() < 3 * MS + MS / 10);
}

#[test]
fn jitter_of_dense_traffic_keeps_its_mean_and_its_spread() {
    const GAP_NS: u64 = 10_000;
    let effects = LinkEffects { delay_us: 5000, jitter_us: 2000, ..LinkEffects::default() };
    let (left, _) = run(effects, 3, 2_000_000, GAP_NS, 60);
    assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
    let delays: Vec<u64> = left.iter().map(|(number, due_ns)| due_ns - u64::from(*number) * GAP_NS).collect();
    assert!(delays.iter().all(|delay_ns| (3 * MS..=7 * MS).contains(delay_ns)));
    let mean_ns = delays.iter().sum::<u64>() / delays.len() as u64;
    assert!((4_850_000..5_150_000).contains(&mean_ns), "{mean_ns}");
    for quarter in 0..4 {
        let bounds = 3 * MS + quarter * MS..3 * MS + (quarter + 1) * MS;
        let share = delays.iter().filter(|delay_ns| bounds.contains(delay_ns)).count() as f64 / delays.len() as f64;
        assert!((0.22..0.28).contains(&share), "{share} of the delays are in {bounds:?}");
    }
}

#[test]
fn rate_is_exact_to_a_nanosecond_over_a_million_frames() {
    // 64 bytes at 3 Gbit/s take 170.67 ns.
    let effects = LinkEffects { rate_bps: Some(3_000_000_000), queue_bytes: u64::MAX, ..LinkEffects::default() };
    let (left, _) = run(effects, 1, 1_000_000, 1, 64);
    assert_eq!(left.last().unwrap().1, 1_000_000u64 * 512 / 3);
}

#[test]
fn goodput_is_what_the_headers_leave_of_the_rate() {
    const SECOND_NS: u64 = 1_000 * MS;
    let (frame, payload) = (1442, 1400);
    for rate_bps in [10_000_000, 100_000_000, 1_000_000_000] {
        // A queue of 10 ms.
        let queue_bytes = rate_bps / 800;
        let effects = LinkEffects { rate_bps: Some(rate_bps), queue_bytes, ..LinkEffects::default() };
        // A third more than the link takes, for two seconds.
        let gap_ns = frame * 8 * SECOND_NS * 3 / 4 / rate_bps;
        let (left, counts) = run(effects, 1, (2 * SECOND_NS / gap_ns) as u32, gap_ns, frame as usize);
        assert!(counts.all.queue_full > 0 && counts.all.arrived == counts.all.forwarded + counts.all.queue_full);
        let in_second = left.iter().filter(|(_, at_ns)| (SECOND_NS..2 * SECOND_NS).contains(at_ns)).count() as u64;
        // To the frame: of the headers' share one that ends at the second's edge may be missing.
        let due = rate_bps / 8 / frame;
        assert!((due..=due + 1).contains(&in_second), "{in_second} of {due} frames at {rate_bps} bit/s");
        let goodput_bps = (in_second * payload * 8) as f64;
        assert!((goodput_bps / (rate_bps as f64 * payload as f64 / frame as f64) - 1.0).abs() < 0.002);
    }
}

#[test]
fn queue_takes_its_bytes_and_no_more() {
    // 100 kbit/s, a burst of 100 frames of 125 bytes: one is being sent, 39 wait behind the rest of it.
    let effects = LinkEffects { rate_bps: Some(100_000), queue_bytes: 40 * 125, ..LinkEffects::default() };
    let (left, counts) = run(effects, 1, 100, 0, 125);
    assert_eq!((counts.all.forwarded, counts.all.queue_full), (40, 60));
    assert_eq!(left.last().unwrap(), &(39, 400 * MS));
    // A frame longer than the queue leaves an idle line all the same.
    let (_, counts) = run(LinkEffects { queue_bytes: 10, ..effects }, 1, 3, 0, 125);
    assert_eq!((counts.all.forwarded, counts.all.queue_full), (1, 2));
}

#[test]
fn faults_are_counted_exactly_and_repeat_with_their_seed() {
    let effects = LinkEffects {
        delay_us: 1000,
        loss: 0.05,
        loss_burst: 3.0,
        reorder: 0.02,
        duplicate: 0.01,
        ..LinkEffects::default()
    };
    let (left, counts) = run(effects, 42, 20_000, MS / 10, 60);
    assert_eq!(run(effects, 42, 20_000, MS / 10, 60), (left.clone(), counts));
    assert_ne!(run(effects, 43, 20_000, MS / 10, 60).1, counts);
    // As a receiver counts: a number that never came is lost, a second one a duplicate; one below the next expected
    // number is reordered (RFC 4737).
    let (mut seen, mut next, mut duplicates, mut reordered) = (HashSet::new(), 0, 0, 0);
    for (number, _) in &left {
        if !seen.insert(*number) {
            duplicates += 1;
        } else if *number < next {
            reordered += 1;
        } else {
            next = *number + 1;
        }
    }
    assert_eq!(counts.all.lost, 20_000 - seen.len() as u64);
    assert_eq!(counts.all.duplicated, duplicates);
    assert_eq!(counts.all.reordered, reordered);
    assert_eq!((counts.all.lost, counts.all.duplicated, counts.all.reordered), (990, 199, 395));
}

#[test]
fn reordering_is_within_a_flow() {
    let mut link = Link::new(LinkEffects { reorder: 1.0, ..LinkEffects::default() }, 1);
    let (one, other) = (datagram(1, 0, 60), datagram(2, 0, 60));
    link.handle_frame(0, &Arrival { bytes: &one, ..Arrival::default() });
    link.effects.reorder = 0.0;
    link.handle_frame(1, &Arrival { bytes: &other, ..Arrival::default() });
    assert_eq!(link.poll_due(1).map(|(_, bytes)| bytes), Some(other));
    assert_eq!(link.poll_due(REORDER_WAIT_NS - 1), None);
    assert_eq!(link.next_due_ns(), Some(REORDER_WAIT_NS));
    assert_eq!(link.poll_due(REORDER_WAIT_NS).map(|(_, bytes)| bytes), Some(one));
    assert_eq!(link.counts().all.reordered, 0);
}

#[test]
fn corruption_inverts_one_bit_behind_the_header() {
    let mut link = Link::new(LinkEffects { corrupt: 1.0, ..LinkEffects::default() }, 9);
    let mut places = BTreeMap::new();
    for _ in 0..2000 {
        let sent = datagram(1, 7, 60);
        link.handle_frame(0, &Arrival { bytes: &sent, ..Arrival::default() });
        let (_, left) = link.poll_due(0).unwrap();
        let changed: Vec<usize> = (0..60).filter(|index| sent[*index] != left[*index]).collect();
        assert_eq!(changed.len(), 1);
        assert_eq!((sent[changed[0]] ^ left[changed[0]]).count_ones(), 1);
        *places.entry(changed[0]).or_insert(0) += 1;
    }
    assert_eq!(*places.first_key_value().unwrap().0, UNCORRUPTED_BYTES);
    assert_eq!(places.len(), 60 - UNCORRUPTED_BYTES);
    assert_eq!(link.counts().all.corrupted, 2000);
}

#[test]
fn memory_is_bounded() {
    let mut link = Link::new(LinkEffects { delay_us: 1 << 40, reorder: 0.5, ..LinkEffects::default() }, 1);
    let frame = vec![0; 1 << 20];
    for _ in 0..300 {
        link.handle_frame(0, &Arrival { bytes: &frame, ..Arrival::default() });
    }
    assert!(link.held_bytes <= MOST_HELD_BYTES);
    assert!(link.counts().all.queue_full >= 44);
}

fn any_effects() -> impl Strategy<Value = LinkEffects> {
    let share = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64, Just(f64::NAN), Just(-1.0), Just(7.0)];
    let times = (any::<u64>(), any::<u64>(), proptest::option::of(any::<u64>()), any::<u64>());
    (times, share(), any::<f64>(), share(), share(), share()).prop_map(
        |((delay_us, jitter_us, rate_bps, queue_bytes), loss, loss_burst, reorder, duplicate, corrupt)| LinkEffects {
            rate_bps,
            queue_bytes,
            delay_us,
            jitter_us,
            loss,
            loss_burst,
            reorder,
            duplicate,
            corrupt,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_frames_keep_the_books_balanced(
        effects in any_effects(),
        seed in any::<u64>(),
        frames in proptest::collection::vec(
            (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200), proptest::option::of(any::<(u16, u16)>()),
             proptest::option::of(any::<(u16, u16)>())),
            0..60,
        ),
    ) {
        let mut link = Link::new(effects, seed);
        for (now_ns, bytes, tag, checksum) in &frames {
            link.handle_frame(*now_ns, &Arrival { bytes, tag: *tag, checksum: *checksum });
            while let Some((_, bytes)) = link.poll_due(*now_ns) {
                link.recycle(bytes);
            }
        }
        while link.poll_due(u64::MAX).is_some() {}
        let all = link.counts().all;
        prop_assert_eq!(all.arrived, frames.len() as u64);
        prop_assert_eq!(all.arrived + all.duplicated, all.lost + all.queue_full + all.forwarded);
        prop_assert_eq!(link.held_bytes, 0);
        prop_assert_eq!(link.next_due_ns(), None);
    }
}
