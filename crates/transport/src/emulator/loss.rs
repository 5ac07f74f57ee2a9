//! Loss, independent or in bursts. Bursts follow Gilbert's model, the simple case of Gilbert and Elliott's: in the
//! good state no frame is lost, in the bad state every frame is, and the state changes with fixed probabilities.

use super::random::Random;

/// The loss of one direction.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    random: Random,
    /// Probability that a frame begins a burst.
    enter: f64,
    /// Probability that the frame after a lost one ends the burst; `None` for independent losses.
    leave: Option<f64>,
    is_bad: bool,
}

impl Loss {
    /// Loses this share of the frames, `burst` in a row on average.
    pub(super) fn new(share: f64, burst: f64, random: Random) -> Self {
        let share = share.clamp(0.0, 1.0);
        if burst <= 1.0 || share >= 1.0 {
            return Self { random, enter: share, leave: None, is_bad: false };
        }
        // The share of time in the bad state is enter / (enter + leave), and a stay there lasts 1 / leave frames.
        let leave = 1.0 / burst;
        let enter = (leave * share / (1.0 - share)).min(1.0);
        Self { random, enter, leave: Some(leave), is_bad: false }
    }

    /// Decides on the next frame.
    pub(super) fn is_lost(&mut self) -> bool {
        let Some(leave) = self.leave else { return self.random.chance(self.enter) };
        self.is_bad = if self.is_bad { !self.random.chance(leave) } else { self.random.chance(self.enter) };
        self.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lost frames out of a million, and the bursts that they came in.
    fn lost(share: f64, burst: f64) -> (u32, u32) {
        let mut loss = Loss::new(share, burst, Random::of(7, 0));
        let (mut lost, mut bursts, mut before) = (0, 0, false);
        for _ in 0..1_000_000 {
            let now = loss.is_lost();
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (lost, bursts)
    }

    #[test]
    fn losses_have_their_share_and_their_mean_burst() {
        let (independent, alone) = lost(0.02, 1.0);
        assert!((19_500..20_500).contains(&independent), "{independent}");
        assert!(f64::from(independent) / f64::from(alone) < 1.05);
        let (bursty, bursts) = lost(0.02, 8.0);
        assert!((18_500..21_500).contains(&bursty), "{bursty}");
        let mean = f64::from(bursty) / f64::from(bursts);
        assert!((7.5..8.5).contains(&mean), "{mean}");
    }

    #[test]
    fn extremes_lose_nothing_or_everything() {
        assert_eq!(lost(0.0, 5.0).0, 0);
        assert_eq!(lost(1.0, 5.0).0, 1_000_000);
        assert_eq!(lost(1.0, 1.0).0, 1_000_000);
    }
}
