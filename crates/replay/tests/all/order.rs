//! Requests in the order of their starts: within the window, beyond it, within bounds, and as they come.

use std::collections::VecDeque;
use std::io;
use std::task::Poll;

use leadline_replay::{Cause, Causes, OrderLimits, Ordered, Recorded, Source, SourceError};

const SECOND: i64 = 1_000_000_000;

/// Gives requests; `None` stands for a reader that has nothing yet.
#[derive(Default)]
struct Made {
    rest: VecDeque<Option<Recorded>>,
    pulled: usize,
    causes: Causes,
}

impl Source for Made {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        match self.rest.pop_front() {
            Some(None) => Err(SourceError::Io(io::ErrorKind::WouldBlock.into())),
            Some(request) => {
                self.pulled += 1;
                Ok(request)
            }
            None => Ok(None),
        }
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}

/// A request with its number as its session.
fn request(start_ns: i64, lead_ns: u64, precision_ns: u32, number: u64) -> Recorded {
    Recorded { start_ns, lead_ns, precision_ns, session: number, ..Recorded::default() }
}

fn made(requests: impl IntoIterator<Item = Recorded>) -> Made {
    Made { rest: requests.into_iter().map(Some).collect(), ..Made::default() }
}

fn order(requests: Vec<Recorded>, limits: OrderLimits, seed: u64) -> (Vec<(i64, u64)>, u64) {
    let mut ordered = Ordered::new(made(requests), limits, seed);
    let given = std::iter::from_fn(|| ordered.next().expect("it can be read"));
    let given: Vec<_> = given.map(|recorded| (recorded.start_ns, recorded.session)).collect();
    assert!(given.windows(2).all(|pair| pair[0].0 <= pair[1].0), "starts never go back");
    (given, ordered.causes().count(Cause::OutOfOrder))
}

#[test]
fn requests_are_sorted_by_start_and_equal_ones_keep_their_order() {
    let exact = |start_ns, number| request(start_ns, 0, 1, number);
    let requests = vec![exact(50, 0), exact(20, 1), exact(50, 2), exact(10, 3), exact(20, 4)];
    let (given, late) = order(requests, OrderLimits::default(), 1);
    assert_eq!(given, [(10, 3), (20, 1), (20, 4), (50, 0), (50, 2)]);
    assert_eq!(late, 0);
}

#[test]
fn what_lies_further_back_is_given_at_once_and_counted() {
    let exact = |second: i64, number| request(second * SECOND, 0, 1, number);
    let requests = vec![exact(100, 0), exact(130, 1), exact(170, 2), exact(50, 3), exact(120, 4), exact(171, 5)];
    let (given, late) = order(requests, OrderLimits::default(), 1);
    assert_eq!(given.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 3, 4, 1, 2, 5]);
    assert_eq!((given[1].0, late), (100 * SECOND, 1), "it takes the time of the request before it");
}

#[test]
fn whole_seconds_are_spread_uniformly_and_lines_keep_their_order() {
    let lines =
        |count: u64| (0..count).map(|number| request((number / 1000) as i64 * SECOND, 0, 1_000_000_000, number));
    let (given, late) = order(lines(10_000).collect(), OrderLimits::default(), 1);
    assert_eq!(late, 0);
    assert!(given.iter().enumerate().all(|(index, (_, number))| *number == index as u64));
    assert!(given.iter().all(|(start_ns, number)| start_ns / SECOND == (number / 1000) as i64));
    let mut tenths = [0_u32; 10];
    given.iter().for_each(|(start_ns, _)| tenths[(start_ns % SECOND / (SECOND / 10)) as usize] += 1);
    // 1000 each; four standard deviations of a binomial count are 120.
    assert!(tenths.iter().all(|count| (880..1120).contains(count)), "{tenths:?}");
    // Poisson: gaps have the mean 1 ms and as large a standard deviation, where evenly spread ones have none.
    let gaps: Vec<f64> = given.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e6).collect();
    let variance = gaps.iter().map(|gap| (gap - 1.0) * (gap - 1.0)).sum::<f64>() / gaps.len() as f64;
    assert!((0.9..1.1).contains(&variance), "{variance}");
    assert_eq!(order(lines(10_000).collect(), OrderLimits::default(), 1).0, given, "the same seed gives the same");
    assert_ne!(order(lines(10_000).collect(), OrderLimits::default(), 2).0, given);
    let narrow = OrderLimits { window_ns: 0, ..OrderLimits::default() };
    assert_eq!(order(lines(10_000).collect(), narrow, 1).0, given, "and so does another window");
}

