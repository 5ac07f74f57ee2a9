//! One request-response flow: when its next request is due, which answer belongs to which request, and what became of
//! each transaction. In the closed model a request follows as soon as fewer than the maximum are outstanding. In the
//! open model each request has a due time of its own, which no answer delays; a request that cannot be sent then
//! waits, and its wait counts.

use std::collections::VecDeque;

use leadline_pace::Pace;

/// The next action of the flow's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the next request.
    Request {
        /// Its number.
        sequence: u64,
        /// When it was due, ns; now in the closed model.
        due_ns: u64,
    },
    /// Wait for a response, at most until this time, ns.
    AwaitUntil(u64),
    /// No request is outstanding, and none will be sent.
    Done,
}

/// The limits of a flow.
#[derive(Clone, Copy, Debug)]
pub struct RequesterLimits {
    /// Time after which a transaction counts as failed, ns.
    pub timeout_ns: u64,
    /// The maximum number of outstanding transactions.
    pub outstanding: u32,
    /// Transactions after which the flow ends.
    pub number: Option<u64>,
    /// The open model's schedule; the closed model if absent.
    pub schedule: Option<Schedule>,
    /// No request is sent at this time or later, ns.
    pub until_ns: u64,
}

/// When the requests of the open model are due.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The rate.
    pub pace: Pace,
    /// When the first request is due, ns.
    pub start_ns: u64,
}

/// A transaction whose request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its number.
    pub sequence: u64,
    /// When it was due, ns.
    pub due_ns: u64,
    /// When its request was handed to the kernel, ns.
    pub sent_ns: u64,
}

/// What a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The response to an outstanding request.
    Timely(Transaction),
    /// The response to a transaction that was given up.
    Late,
    /// A further response to an answered request.
    Duplicate,
    /// A response to no request.
    Unasked,
}

/// Requests of the open model that were due and not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// All of them.
    pub all: u64,
    /// Those that waited for the peer: as many transactions as allowed were outstanding, or the flow had failed.
    pub while_busy: u64,
}

/// The outcomes of this many latest transactions distinguish late responses from repeated ones.
const REMEMBERED: u64 = 4096;

/// A transaction that is outstanding, or was settled while an older one is outstanding.
#[derive(Clone, Copy, Debug)]
struct Slot {
    transaction: Transaction,
    is_settled: bool,
}

/// The client side of the flow. Takes times and sequence numbers and returns results; the driver frames the bytes.
#[derive(Clone, Debug)]
pub struct Requester {
    limits: RequesterLimits,
    /// The transactions from the oldest outstanding one on, in the order of their numbers. Settled ones are removed once
    /// there is no older one, or once they occupy too much room: an answer that never comes must not occupy more and more.
    slots: VecDeque<Slot>,
    /// The number of the next transaction.
    next: u64,
    outstanding: u32,
    /// When the flow could send again after it could not, ns.
    free_since_ns: u64,
    due_while_busy: u64,
    unsent: Option<Unsent>,
    has_failed: bool,
    /// One bit for each of the latest transactions: whether it was given up.
    given_up: Box<[u64; (REMEMBERED / 64) as usize]>,
    completed: u64,
    late: u64,
    duplicates: u64,
    unasked: u64,
}

impl Requester {
    /// Creates a flow.
    pub fn new(limits: RequesterLimits) -> Self {
        let limits = RequesterLimits { outstanding: limits.outstanding.max(1), ..limits };
        Self {
            limits,
            slots: VecDeque::with_capacity(most_slots(&limits).min(4096)),
            next: 0,
            outstanding: 0,
            free_since_ns: 0,
            due_while_busy: 0,
            unsent: None,
            has_failed: false,
            given_up: Box::new([0; (REMEMBERED / 64) as usize]),
            completed: 0,
            late: 0,
            duplicates: 0,
            unasked: 0,
        }
    }

