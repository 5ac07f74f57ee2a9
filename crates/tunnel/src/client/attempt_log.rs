//! The ended attempts of one client: the first and the latest ones. Owns how many are stored.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::assigned_config::AssignedConfig;
use super::phase::{Occasion, Steps};

/// Maximum number of latest attempts that are stored beside the first one.
const MAX_LATER: usize = 63;

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The attempt's number, from 1.
    pub number: u32,
    /// Why it began.
    pub occasion: Occasion,
    /// The times of its steps.
    pub steps: Steps,
    /// When it or its tunnel ended, ns; `None` if the tunnel lasted until the fleet disconnected.
    pub ended_ns: Option<u64>,
    /// Why it ended, or the first check that failed.
    pub cause: Option<&'static str>,
    /// The server.
    pub server: Option<SocketAddr>,
    /// The local address.
    pub local: Option<SocketAddr>,
    /// The assigned configuration.
    pub assigned: Option<AssignedConfig>,
}

impl Attempt {
    /// A placeholder before the first attempt.
    pub fn none() -> Self {
        Self {
            number: 0,
            occasion: Occasion::Arrival,
            steps: Steps::default(),
            ended_ns: None,
            cause: None,
            server: None,
            local: None,
            assigned: None,
        }
    }
}

/// The ended attempts of a client.
#[derive(Debug, Default)]
pub struct AttemptLog {
    first: Option<Box<Attempt>>,
    later: VecDeque<Attempt>,
}

impl AttemptLog {
    /// Adds an attempt, and removes the oldest later one if the log is full.
    pub fn push(&mut self, attempt: Attempt) {
        if self.first.is_none() {
            self.first = Some(Box::new(attempt));
            return;
        }
        if self.later.len() == MAX_LATER {
            self.later.pop_front();
        }
        self.later.push_back(attempt);
    }

    /// The stored attempts in order.
    pub fn iter(&self) -> impl Iterator<Item = Attempt> + '_ {
        self.first.iter().map(|first| **first).chain(self.later.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_first_and_the_latest_attempts() {
        let mut log = AttemptLog::default();
        for number in 1..=1000 {
            log.push(Attempt {
                number,
                occasion: Occasion::Retry,
                steps: Steps::due(number.into()),
                ended_ns: Some(u64::from(number) + 5),
                cause: Some("reset_unanswered"),
                server: None,
                local: None,
                assigned: None,
            });
        }
        let numbers: Vec<u32> = log.iter().map(|attempt| attempt.number).collect();
        assert_eq!((numbers[0], numbers[1], numbers.len(), numbers[63]), (1, 938, 64, 1000));
        assert!(log.iter().all(|attempt| attempt.ended_ns == Some(attempt.steps.due_ns + 5)));
    }
}