#[test]
fn ends_of_whole_seconds_are_spread_before_durations_are_subtracted() {
    // Ends in lines' order, a request every 10 ms, each of which took from 0 to 9 s.
    let lines: Vec<_> = (0..3000_u64)
        .map(|number| {
            let (end_ns, lead_ns) = ((number / 100) as i64 * SECOND, number * 7919 % 9000 * 1_000_000);
            request(end_ns - lead_ns as i64, lead_ns, 1_000_000_000, number)
        })
        .collect();
    let (mut given, late) = order(lines.clone(), OrderLimits::default(), 5);
    assert_eq!((given.len(), late), (3000, 0));
    given.sort_by_key(|(_, number)| *number);
    let ends: Vec<i64> = given.iter().zip(&lines).map(|((start_ns, _), line)| start_ns + line.lead_ns as i64).collect();
    assert!(ends.windows(2).all(|pair| pair[0] <= pair[1]), "lines were written in this order");
    assert!(ends.iter().enumerate().all(|(number, end_ns)| end_ns / SECOND == number as i64 / 100));
}

#[test]
fn bounds_of_memory_are_kept() {
    for (precision_ns, lead_ns) in [(1, 0), (1_000_000_000, 0), (1_000_000_000, 5_000_000_000)] {
        let lines = (0..2000_u64).map(|number| request(number as i64 * 1_000_000, lead_ns, precision_ns, number));
        let mut lines: Vec<_> = lines.collect();
        lines.iter_mut().filter(|_| precision_ns > 1).for_each(|line| line.start_ns -= line.start_ns % SECOND);
        for limits in [
            OrderLimits { max_requests: 20, ..OrderLimits::default() },
            OrderLimits { max_bytes: 20 * size_of::<Recorded>(), ..OrderLimits::default() },
        ] {
            let mut ordered = Ordered::new(made(lines.clone()), limits, 1);
            let mut given = 0;
            while ordered.next().expect("it can be read").is_some() {
                given += 1;
                assert!(ordered.source().pulled - given <= 22, "{} of {given}", ordered.source().pulled);
            }
            assert_eq!(given, 2000);
        }
    }
}

#[test]
fn one_wrong_date_ends_no_order() {
    let exact = |second: i64, number| request(second * SECOND, 0, 1, number);
    let mut requests: Vec<_> = (0..100).map(|number| exact(1000 + (number ^ 1) as i64, number)).collect();
    requests.insert(50, exact(9_000_000_000, 1000));
    let (given, late) = order(requests, OrderLimits::default(), 1);
    assert_eq!(late, 0);
    assert_eq!(given[100], (9_000_000_000 * SECOND, 1000));
    // A quiet hour is no wrong date: what was before it is given as soon as the second request after it is read.
    let mut requests: Vec<_> = (0..5).map(|number| exact(number as i64, number)).collect();
    requests.extend((5..7).map(|number| exact(3600 + number as i64, number)));
    let mut ordered = Ordered::new(made(requests), OrderLimits::default(), 1);
    assert_eq!(ordered.next().expect("it can be read").map(|recorded| recorded.session), Some(0));
    assert_eq!(ordered.source().pulled, 7);
}

#[test]
fn a_source_that_is_followed_empties_its_window_though_no_line_comes() {
    let mut source = made([request(10 * SECOND, 0, 1, 0), request(9 * SECOND, 0, 1, 1)]);
    source.rest.extend([None, None, None]);
    source.rest.push_back(Some(request(17 * SECOND, 0, 1_000_000_000, 2)));
    source.rest.extend([None, None]);
    let limits = OrderLimits { window_ns: 5 * SECOND, ..OrderLimits::default() };
    let mut ordered = Ordered::new(source, limits, 1);
    let mut poll = |now_s: u64| {
        let polled = ordered.poll(now_s * 1_000_000_000).expect("it can be read");
        (polled.map(|request| request.map(|request| request.session)), ordered.due_in_ns().map(|ns| ns / 1_000_000_000))
    };
    assert_eq!(poll(1000), (Poll::Pending, Some(4)), "the first one begins 1 s before the latest, the window is 5 s");
    assert_eq!(poll(1003), (Poll::Pending, Some(1)));
    assert_eq!(poll(1004), (Poll::Ready(Some(1)), Some(1)));
    assert_eq!(poll(1005).0, Poll::Ready(Some(0)));
    assert_eq!(poll(1005), (Poll::Pending, None));
    assert_eq!(poll(1006), (Poll::Pending, Some(6)), "its second has to be over, too");
    assert_eq!(poll(1012).0, Poll::Ready(Some(2)));
    assert_eq!(poll(1012).0, Poll::Pending);
    assert_eq!(poll(1012).0, Poll::Ready(None));
}
