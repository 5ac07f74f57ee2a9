//! The random numbers of one user: a small generator (splitmix64), seeded by the scenario's seed and the user's
//! number, so that a run can be repeated.

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a user.
    #[must_use]
    pub fn of(seed: u64, population: u32, user: u32) -> Self {
        // Both numbers are mixed: states that differ by multiples of the increment give the same numbers, shifted.
        let mut own = Self(Self(seed).next() ^ (u64::from(population) << 32 | u64::from(user)));
        Self(own.next())
    }

    /// Returns 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number from 0 on, below 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a whole number below `limit`, or 0 if there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a whole number between both bounds, inclusive.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        let (from, to) = (from.min(to), from.max(to));
        let span = (i128::from(to) - i128::from(from) + 1) as u128;
        (i128::from(from) + ((u128::from(self.next()) * span) >> 64) as i128) as i64
    }

    /// Returns a normally distributed number of mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Returns an exponentially distributed number of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Returns a Poisson-distributed number. A large mean is approximated by a normal distribution.
    pub fn poisson(&mut self, mean: f64) -> f64 {
        if mean <= 0.0 || !mean.is_finite() {
            return 0.0;
        }
        if mean > 200.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut number) = ((-mean).exp(), self.unit(), 0.0);
        while product > limit {
            product *= self.unit();
            number += 1.0;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::of(7, 0, 1);
        const N: usize = 20_000;
        let mut mean =
            |draw: &mut dyn FnMut(&mut Random) -> f64| (0..N).map(|_| draw(&mut random)).sum::<f64>() / N as f64;
        assert!((mean(&mut |random| random.unit()) - 0.5).abs() < 0.01);
        assert!(mean(&mut |random| random.normal()).abs() < 0.03);
        assert!((mean(&mut |random| random.exponential()) - 1.0).abs() < 0.03);
        assert!((mean(&mut |random| random.poisson(5.0)) - 5.0).abs() < 0.06);
        assert!((mean(&mut |random| random.poisson(300.0)) - 300.0).abs() < 0.6);
        assert!((mean(&mut |random| random.between(1, 6) as f64) - 3.5).abs() < 0.05);
    }

    #[test]
    fn each_user_draws_its_own_numbers_and_the_same_again() {
        let draw = |user| Random::of(1, 0, user).next();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(Random::of(1, 0, 1).between(3, 3), 3);
    }

    #[test]
    fn no_user_draws_the_numbers_of_another_one_later() {
        for seed in [0, 1, 2] {
            let mut seen = std::collections::HashSet::new();
            for (population, user) in (0..3).flat_map(|population| (0..100).map(move |user| (population, user))) {
                let mut random = Random::of(seed, population, user);
                assert!((0..100).all(|_| seen.insert(random.next())), "seed {seed}, user {user} of {population}");
            }
        }
    }
}