    /// Returns the next action.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Step {
        self.handle_end(now_ns);
        let has_room = self.outstanding < self.limits.outstanding;
        let next_due = self.next_due(now_ns).filter(|_| has_room);
        if let Some(due_ns) = next_due.filter(|due_ns| *due_ns <= now_ns) {
            return Step::Request { sequence: self.next, due_ns };
        }
        match self.timeout_ns().into_iter().chain(next_due).min() {
            Some(instant) => Step::AwaitUntil(instant),
            // Only a schedule that has ended leaves neither.
            None => Step::Done,
        }
    }

    /// When the next request is due; `None` if there is no further one.
    fn next_due(&self, now_ns: u64) -> Option<u64> {
        if self.unsent.is_some() || self.limits.number.is_some_and(|number| self.next >= number) {
            return None;
        }
        let due_ns = match self.limits.schedule {
            None => now_ns,
            Some(schedule) => schedule.start_ns.saturating_add(schedule.pace.due_ns(self.next)),
        };
        (due_ns < self.limits.until_ns).then_some(due_ns)
    }

    /// When the oldest outstanding transaction times out, ns.
    pub fn timeout_ns(&self) -> Option<u64> {
        let oldest = self.slots.front()?.transaction;
        Some(oldest.sent_ns.saturating_add(self.limits.timeout_ns))
    }

    /// Records that the next request was handed to the kernel. Returns how late that was, ns; the wait for the peer
    /// does not count.
    #[inline]
    pub fn handle_sent(&mut self, due_ns: u64, now_ns: u64) -> u64 {
        if self.slots.len() >= most_slots(&self.limits) {
            self.slots.retain(|slot| !slot.is_settled);
        }
        let transaction = Transaction { sequence: self.next, due_ns, sent_ns: now_ns };
        self.slots.push_back(Slot { transaction, is_settled: false });
        self.next += 1;
        self.outstanding += 1;
        self.due_while_busy += u64::from(due_ns < self.free_since_ns);
        now_ns.saturating_sub(due_ns.max(self.free_since_ns))
    }

    /// Records that the flow can send again, after its socket or its address space had no room.
    pub fn handle_room(&mut self, now_ns: u64) {
        self.free_since_ns = now_ns;
    }

    /// Handles a response to this request, or, over a stream, to the oldest outstanding one.
    #[inline]
    pub fn handle_response(&mut self, now_ns: u64, sequence: Option<u64>) -> Answer {
        self.handle_end(now_ns);
        let sequence = sequence.unwrap_or(self.oldest());
        if sequence >= self.next {
            self.unasked += 1;
            return Answer::Unasked;
        }
        let Some(transaction) = self.settle(sequence, now_ns) else {
            let is_late = sequence + REMEMBERED < self.next || self.was_given_up(sequence);
            self.remember(sequence, false);
            return if is_late {
                self.late += 1;
                Answer::Late
            } else {
                self.duplicates += 1;
                Answer::Duplicate
            };
        };
        self.remember(sequence, false);
        self.completed += 1;
        Answer::Timely(transaction)
    }

    /// Handles the passing of time; returns a transaction that has timed out. Call it until it returns `None`.
    pub fn handle_time(&mut self, now_ns: u64) -> Option<Transaction> {
        self.handle_end(now_ns);
        let expired = self.timeout_ns().is_some_and(|at_ns| now_ns >= at_ns);
        expired.then(|| self.give_up_oldest(now_ns)).flatten()
    }

    /// Gives up an outstanding transaction after a failure in the driver.
    pub fn give_up(&mut self, sequence: u64, now_ns: u64) -> Option<Transaction> {
        let transaction = self.settle(sequence, now_ns)?;
        self.remember(sequence, true);
        Some(transaction)
    }

    /// Gives up the oldest outstanding transaction.
    pub fn give_up_oldest(&mut self, now_ns: u64) -> Option<Transaction> {
        if self.slots.is_empty() {
            return None;
        }
        self.give_up(self.oldest(), now_ns)
    }

    /// Sends no request at this time or later.
    pub fn stop(&mut self, now_ns: u64) {
        self.limits.until_ns = self.limits.until_ns.min(now_ns);
        self.handle_end(now_ns);
    }

    /// Ends the flow after a failure: requests that were still to be due count as unsent.
    pub fn fail(&mut self) {
        self.has_failed = true;
        let all = self.unsent_until(self.limits.until_ns);
        self.unsent.get_or_insert(Unsent { all, while_busy: all });
    }

    /// When the time of a schedule's requests is over, ns: the last one has its interval too, as far as the flow lasts.
    /// Otherwise a rate would be n / (n - 1) of the one that was offered. `None` without a schedule, and after a failure.
    pub fn over_ns(&self) -> Option<u64> {
        let schedule = self.limits.schedule.filter(|_| !self.has_failed)?;
        let following_ns = schedule.start_ns.saturating_add(schedule.pace.due_ns(self.next));
        Some(following_ns.min(self.limits.until_ns))
    }

    /// Counts the unsent requests once the time is over, before any slot becomes free.
    fn handle_end(&mut self, now_ns: u64) {
        if now_ns >= self.limits.until_ns && self.unsent.is_none() {
            let all = self.unsent_until(self.limits.until_ns);
            let is_busy = self.outstanding >= self.limits.outstanding;
            self.unsent = Some(Unsent { all, while_busy: if is_busy { all } else { 0 } });
        }
    }

    fn unsent_until(&self, until_ns: u64) -> u64 {
        let Some(schedule) = self.limits.schedule else { return 0 };
        let due = schedule.pace.count_within(until_ns.saturating_sub(schedule.start_ns));
        due.min(self.limits.number.unwrap_or(u64::MAX)).saturating_sub(self.next)
    }

    /// The number of the oldest outstanding transaction, or of the next one.
    fn oldest(&self) -> u64 {
        self.slots.front().map_or(self.next, |slot| slot.transaction.sequence)
    }

    #[inline]
    fn settle(&mut self, sequence: u64, now_ns: u64) -> Option<Transaction> {
        let place = self.place(sequence)?;
        let slot = self.slots.get_mut(place).filter(|slot| !slot.is_settled)?;
        slot.is_settled = true;
        let transaction = slot.transaction;
        while self.slots.front().is_some_and(|slot| slot.is_settled) {
            self.slots.pop_front();
        }
        if self.outstanding >= self.limits.outstanding {
            self.free_since_ns = now_ns;
        }
        self.outstanding -= 1;
        Some(transaction)
    }

    /// Where this number is in `slots`.
    #[inline]
    fn place(&self, sequence: u64) -> Option<usize> {
        let number = |slot: &Slot| slot.transaction.sequence;
        let ahead = usize::try_from(sequence.checked_sub(self.oldest())?).ok()?;
        // Without a gap, the number tells the place.
        if self.slots.get(ahead).is_some_and(|slot| number(slot) == sequence) {
            return Some(ahead);
        }
        self.slots.binary_search_by_key(&sequence, number).ok()
    }

    fn was_given_up(&self, sequence: u64) -> bool {
        let bit = sequence % REMEMBERED;
        self.given_up[(bit / 64) as usize] & (1 << (bit % 64)) != 0
    }

    #[inline]
    fn remember(&mut self, sequence: u64, is_given_up: bool) {
        let bit = sequence % REMEMBERED;
        let word = &mut self.given_up[(bit / 64) as usize];
        *word = (*word & !(1 << (bit % 64))) | (u64::from(is_given_up) << (bit % 64));
    }

    /// The number of the next transaction, and so the number of requests sent.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Number of outstanding transactions.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Number of completed transactions.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Responses that came after their transaction had been given up.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Responses that came again.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Responses to no request.
    pub fn unasked(&self) -> u64 {
        self.unasked
    }

    /// Requests that were due while the flow could send none, and were sent later.
    pub fn due_while_busy(&self) -> u64 {
        self.due_while_busy
    }

    /// Requests that were due and not sent before the end; none in the closed model.
    pub fn unsent(&self) -> Unsent {
        self.unsent.unwrap_or_default()
    }
}

