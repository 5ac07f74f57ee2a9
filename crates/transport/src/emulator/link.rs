//! The frames of one direction from their arrival to their departure.

use std::collections::VecDeque;

use leadline_wire::{FrameCounts, LinkCounts, LinkEffects};

use super::frame::{flow_of, write_frame, Arrival, Flow};
use super::jitter::Jitter;
use super::loss::Loss;
use super::random::Random;

/// The most bytes that one direction holds, in its queue, its delay and held back together. A frame beyond counts as
/// `queue_full`.
pub const MOST_HELD_BYTES: u64 = 256 << 20;
/// How long a frame is held back for a later one of its flow; afterwards it leaves, and is not reordered.
pub const REORDER_WAIT_NS: u64 = 100_000_000;

/// Buffers that are kept for further frames.
const SPARE_BUFFERS: usize = 4096;
/// The Ethernet header is never corrupted: a frame with another address would be a lost one.
const UNCORRUPTED_BYTES: usize = 14;

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    effects: LinkEffects,
    loss: Loss,
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
    jitter: Jitter,
    rate: Option<Serialiser>,
    /// Frames that leave, in order of their times, which never decrease.
    line: VecDeque<ScheduledFrame>,
    last_due_ns: u64,
    held_back: VecDeque<HeldBack>,
    held_bytes: u64,
    counts: LinkCounts,
    spare: Vec<Vec<u8>>,
}

/// A frame with the time at which it leaves.
#[derive(Debug)]
struct ScheduledFrame {
    due_ns: u64,
    bytes: Vec<u8>,
    is_udp: bool,
}

/// A frame that waits for a later one of its flow.
#[derive(Debug)]
struct HeldBack {
    until_ns: u64,
    flow: Flow,
    bytes: Vec<u8>,
}

impl Link {
    /// Creates a direction. Two directions of one link need different seeds.
    #[must_use]
    pub fn new(effects: LinkEffects, seed: u64) -> Self {
        Self {
            effects,
            loss: Loss::new(effects.loss, effects.loss_burst, Random::of(seed, 0)),
            reorder: Random::of(seed, 1),
            duplicate: Random::of(seed, 2),
            corrupt: Random::of(seed, 3),
            jitter: Jitter::new(effects.jitter_us.saturating_mul(1000), Random::of(seed, 4)),
            rate: effects.rate_bps.filter(|rate| *rate > 0).map(Serialiser::new),
            line: VecDeque::new(),
            last_due_ns: 0,
            held_back: VecDeque::new(),
            held_bytes: 0,
            counts: LinkCounts::default(),
            spare: Vec::new(),
        }
    }

    /// Takes a frame that arrived at `now_ns`.
    pub fn handle_frame(&mut self, now_ns: u64, arrival: &Arrival<'_>) {
        self.release_overdue(now_ns);
        let mut bytes = self.spare.pop().unwrap_or_default();
        write_frame(arrival, &mut bytes);
        let flow = flow_of(&bytes);
        let length = bytes.len() as u64;
        self.count(flow.is_udp, |counts| {
            counts.arrived += 1;
            counts.arrived_bytes += length;
        });
        if self.loss.is_lost() {
            self.count(flow.is_udp, |counts| counts.lost += 1);
            return self.recycle(bytes);
        }
        if self.reorder.chance(self.effects.reorder) && self.held_bytes + length <= MOST_HELD_BYTES {
            self.held_bytes += length;
            let until_ns = now_ns.saturating_add(REORDER_WAIT_NS);
            return self.held_back.push_back(HeldBack { until_ns, flow, bytes });
        }
        if self.enqueue(now_ns, flow, bytes) {
            self.release_overtaken(now_ns, flow);
        }
    }

