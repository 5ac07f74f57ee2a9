//! The random decisions of an emulated link: a small generator (splitmix64) per effect, so that turning one effect on
//! does not change what another one does with the same seed.

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Returns the generator of one effect.
    pub(super) fn of(seed: u64, effect: u64) -> Self {
        let mut random = Self(seed ^ effect.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    /// Returns 64 random bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns true with this probability.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // Effects that are off draw nothing.
        probability > 0.0 && self.unit() < probability
    }

    /// Returns a whole number below `limit`, or 0 if there is none.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
