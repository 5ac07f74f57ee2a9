//! Counts of what differed, by the requests' name and the part. Owns how many are kept, and which examples are not shown.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{differences, Difference};
use super::request::Answer;

/// The parts of all names that are kept.
const MAX_PARTS: usize = 1_000;
/// What the names of parts whose values are not shown contain.
const SECRET_NAMES: [&str; 18] = [
    "pass",
    "secret",
    "token",
    "session",
    "auth",
    "key",
    "cookie",
    "pin",
    "jwt",
    "bearer",
    "csrf",
    "xsrf",
    "otp",
    "sid",
    "signature",
    "credential",
    "code",
    "iban",
];

/// A part that differed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// In how many answers.
    pub count: u64,
    /// What it was and what it is, the first time; `None` where it may be a secret.
    pub example: Option<(String, String)>,
}

/// What differed between answers.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// Answers that were compared.
    pub compared: u64,
    /// Answers of which the body could not be compared: it cannot be read, or too much was waiting.
    pub not_compared: u64,
    /// The parts, by label.
    pub parts: BTreeMap<(u32, String), Part>,
    /// Parts that differ by themselves.
    pub noise: BTreeSet<(u32, String)>,
    /// Differences of parts beyond those that are kept.
    pub more: u64,
    /// How many answers had each set of differing parts, by which the answers without noise are counted at the end.
    sets: BTreeMap<(u32, Vec<String>), u64>,
}

impl Differences {
    /// Compares an answer with the one before.
    pub(super) fn compare(&mut self, label: u32, before: &Answer, after: &Answer) {
        self.compared += 1;
        self.not_compared += u64::from(before.body.is_some() != after.body.is_some());
        let found = differences(before, after);
        if found.is_empty() {
            return;
        }
        let names: Vec<String> = found.iter().map(|one| one.part.clone()).collect();
        let set = (label, names);
        if self.sets.len() < MAX_PARTS || self.sets.contains_key(&set) {
            *self.sets.entry(set).or_default() += 1;
        } else {
            *self.sets.entry((label, vec!["…".to_owned()])).or_default() += 1;
        }
        for one in found {
            self.add(label, one);
        }
    }

    /// Compares an answer of which the source has the status alone.
    pub(super) fn compare_status(&mut self, label: u32, before: u16, after: u16) {
        if before == after {
            self.compared += 1;
        } else {
            let answer = |status| Answer { status: Some(status), ..Answer::default() };
            self.compare(label, &answer(before), &answer(after));
        }
    }

    /// Notes what differs between two answers of one target.
    pub(super) fn notice_noise(&mut self, label: u32, one: &Answer, other: &Answer) {
        for difference in differences(one, other) {
            if self.noise.len() < MAX_PARTS {
                self.noise.insert((label, difference.part));
            }
        }
    }

    fn add(&mut self, label: u32, Difference { part, values }: Difference) {
        let is_secret = {
            let lower = part.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|name| lower.contains(name))
        };
        let key = (label, part);
        if let Some(known) = self.parts.get_mut(&key) {
            known.count += 1;
        } else if self.parts.len() < MAX_PARTS {
            self.parts.insert(key, Part { count: 1, example: (!is_secret).then_some(values) });
        } else {
            self.more += 1;
        }
    }

    /// Answers with a difference that is no noise.
    #[must_use]
    pub fn differing(&self) -> u64 {
        let is_real =
            |label: u32, parts: &[String]| parts.iter().any(|part| !self.noise.contains(&(label, part.clone())));
        self.sets.iter().filter(|((label, parts), _)| is_real(*label, parts)).map(|(_, count)| count).sum()
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.not_compared += other.not_compared;
        self.more += other.more;
        self.noise.extend(other.noise);
        for (set, count) in other.sets {
            *self.sets.entry(set).or_default() += count;
        }
        for (key, part) in other.parts {
            match self.parts.get_mut(&key) {
                Some(own) => own.count += part.count,
                None => {
                    self.parts.insert(key, part);
                }
            }
        }
    }
}