    /// Returns when a frame leaves next, ns.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let held_ns = self.held_back.front().map(|held| held.until_ns);
        let due_ns = self.line.front().map(|scheduled| scheduled.due_ns);
        due_ns.into_iter().chain(held_ns).min()
    }

    /// Returns a frame that leaves by `now_ns`, with the time at which it was due; `None` if there is none. Give its
    /// buffer back with `recycle`.
    pub fn poll_due(&mut self, now_ns: u64) -> Option<(u64, Vec<u8>)> {
        self.release_overdue(now_ns);
        if self.line.front()?.due_ns > now_ns {
            return None;
        }
        let ScheduledFrame { due_ns, bytes, is_udp } = self.line.pop_front()?;
        let length = bytes.len() as u64;
        self.held_bytes -= length;
        self.count(is_udp, |counts| {
            counts.forwarded += 1;
            counts.forwarded_bytes += length;
        });
        Some((due_ns, bytes))
    }

    /// Takes the buffer of a frame that has left.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            self.spare.push(bytes);
        }
    }

    /// Returns what happened so far. The fields beside `all` and `udp` are the forwarder's.
    #[must_use]
    pub fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// Puts a frame into the queue, and its duplicate behind it; false if there was no room for it.
    fn enqueue(&mut self, now_ns: u64, flow: Flow, bytes: Vec<u8>) -> bool {
        let is_duplicated = self.duplicate.chance(self.effects.duplicate);
        let copy = is_duplicated.then(|| {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clone_from(&bytes);
            copy
        });
        if !self.send(now_ns, flow, bytes) {
            self.count(flow.is_udp, |counts| counts.queue_full += 1);
            copy.into_iter().for_each(|copy| self.recycle(copy));
            return false;
        }
        if copy.is_some_and(|copy| self.send(now_ns, flow, copy)) {
            self.count(flow.is_udp, |counts| counts.duplicated += 1);
        }
        true
    }

    /// Gives a frame its time of departure; false if the queue is full.
    fn send(&mut self, now_ns: u64, flow: Flow, mut bytes: Vec<u8>) -> bool {
        let length = bytes.len() as u64;
        let has_room = self.held_bytes + length <= MOST_HELD_BYTES;
        let sent_ns = match &mut self.rate {
            _ if !has_room => None,
            Some(rate) => rate.send(now_ns, length, self.effects.queue_bytes),
            None => Some(now_ns),
        };
        let Some(sent_ns) = sent_ns else {
            self.recycle(bytes);
            return false;
        };
        if self.corrupt.chance(self.effects.corrupt) && bytes.len() > UNCORRUPTED_BYTES {
            let bits = (bytes.len() - UNCORRUPTED_BYTES) as u64 * 8;
            let bit = self.corrupt.below(bits);
            bytes[UNCORRUPTED_BYTES + (bit / 8) as usize] ^= 1 << (bit % 8);
            self.count(flow.is_udp, |counts| counts.corrupted += 1);
        }
        let delay_ns = self.jitter.vary(sent_ns, self.effects.delay_us.saturating_mul(1000));
        let due_ns = sent_ns.saturating_add(delay_ns).max(self.last_due_ns);
        self.last_due_ns = due_ns;
        self.held_bytes += length;
        self.line.push_back(ScheduledFrame { due_ns, bytes, is_udp: flow.is_udp });
        true
    }

    /// Lets the frames go that waited for a later one of this flow, which has just passed.
    fn release_overtaken(&mut self, now_ns: u64, flow: Flow) {
        let mut index = 0;
        while index < self.held_back.len() {
            if self.held_back[index].flow.id != flow.id {
                index += 1;
            } else if self.release(now_ns, index) {
                self.count(flow.is_udp, |counts| counts.reordered += 1);
            }
        }
    }

    /// Lets the frames go that have waited for too long.
    fn release_overdue(&mut self, now_ns: u64) {
        while self.held_back.front().is_some_and(|held| held.until_ns <= now_ns) {
            self.release(now_ns, 0);
        }
    }

    fn release(&mut self, now_ns: u64, index: usize) -> bool {
        let Some(HeldBack { flow, bytes, .. }) = self.held_back.remove(index) else { return false };
        self.held_bytes -= bytes.len() as u64;
        self.enqueue(now_ns, flow, bytes)
    }

    fn count(&mut self, is_udp: bool, change: impl Fn(&mut FrameCounts)) {
        change(&mut self.counts.all);
        if is_udp {
            change(&mut self.counts.udp);
        }
    }
}

/// A line of a given rate, which sends one frame after another.
#[derive(Debug)]
struct Serialiser {
    rate_bps: u64,
    /// The line has been busy since this time, and was given this number of bits since then: the time at which it
    /// becomes idle has no rounding error that adds up.
    busy_since_ns: u64,
    bits: u64,
}

impl Serialiser {
    fn new(rate_bps: u64) -> Self {
        Self { rate_bps, busy_since_ns: 0, bits: 0 }
    }

    /// Returns when the last bit of a frame has left, ns; `None` if the bytes that wait and this frame are more than
    /// the queue takes. A frame that finds the line idle is always sent.
    fn send(&mut self, now_ns: u64, bytes: u64, queue_bytes: u64) -> Option<u64> {
        let idle_ns = self.idle_ns();
        if idle_ns <= now_ns {
            (self.busy_since_ns, self.bits) = (now_ns, 0);
        } else {
            let waiting_bits = u128::from(idle_ns - now_ns) * u128::from(self.rate_bps) / NS_PER_S;
            if waiting_bits / 8 + u128::from(bytes) > u128::from(queue_bytes) {
                return None;
            }
        }
        self.bits = self.bits.saturating_add(bytes * 8);
        Some(self.idle_ns())
    }

    fn idle_ns(&self) -> u64 {
        let busy_ns = u128::from(self.bits) * NS_PER_S / u128::from(self.rate_bps);
        self.busy_since_ns.saturating_add(u64::try_from(busy_ns).unwrap_or(u64::MAX))
    }
}

const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
