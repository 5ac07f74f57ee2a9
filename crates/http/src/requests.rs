//! A set of weighted requests. Owns their bytes in one buffer, so that the kernel can register it once, and the order
//! in which they are sent. Refuses weights whose cycle is too long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use thiserror::Error;

use crate::RequestTemplate;

/// Maximum length of a cycle: the sum of the weights, divided by their greatest common divisor.
pub const LONGEST_CYCLE: u64 = 1 << 22;

/// A request's place in the payload, and whether its responses have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte.
    pub from: u32,
    /// Offset after its last byte.
    pub to: u32,
    /// Whether the responses have no body, as those to HEAD.
    pub expects_no_body: bool,
}

/// Why a set of requests is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestSetError {
    /// The set is empty.
    #[error("there is no request")]
    Empty,
    /// A weight of 0. Requests are numbered from 1.
    #[error("request {0} has weight 0; remove the request or give it a weight of at least 1")]
    NoWeight(usize),
    /// The requests are longer than a 32-bit offset can address.
    #[error("the requests are longer than 4 GiB together")]
    TooLong,
    /// The cycle is longer than [`LONGEST_CYCLE`].
    #[error(
        "the weights make a cycle of {0} turns, more than {LONGEST_CYCLE}; use weights with a larger common divisor"
    )]
    CycleTooLong(u64),
}

/// The requests of a load.
#[derive(Clone, Debug)]
pub struct RequestSet {
    payload: Vec<u8>,
    pieces: Vec<Piece>,
    turns: Arc<[u32]>,
}

impl RequestSet {
    /// Creates a set from requests and their weights.
    ///
    /// # Errors
    /// Which number, size or weight is out of bounds.
    pub fn new(requests: impl IntoIterator<Item = (RequestTemplate, u32)>) -> Result<Self, RequestSetError> {
        let (mut payload, mut pieces, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (template, weight) in requests {
            if weight == 0 {
                return Err(RequestSetError::NoWeight(pieces.len() + 1));
            }
            let place = |payload: &Vec<u8>| u32::try_from(payload.len()).map_err(|_| RequestSetError::TooLong);
            let from = place(&payload)?;
            payload.extend_from_slice(template.bytes());
            pieces.push(Piece { from, to: place(&payload)?, expects_no_body: template.expects_no_body() });
            weights.push(u64::from(weight));
        }
        let divisor = weights.iter().copied().reduce(common_divisor).ok_or(RequestSetError::Empty)?;
        let cycle = weights.iter().map(|weight| weight / divisor).sum();
        if cycle > LONGEST_CYCLE {
            return Err(RequestSetError::CycleTooLong(cycle));
        }
        let turns = turns(weights.iter().map(|weight| weight / divisor), cycle);
        Ok(Self { payload, pieces, turns })
    }

    /// The bytes of all requests.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Request number `index`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Piece {
        self.pieces[index]
    }

    /// The number of requests; at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The order of requests for thread `index` of `threads`. Every thread runs through the whole cycle, so the
    /// shares do not depend on the speed of the other threads. Each thread starts at a different place, so one cycle
    /// distributed evenly over all threads also has the exact shares.
    #[must_use]
    pub fn picker(&self, index: u64, threads: u64) -> Picker {
        let offset = u128::from(index) * self.turns.len() as u128 / u128::from(threads.max(1));
        Picker { turns: Arc::clone(&self.turns), at: (offset % self.turns.len() as u128) as usize }
    }
}

/// The endless order of requests of one thread.
#[derive(Clone, Debug)]
pub struct Picker {
    turns: Arc<[u32]>,
    at: usize,
}

impl Picker {
    /// Returns the index of the next request.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends, and an iterator's answer would be an Option")]
    pub fn next(&mut self) -> usize {
        let picked = self.turns[self.at] as usize;
        self.at += 1;
        if self.at == self.turns.len() {
            self.at = 0;
        }
        picked
    }
}

