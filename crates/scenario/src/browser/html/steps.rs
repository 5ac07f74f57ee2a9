//! The work of one extraction from HTML, in steps: the elements and texts that it looks at or copies. Owns its bound, which
//! keeps a response from using the time and the memory of a thread.

use std::cell::Cell;

use crate::fault::{fault, Fault};

/// The most steps of one extraction. They copy 80 MB of text, which is five of the largest bodies.
pub(super) const MOST_STEPS: u64 = 5_000_000;
/// Bytes of text that count as one step.
pub const BYTES_PER_STEP: usize = 16;

/// The steps of one extraction so far.
#[derive(Debug, Default)]
pub struct Steps(Cell<u64>);

impl Steps {
    /// Counts steps.
    pub(in crate::browser) fn add(&self, steps: usize) {
        self.0.set(self.0.get().saturating_add(steps as u64));
    }

    /// Counts a text that is read or copied.
    pub(super) fn add_text(&self, text: &str) {
        self.add(text.len() / BYTES_PER_STEP);
    }

    /// Whether there were too many steps.
    pub(super) fn are_over(&self) -> bool {
        self.0.get() > MOST_STEPS
    }

    /// Refuses too many steps.
    ///
    /// # Errors
    /// There were too many.
    pub(in crate::browser) fn check(&self) -> Result<(), Fault> {
        if self.are_over() {
            return fault("selector_too_slow", format!("a selector needs more than {MOST_STEPS} steps"));
        }
        Ok(())
    }

    /// How many there were.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}
