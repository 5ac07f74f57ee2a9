//! A number that becomes known, and that threads read without a lock: an instant, or a figure.

use std::sync::atomic::{AtomicU64, Ordering};

/// An `Option<u64>` in one atomic word. `u64::MAX` stands for `None` inside, so that it cannot be stored: it is further away than
/// any instant, and more than any figure.
#[derive(Debug)]
pub struct AtomicOption(AtomicU64);

const NONE: u64 = u64::MAX;

impl Default for AtomicOption {
    fn default() -> Self {
        Self::none()
    }
}

impl AtomicOption {
    /// Not known yet.
    pub const fn none() -> Self {
        Self(AtomicU64::new(NONE))
    }

    /// The number, once it is known; what was written before it was set is visible to the reader.
    #[inline]
    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|value| *value != NONE)
    }

    /// Sets it, whether or not it was known.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Sets it, unless another thread has.
    pub fn set_first(&self, value: u64) {
        let _ = self.0.compare_exchange(NONE, value, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_a_known_number() {
        let number = AtomicOption::none();
        assert_eq!(number.get(), None);
        number.set_first(0);
        number.set_first(1);
        assert_eq!(number.get(), Some(0), "the first one counts");
        number.set(2);
        assert_eq!(number.get(), Some(2));
    }
}
