//! The failures of a load by name: the number of each, and the message of the first one.

use std::collections::BTreeMap;

use tracing::debug;

/// Failed operations by name: the number of each, and the message of the first one.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// The number, by name.
    pub counts: BTreeMap<String, u64>,
    /// The first message, by name, if it says more than the name.
    pub examples: BTreeMap<String, String>,
}

/// Its event counts as the load's.
const TARGET: &str = concat!(env!("CARGO_CRATE_NAME"), "::load");

/// The maximum length of a message, bytes.
const EXAMPLE_BYTES: usize = 500;

impl Failures {
    /// Counts failures of one name; the message is requested with the first.
    pub fn count(&mut self, name: &str, number: u64, example: impl FnOnce() -> String) {
        match self.counts.get_mut(name) {
            Some(count) => *count += number,
            None => {
                self.counts.insert(name.to_owned(), number);
                self.example(name, example);
                debug!(target: TARGET, cause = name, example = self.examples.get(name), "first failure of this cause");
            }
        }
    }

    /// Stores the first message of a name.
    pub fn example(&mut self, name: &str, example: impl FnOnce() -> String) {
        if !self.examples.contains_key(name) {
            let mut text = example();
            if text.len() > EXAMPLE_BYTES {
                let end = (0..=EXAMPLE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                text.truncate(end);
                text.push_str(" ...");
            }
            self.examples.insert(name.to_owned(), text);
        }
    }
}
