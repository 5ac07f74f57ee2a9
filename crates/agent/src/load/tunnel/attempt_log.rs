//! Every attempt of a client as the report tells it: what it came to, what it was given, and when it ended. Owns how many are
//! kept; `attempt` decides when one is over.

use std::collections::VecDeque;
use std::net::SocketAddr;

use leadline_wire::TunnelAttemptReport;

use super::assigned_config::AssignedConfig;
use super::client::{Occasion, Steps};

/// The latest attempts that are kept of a client, beside its first one.
const MOST_LATER: usize = 63;

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    pub occasion: Occasion,
    pub steps: Steps,
    /// When it or its tunnel ended, ns; none where that lasted until the fleet left.
    pub ended_ns: Option<u64>,
    pub cause: Option<&'static str>,
    pub server: Option<SocketAddr>,
    pub local: Option<SocketAddr>,
    pub assigned: Option<AssignedConfig>,
}

/// The attempts of a client that are over.
#[derive(Debug, Default)]
pub struct AttemptLog {
    first: Option<Box<Attempt>>,
    later: VecDeque<Attempt>,
}

impl AttemptLog {
    /// One more is over.
    pub fn push(&mut self, attempt: Attempt) {
        if self.first.is_none() {
            self.first = Some(Box::new(attempt));
            return;
        }
        if self.later.len() == MOST_LATER {
            self.later.pop_front();
        }
        self.later.push_back(attempt);
    }

    /// Those that are kept, in their order, and the present one.
    pub fn reports(&self, client: u32, present: Option<Attempt>) -> impl Iterator<Item = TunnelAttemptReport> + '_ {
        let over = self.first.iter().map(|first| **first).chain(self.later.iter().copied());
        over.chain(present).map(move |attempt| attempt.report(client))
    }
}

impl Attempt {
    fn report(&self, client: u32) -> TunnelAttemptReport {
        let Self { steps, assigned, .. } = self;
        let since = |at_ns: u64| (at_ns > 0).then(|| at_ns.saturating_sub(steps.due_ns));
        TunnelAttemptReport {
            client,
            attempt: self.number,
            occasion: self.occasion,
            due_ns: steps.due_ns,
            sent_ns: since(steps.sent_ns),
            answered_ns: since(steps.answered_ns),
            tls_ns: since(steps.tls_ns),
            keys_ns: since(steps.keys_ns),
            pushed_ns: since(steps.pushed_ns),
            configured_ns: since(steps.configured_ns),
            ended_ns: self.ended_ns.and_then(since),
            cause: self.cause.map(str::to_owned),
            server: self.server.map(|server| server.to_string()).unwrap_or_default(),
            local: self.local.map(|local| local.to_string()),
            addresses: assigned.iter().flat_map(AssignedConfig::addresses).map(|address| address.to_string()).collect(),
            peer_id: assigned.and_then(|assigned| assigned.peer_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_log_keeps_the_first_and_latest_attempts() {
        let mut log = AttemptLog::default();
        let attempt = |number: u32| Attempt {
            number,
            occasion: Occasion::Retry,
            steps: Steps { due_ns: u64::from(number), ..Steps::default() },
            ended_ns: Some(u64::from(number) + 5),
            cause: Some("reset_unanswered"),
            server: None,
            local: None,
            assigned: None,
        };
        (1..=1000).for_each(|number| log.push(attempt(number)));
        let reports: Vec<_> = log.reports(7, Some(attempt(1001))).collect();
        let numbers: Vec<u32> = reports.iter().map(|report| report.attempt).collect();
        assert_eq!((numbers[0], numbers[1], numbers.len(), numbers[64]), (1, 938, 65, 1001));
        assert!(reports.iter().all(|report| report.client == 7 && report.ended_ns == Some(5)));
    }
}
