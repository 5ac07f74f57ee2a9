//! One request-response flow: one transaction is outstanding, timed from the moment its request was handed to the
//! kernel.

/// The next action of the flow's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the request with this sequence number.
    Request(u64),
    /// Wait for the response, at most until this time, ns.
    AwaitUntil(u64),
}

/// The client side of the flow. Takes times and sequence numbers and returns results; the driver frames the bytes.
#[derive(Clone, Debug)]
pub struct Requester {
    timeout_ns: u64,
    sequence: u64,
    outstanding: Option<u64>,
    completed: u64,
    late: u64,
}

impl Requester {
    /// Creates a flow whose transactions time out after `timeout_ns`.
    pub fn new(timeout_ns: u64) -> Self {
        Self { timeout_ns, sequence: 0, outstanding: None, completed: 0, late: 0 }
    }

    /// Returns the next action.
    pub fn poll(&self) -> Step {
        match self.outstanding {
            Some(sent_ns) => Step::AwaitUntil(sent_ns.saturating_add(self.timeout_ns)),
            None => Step::Request(self.sequence),
        }
    }

    /// Records that the request was handed to the kernel.
    pub fn handle_sent(&mut self, now_ns: u64) {
        self.outstanding = Some(now_ns);
    }

    /// Handles a response; returns the duration of its transaction, ns. A response to a transaction that timed out is
    /// counted and returns `None`.
    pub fn handle_response(&mut self, now_ns: u64, sequence: u64) -> Option<u64> {
        if sequence != self.sequence || self.outstanding.is_none() {
            self.late += 1;
            return None;
        }
        let sent_ns = self.outstanding.take()?;
        self.sequence += 1;
        self.completed += 1;
        Some(now_ns.saturating_sub(sent_ns))
    }

    /// Handles the passing of time; returns whether the outstanding transaction has timed out.
    pub fn handle_time(&mut self, now_ns: u64) -> bool {
        let expired = self.outstanding.is_some_and(|sent_ns| now_ns >= sent_ns.saturating_add(self.timeout_ns));
        if expired {
            self.outstanding = None;
            self.sequence += 1;
        }
        expired
    }

    /// Ends the outstanding transaction after a failure in the driver.
    pub fn give_up(&mut self) {
        if self.outstanding.take().is_some() {
            self.sequence += 1;
        }
    }

    /// The number of the outstanding or next transaction.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of completed transactions.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Responses that came after their transaction had timed out, or that came twice.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// When the outstanding request was handed to the kernel, ns.
    pub fn sent_ns(&self) -> Option<u64> {
        self.outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_is_timed_from_its_sending() {
        let mut flow = Requester::new(1_000);
        assert_eq!(flow.poll(), Step::Request(0));
        flow.handle_sent(10);
        assert_eq!(flow.poll(), Step::AwaitUntil(1_010));
        assert_eq!(flow.handle_response(60, 0), Some(50));
        assert_eq!(flow.poll(), Step::Request(1));
    }

    #[test]
    fn failed_transaction_is_followed_by_the_next() {
        let mut flow = Requester::new(1_000);
        flow.give_up();
        assert_eq!(flow.poll(), Step::Request(0));
        flow.handle_sent(0);
        flow.give_up();
        assert_eq!(flow.poll(), Step::Request(1));
        assert_eq!(flow.completed(), 0);
    }

    #[test]
    fn late_response_does_not_answer_the_next_transaction() {
        let mut flow = Requester::new(1_000);
        flow.handle_sent(0);
        assert!(!flow.handle_time(999));
        assert!(flow.handle_time(1_000));
        flow.handle_sent(1_000);
        assert_eq!(flow.handle_response(1_001, 0), None);
        assert_eq!(flow.handle_response(1_005, 1), Some(5));
        assert_eq!((flow.completed(), flow.late()), (1, 1));
    }
}