/// Computes one cycle. After any number of turns each request is less than one turn away from its share: in a cycle
/// of `c`, turn `j` of a request with weight `w` is scheduled between `⌊j·c/w⌋` and `⌈(j+1)·c/w⌉`. Among the requests
/// that may go, the one with the earliest deadline goes first; this always succeeds because the shares add up to one.
fn turns(weights: impl Iterator<Item = u64>, cycle: u64) -> Arc<[u32]> {
    let weights: Vec<u64> = weights.collect();
    let until = |index: u32, turn: u64| ((turn + 1) * cycle).div_ceil(weights[index as usize]);
    let mut waiting: BinaryHeap<_> = (0..weights.len() as u32).map(|index| Reverse((0, index, 0))).collect();
    let mut open = BinaryHeap::new();
    let turn_at = |now| {
        while let Some(&Reverse((from, index, turn))) = waiting.peek() {
            if from > now {
                break;
            }
            waiting.pop();
            open.push(Reverse((until(index, turn), index, turn)));
        }
        let Reverse((_, index, turn)) = open.pop().expect("the shares add up to one turn at a time");
        waiting.push(Reverse(((turn + 1) * cycle / weights[index as usize], index, turn + 1)));
        index
    };
    (0..cycle).map(turn_at).collect()
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RequestSet, RequestSetError, LONGEST_CYCLE};
    use crate::{RequestTemplate, Url};

    fn template(method: &str, path: usize) -> RequestTemplate {
        let url = Url::parse(&format!("http://a/{path}")).unwrap();
        RequestTemplate::new(method, &url, [], None).unwrap()
    }

    fn set(weights: &[u32]) -> Result<RequestSet, RequestSetError> {
        RequestSet::new(weights.iter().enumerate().map(|(path, &weight)| (template("GET", path), weight)))
    }

    fn picked(set: &RequestSet, index: u64, threads: u64, number: usize) -> Vec<usize> {
        let mut picker = set.picker(index, threads);
        (0..number).map(|_| picker.next()).collect()
    }

    #[test]
    fn pieces_cover_the_bytes_of_each_request() {
        let set = RequestSet::new([(template("GET", 1), 1), (template("HEAD", 22), 3)]).unwrap();
        assert_eq!(set.len(), 2);
        for (index, expected) in [template("GET", 1), template("HEAD", 22)].iter().enumerate() {
            let piece = set.get(index);
            assert_eq!(&set.payload()[piece.from as usize..piece.to as usize], expected.bytes());
            assert_eq!(piece.expects_no_body, expected.expects_no_body());
        }
        assert_eq!(set.get(1).to as usize, set.payload().len());
    }

    #[test]
    fn turns_of_a_request_are_evenly_spaced() {
        assert_eq!(picked(&set(&[7]).unwrap(), 3, 4, 3), [0, 0, 0]);
        assert_eq!(picked(&set(&[2, 2, 2]).unwrap(), 0, 1, 7), [0, 1, 2, 0, 1, 2, 0]);
        let heavy = set(&[5, 1, 1]).unwrap();
        assert_eq!(picked(&heavy, 0, 1, 7), [0, 0, 0, 1, 0, 0, 2]);
    }

    #[test]
    fn invalid_sets_are_refused() {
        assert_eq!(set(&[]).unwrap_err(), RequestSetError::Empty);
        assert_eq!(set(&[1, 0]).unwrap_err(), RequestSetError::NoWeight(2));
        let most = (LONGEST_CYCLE - 1) as u32;
        assert_eq!(set(&[most, 2]).unwrap_err(), RequestSetError::CycleTooLong(LONGEST_CYCLE + 1));
        assert_eq!(picked(&set(&[u32::MAX, u32::MAX]).unwrap(), 1, 2, 2), [1, 0]);
    }

    proptest! {
        #[test]
        fn every_request_stays_within_one_turn_of_its_share(weights in proptest::collection::vec(1u32..40, 1..12)) {
            let set = set(&weights).unwrap();
            let sum: u32 = weights.iter().sum();
            let mut counts = vec![0; weights.len()];
            for (turn, index) in picked(&set, 0, 1, sum as usize).into_iter().enumerate() {
                counts[index] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    let off = count * i64::from(sum) - (turn as i64 + 1) * i64::from(*weight);
                    prop_assert!(off.abs() < i64::from(sum), "after {} turns: {:?}", turn + 1, counts);
                }
            }
            prop_assert_eq!(counts, weights.iter().map(|&weight| i64::from(weight)).collect::<Vec<_>>());
        }

        #[test]
        fn a_cycle_over_all_threads_has_the_exact_shares(
            weights in proptest::collection::vec(1u32..20, 1..8), threads in 1u64..9,
        ) {
            let set = set(&weights).unwrap();
            let sum = u64::from(weights.iter().sum::<u32>());
            let mut counts = vec![0; weights.len()];
            let until = |index: u64| index * sum / threads;
            for index in 0..threads {
                for request in picked(&set, index, threads, (until(index + 1) - until(index)) as usize) {
                    counts[request] += 1;
                }
            }
            let divisor = weights.iter().copied().map(u64::from).reduce(super::common_divisor).unwrap();
            prop_assume!(divisor == 1);
            let expected: Vec<u64> = weights.iter().map(|&weight| u64::from(weight)).collect();
            prop_assert_eq!(counts, expected);
        }
    }
}