/// How many slots a flow has before it removes settled ones: twice the outstanding ones, so that a removal frees half.
fn most_slots(limits: &RequesterLimits) -> usize {
    2 * limits.outstanding.max(32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: RequesterLimits =
        RequesterLimits { timeout_ns: 1_000, outstanding: 1, number: None, schedule: None, until_ns: 1_000_000 };

    fn request(flow: &mut Requester, now_ns: u64) -> u64 {
        let Step::Request { sequence, due_ns } = flow.poll(now_ns) else { panic!("{:?}", flow.poll(now_ns)) };
        flow.handle_sent(due_ns, now_ns);
        sequence
    }

    fn every_100_ns(outstanding: u32, until_ns: u64) -> Requester {
        let schedule = Schedule { pace: Pace::per_second(1e7).unwrap(), start_ns: 0 };
        Requester::new(RequesterLimits { outstanding, schedule: Some(schedule), until_ns, ..LIMITS })
    }

    #[test]
    fn transaction_is_timed_from_its_sending() {
        let mut flow = Requester::new(LIMITS);
        assert_eq!(flow.poll(10), Step::Request { sequence: 0, due_ns: 10 });
        flow.handle_sent(10, 10);
        assert_eq!(flow.poll(20), Step::AwaitUntil(1_010));
        let answered = Transaction { sequence: 0, due_ns: 10, sent_ns: 10 };
        assert_eq!(flow.handle_response(60, Some(0)), Answer::Timely(answered));
        assert_eq!(flow.poll(60), Step::Request { sequence: 1, due_ns: 60 });
    }

    #[test]
    fn failed_transaction_is_followed_by_the_next() {
        let mut flow = Requester::new(LIMITS);
        assert_eq!(flow.give_up_oldest(0), None);
        assert_eq!(request(&mut flow, 0), 0);
        assert!(flow.give_up(0, 5).is_some());
        assert_eq!(request(&mut flow, 6), 1);
        assert_eq!((flow.completed(), flow.outstanding()), (0, 1));
    }

    #[test]
    fn late_repeated_and_unasked_responses_are_distinguished() {
        let mut flow = Requester::new(LIMITS);
        request(&mut flow, 0);
        assert_eq!(flow.handle_time(999), None);
        assert!(flow.handle_time(1_000).is_some());
        request(&mut flow, 1_000);
        assert_eq!(flow.handle_response(1_001, Some(0)), Answer::Late);
        assert_eq!(flow.handle_response(1_002, Some(0)), Answer::Duplicate, "the late one again");
        assert!(matches!(flow.handle_response(1_005, Some(1)), Answer::Timely(_)));
        assert_eq!(flow.handle_response(1_006, Some(1)), Answer::Duplicate);
        assert_eq!(flow.handle_response(1_007, Some(2)), Answer::Unasked);
        assert_eq!(flow.handle_response(1_007, None), Answer::Unasked, "a stream has none outstanding");
        assert_eq!((flow.completed(), flow.late(), flow.duplicates(), flow.unasked()), (1, 1, 2, 2));
    }

    #[test]
    fn responses_in_any_order_answer_their_requests() {
        let mut flow = Requester::new(RequesterLimits { outstanding: 3, ..LIMITS });
        for now in 0..3 {
            request(&mut flow, now);
        }
        assert_eq!(flow.poll(3), Step::AwaitUntil(1_000));
        assert!(matches!(flow.handle_response(4, Some(2)), Answer::Timely(Transaction { sent_ns: 2, .. })));
        assert_eq!(request(&mut flow, 5), 3);
        assert!(matches!(flow.handle_response(6, None), Answer::Timely(Transaction { sequence: 0, .. })));
        assert!(matches!(flow.handle_response(7, None), Answer::Timely(Transaction { sequence: 1, .. })));
        assert!(matches!(flow.handle_response(8, None), Answer::Timely(Transaction { sequence: 3, .. })));
    }

    #[test]
    fn stall_delays_no_due_time() {
        let mut flow = every_100_ns(1, 1_000);
        request(&mut flow, 0);
        // The peer is silent for four intervals; the requests that were due meanwhile keep their due times.
        flow.handle_response(450, Some(0));
        assert_eq!(flow.poll(450), Step::Request { sequence: 1, due_ns: 100 });
        assert_eq!(flow.handle_sent(100, 460), 10, "only the time since the flow could send");
        assert!(matches!(flow.handle_response(470, None), Answer::Timely(Transaction { due_ns: 100, .. })));
        assert_eq!(flow.due_while_busy(), 1);
    }

    #[test]
    fn requests_that_were_due_and_not_sent_are_counted() {
        let mut flow = every_100_ns(1, 1_000);
        request(&mut flow, 0);
        assert_eq!(flow.poll(999), Step::AwaitUntil(1_000));
        assert!(flow.handle_time(1_000).is_some());
        assert_eq!(flow.poll(1_000), Step::Done);
        assert_eq!(flow.unsent(), Unsent { all: 9, while_busy: 9 });
        // Nothing is outstanding: the driver was late.
        let mut flow = every_100_ns(1, 1_000);
        assert_eq!(flow.poll(2_000), Step::Done);
        assert_eq!(flow.unsent(), Unsent { all: 10, while_busy: 0 });
    }

    #[test]
    fn stop_and_failure_end_the_schedule() {
        let mut flow = every_100_ns(4, 1_000);
        for now in [0, 100, 200] {
            request(&mut flow, now);
        }
        flow.stop(250);
        assert_eq!(flow.poll(300), Step::AwaitUntil(1_000), "the outstanding ones are waited for");
        assert_eq!(flow.unsent(), Unsent::default());
        let mut flow = every_100_ns(4, 1_000);
        request(&mut flow, 0);
        assert!(flow.give_up_oldest(50).is_some());
        flow.fail();
        assert_eq!(flow.poll(60), Step::Done);
        assert_eq!(flow.unsent(), Unsent { all: 9, while_busy: 9 });
    }

    #[test]
    fn last_request_of_a_schedule_has_its_interval() {
        let mut flow = every_100_ns(4, 250);
        for now in [0, 100] {
            request(&mut flow, now);
        }
        assert_eq!(flow.over_ns(), Some(200));
        request(&mut flow, 200);
        assert_eq!(flow.over_ns(), Some(250), "no longer than the flow");
        flow.stop(230);
        assert_eq!(flow.over_ns(), Some(230));
        flow.fail();
        assert_eq!(flow.over_ns(), None, "a failure ends it at once");
        assert_eq!(Requester::new(LIMITS).over_ns(), None);
    }

    #[test]
    fn number_ends_the_flow() {
        let mut flow = Requester::new(RequesterLimits { number: Some(2), outstanding: 8, ..LIMITS });
        request(&mut flow, 0);
        request(&mut flow, 0);
        assert_eq!(flow.poll(1), Step::AwaitUntil(1_000));
        flow.handle_response(2, None);
        flow.handle_response(2, None);
        assert_eq!(flow.poll(3), Step::Done);
    }

    #[test]
    fn lost_datagram_does_not_occupy_more_and_more_memory() {
        let mut flow = Requester::new(RequesterLimits { outstanding: 3, timeout_ns: u64::MAX, ..LIMITS });
        assert_eq!((request(&mut flow, 0), request(&mut flow, 0)), (0, 1));
        for number in 2..100_000 {
            assert_eq!(request(&mut flow, number), number);
            let answered = Transaction { sequence: number, due_ns: number, sent_ns: number };
            assert_eq!(flow.handle_response(number, Some(number)), Answer::Timely(answered));
            assert!(flow.slots.len() <= most_slots(&flow.limits));
        }
        assert_eq!(flow.handle_response(200_000, Some(99_999)), Answer::Duplicate);
        assert!(matches!(flow.handle_response(200_000, Some(1)), Answer::Timely(Transaction { sequence: 1, .. })));
        assert!(matches!(flow.handle_response(200_000, None), Answer::Timely(Transaction { sequence: 0, .. })));
        assert_eq!((flow.outstanding(), flow.completed()), (0, 100_000));
    }

    proptest! {
        #[test]
        fn every_request_has_one_outcome(outstanding in 1u32..9, acts in proptest::collection::vec((0u8..4, 0u64..40), 1..300)) {
            let mut flow = Requester::new(RequesterLimits { outstanding, timeout_ns: 200, ..LIMITS });
            let (mut now, mut gone) = (0, 0u64);
            for (act, value) in acts {
                now += value;
                match act {
                    0 => while let Step::Request { due_ns, .. } = flow.poll(now) { flow.handle_sent(due_ns, now); },
                    1 => { flow.handle_response(now, Some(value)); }
                    2 => { flow.handle_response(now, None); }
                    _ => while flow.handle_time(now).is_some() { gone += 1; },
                }
                prop_assert!(flow.outstanding() <= outstanding);
                prop_assert_eq!(flow.sent(), flow.completed() + gone + u64::from(flow.outstanding()));
            }
        }
    }
}
