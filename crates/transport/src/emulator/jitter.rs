//! A delay that varies evenly and slowly. If each frame had a delay of its own, frames closer together than the jitter would
//! have to wait for late ones before them to keep their order, so that all of them would take the longest delay.

use super::random::Random;

/// The variation of one direction's delay. Its course is a triangle wave between both bounds whose phase moves by a random
/// part of up to half a turn in each stretch of time: at any time each delay is as likely as another.
#[derive(Debug)]
pub(super) struct Jitter {
    jitter_ns: u64,
    random: Random,
    /// Length of a stretch, ns. In it the delay falls by twice the jitter at most, which is less than the time that passes:
    /// no frame overtakes another.
    stretch_ns: u64,
    stretch_began_ns: u64,
    /// The phase as the stretch began, and how far it moves in it: 2^64 is a whole turn.
    phase: u64,
    moves: i64,
}

/// How many times the jitter a stretch lasts.
const STRETCH_JITTERS: u64 = 4;

impl Jitter {
    /// Creates the variation of a delay by up to `jitter_ns` in either direction.
    pub(super) fn new(jitter_ns: u64, mut random: Random) -> Self {
        let stretch_ns = jitter_ns.saturating_mul(STRETCH_JITTERS).max(1);
        let (phase, moves) = (random.next(), random.next() as i64);
        Self { jitter_ns, random, stretch_ns, stretch_began_ns: 0, phase, moves }
    }

    /// Returns this delay as it is at a time.
    pub(super) fn vary(&mut self, now_ns: u64, delay_ns: u64) -> u64 {
        if self.jitter_ns == 0 {
            return delay_ns;
        }
        self.advance(now_ns);
        let passed_ns = now_ns.saturating_sub(self.stretch_began_ns).min(self.stretch_ns);
        let moved = i128::from(self.moves) * i128::from(passed_ns) / i128::from(self.stretch_ns);
        let phase = self.phase.wrapping_add(moved as i64 as u64);
        // Up in the first half of a turn, down in the second.
        let height = phase.min(u64::MAX - phase);
        let most_ns = u128::from(self.jitter_ns) * 2 + 1;
        let above_ns = u64::try_from((u128::from(height) * most_ns) >> 63).unwrap_or(u64::MAX);
        delay_ns.saturating_add(above_ns).saturating_sub(self.jitter_ns)
    }

    fn advance(&mut self, now_ns: u64) {
        let stretches = now_ns.saturating_sub(self.stretch_began_ns) / self.stretch_ns;
        if stretches == 0 {
            return;
        }
        // After a stretch without a frame, any phase is as likely as another.
        self.phase = if stretches == 1 { self.phase.wrapping_add(self.moves as u64) } else { self.random.next() };
        self.moves = self.random.next() as i64;
        self.stretch_began_ns += stretches * self.stretch_ns;
    }
}
