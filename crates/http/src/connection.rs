//! One client connection, for closed and open loops. Owns which requests are outstanding (one, or the batch that is
//! sent in one piece), how many of their bytes have been sent, and their times. Refuses to begin a batch before the
//! previous one is answered, so latency measures the server and not a queue in front of it.
//!
//! | State     | `opened` | `begin`, `follow` | `sent` (all)  | `receive` (the last whole answer)  | `ended`, `close` |
//! |-----------|----------|-------------------|---------------|------------------------------------|------------------|
//! | closed    | idle     |                   |               |                                    | closed           |
//! | idle      |          | sending           |               | error: unsolicited bytes           | closed           |
//! | sending   |          |                   | receiving     | idle; the caller has to close      | closed           |
//! | receiving |          |                   |               | idle; the caller may have to close | closed           |
//!
//! `take_back` turns receiving into sending: the system did not take bytes that were counted as sent.

use crate::sink::Sink;
use crate::{End, Malformed, Response, ResponseParser};

/// The times of a request, ns on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// When it was due.
    pub due_ns: u64,
    /// When its first byte was offered to the system.
    pub sent_ns: u64,
    /// When the first bytes of its response were read.
    pub first_ns: u64,
    /// When the last byte of its response was read.
    pub done_ns: u64,
}

/// Requests that are sent in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Length, bytes.
    pub bytes: usize,
    /// Number of requests.
    pub requests: u32,
    /// Whether the responses have no body, as those to HEAD.
    pub expects_no_body: bool,
}

/// A response with the times of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The response.
    pub response: Response,
    /// When the request was due and sent, and when it was done.
    pub timing: Timing,
    /// Whether the whole batch was sent before the response came.
    pub was_sent: bool,
    /// Number of requests of the batch that are still outstanding.
    pub left: u32,
}

impl Answer {
    /// Whether the connection can carry another request. The server would read the unsent rest of a batch as the next
    /// request.
    #[must_use]
    pub fn keeps_connection(&self) -> bool {
        self.response.keep_alive && self.was_sent
    }
}

/// Requests that get no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Number of requests.
    pub requests: u32,
    /// Whether all of them were sent completely.
    pub was_sent: bool,
}

/// What it means that the peer closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// No request was outstanding.
    Idle,
    /// The end completed a response; `left` requests of its batch get none.
    Answered(Answer),
    /// The outstanding requests get no response.
    Early(Outstanding),
}

/// The state of one connection.
#[derive(Debug)]
pub struct ClientConnection {
    state: State,
    parser: ResponseParser,
    batch_bytes: usize,
    batch_requests: u32,
    sent_bytes: usize,
    outstanding: u32,
    /// Whether the outstanding responses have no body; the next response is in the lowest bit.
    no_bodies: u64,
    /// Whether part of the next response has arrived.
    has_begun: bool,
    timing: Timing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Idle,
    Sending,
    Receiving,
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self {
            state: State::Closed,
            parser: ResponseParser::new(false),
            batch_bytes: 0,
            batch_requests: 0,
            sent_bytes: 0,
            outstanding: 0,
            no_bodies: 0,
            has_begun: false,
            timing: Timing::default(),
        }
    }
}

impl ClientConnection {
    /// Whether a request may begin.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether part of a batch is not sent yet.
    #[inline]
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.state == State::Sending
    }

    /// When the outstanding batch was sent; `None` if no request is outstanding.
    #[must_use]
    pub fn outstanding_since_ns(&self) -> Option<u64> {
        self.has_outstanding().then_some(self.timing.sent_ns)
    }

    /// When the outstanding batch was due; `None` if no request is outstanding.
    #[must_use]
    pub fn outstanding_due_ns(&self) -> Option<u64> {
        self.has_outstanding().then_some(self.timing.due_ns)
    }

    fn has_outstanding(&self) -> bool {
        matches!(self.state, State::Sending | State::Receiving)
    }

    /// The outstanding requests, if any.
    #[must_use]
    pub fn outstanding(&self) -> Option<Outstanding> {
        self.has_outstanding().then(|| self.unanswered())
    }

    /// Number of requests in the last batch.
    #[must_use]
    pub fn batch_requests(&self) -> u32 {
        self.batch_requests
    }

    /// Whether the last batch was answered completely; also known after the connection is closed.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.outstanding == 0
    }

    /// Number of bytes of the last batch that are not sent.
    #[inline]
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.batch_bytes - self.sent_bytes
    }

    /// Starts on a connection that has just been established.
    pub fn opened(&mut self) {
        self.parser.reset();
        self.state = State::Idle;
    }

    /// Begins a batch on an idle connection.
    #[inline]
    pub fn begin(&mut self, due_ns: u64, now_ns: u64, batch: Batch) {
        self.timing = Timing { due_ns, sent_ns: now_ns, first_ns: 0, done_ns: 0 };
        self.follow(batch);
    }

    /// Records when the current batch was handed to the system, if that is later than its beginning.
    #[inline]
    pub fn handed_over(&mut self, now_ns: u64) {
        if self.has_outstanding() {
            self.timing.sent_ns = now_ns;
        }
    }

    /// Begins a batch that follows from the last response and belongs to the same request, such as a redirect. The
    /// request's times do not change.
    #[inline]
    pub fn follow(&mut self, batch: Batch) {
        debug_assert!(self.is_idle(), "one batch at a time");
        self.expect_no_bodies(if batch.expects_no_body { u64::MAX } else { 0 });
        (self.batch_bytes, self.batch_requests) = (batch.bytes, batch.requests);
        self.sent_bytes = 0;
        self.outstanding = batch.requests;
        self.has_begun = false;
        self.state = State::Sending;
    }

    /// Sets for each response of the current batch whether it has no body, if they differ.
    /// [`crate::expect_no_bodies`] computes the mask.
    #[inline]
    pub fn expect_no_bodies(&mut self, mask: u64) {
        self.no_bodies = mask;
        self.parser.expect_no_body(mask & 1 == 1);
    }

    /// Records that the system accepted bytes; returns whether the whole batch is sent.
    #[inline]
    pub fn sent(&mut self, bytes: usize) -> bool {
        self.sent_bytes = self.batch_bytes.min(self.sent_bytes + bytes);
        if self.state == State::Sending && self.sent_bytes == self.batch_bytes {
            self.state = State::Receiving;
            return true;
        }
        false
    }

    /// Takes back the last bytes of a batch: the system had promised to send them and did not.
    pub fn take_back(&mut self, bytes: usize) {
        self.sent_bytes = self.sent_bytes.saturating_sub(bytes);
        if bytes > 0 && self.has_outstanding() {
            self.state = State::Sending;
        }
    }

    /// Reads bytes from the peer up to the end of the first response, or all of them. Returns how many bytes it read,
    /// and the completed response. Passes the head and the body to `sink`.
    ///
    /// # Errors
    /// What is wrong with the bytes; the caller has to close the connection.
    #[inline]
    pub fn receive(
        &mut self,
        input: &[u8],
        now_ns: u64,
        sink: &mut impl Sink,
    ) -> Result<(usize, Option<Answer>), Malformed> {
        if !self.has_outstanding() {
            return Err(Malformed::UnsolicitedBytes);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.timing.first_ns = now_ns;
        }
        let fed = self.parser.feed_into(input, sink)?;
        let answer = fed.response.map(|response| self.answered(response, now_ns));
        Ok((fed.consumed, answer))
    }

    /// Handles the end of the peer's stream; the connection is closed afterwards.
    pub fn ended(&mut self, now_ns: u64) -> Closed {
        let closed = match self.state {
            State::Closed | State::Idle => Closed::Idle,
            State::Sending | State::Receiving => match self.parser.finish() {
                End::Response(response) => Closed::Answered(self.answered(response, now_ns)),
                End::Clean | End::Early => Closed::Early(self.unanswered()),
            },
        };
        self.state = State::Closed;
        closed
    }

    /// Closes the connection; returns the outstanding requests.
    pub fn close(&mut self) -> Option<Outstanding> {
        let outstanding = self.has_outstanding().then(|| self.unanswered());
        self.state = State::Closed;
        outstanding
    }

    fn unanswered(&self) -> Outstanding {
        Outstanding { requests: self.outstanding, was_sent: self.state == State::Receiving }
    }

    #[inline]
    fn answered(&mut self, response: Response, now_ns: u64) -> Answer {
        let was_sent = self.state == State::Receiving;
        self.timing.done_ns = now_ns;
        self.outstanding -= 1;
        self.has_begun = false;
        if self.outstanding > 0 {
            // An arithmetic shift: a batch of more requests than bits has equal bits, and the shift repeats the last
            // one.
            self.expect_no_bodies((self.no_bodies as i64 >> 1) as u64);
        }
        if self.outstanding == 0 {
            self.state = State::Idle;
        }
        Answer { response, timing: self.timing, was_sent, left: self.outstanding }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Batch, ClientConnection, Closed, Outstanding};
    use crate::Malformed;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    const ONE: Batch = Batch { bytes: 30, requests: 1, expects_no_body: false };

    fn connection() -> ClientConnection {
        let mut connection = ClientConnection::default();
        connection.opened();
        connection
    }

    fn receive(connection: &mut ClientConnection, input: &[u8], now_ns: u64) -> Option<Answer> {
        let (used, answer) = connection.receive(input, now_ns, &mut ()).unwrap();
        assert_eq!(used, input.len());
        answer
    }

    #[test]
    fn response_has_the_times_of_its_request() {
        let mut connection = connection();
        connection.begin(100, 130, ONE);
        assert!(!connection.sent(5));
        assert!(connection.sent(25));
        assert_eq!(connection.outstanding_since_ns(), Some(130));
        assert_eq!(connection.outstanding_due_ns(), Some(100));
        assert_eq!(receive(&mut connection, &OK[..20], 150), None);
        let answer = receive(&mut connection, &OK[20..], 170).unwrap();
        let timing = answer.timing;
        assert_eq!((timing.due_ns, timing.sent_ns, timing.first_ns, timing.done_ns), (100, 130, 150, 170));
        assert!(answer.keeps_connection() && answer.left == 0 && connection.is_idle());
        assert_eq!(connection.outstanding_since_ns(), None);
    }

    #[test]
    fn a_batch_is_answered_one_by_one() {
        let mut connection = connection();
        connection.begin(0, 1, Batch { bytes: 90, requests: 3, expects_no_body: false });
        connection.sent(90);
        let all = [OK, OK, OK].concat();
        let mut at = 0;
        for left in [2, 1, 0] {
            let now_ns = 10 * u64::from(3 - left);
            let (used, answer) = connection.receive(&all[at..], now_ns, &mut ()).unwrap();
            at += used;
            let answer = answer.unwrap();
            assert_eq!((answer.left, answer.timing.first_ns, answer.timing.done_ns), (left, now_ns, now_ns));
            assert_eq!(connection.is_idle(), left == 0);
        }
        assert_eq!(at, all.len());
        connection.begin(0, 1, Batch { bytes: 90, requests: 3, expects_no_body: false });
        connection.sent(90);
        assert_eq!(receive(&mut connection, OK, 2).unwrap().left, 2);
        assert_eq!(connection.ended(3), Closed::Early(Outstanding { requests: 2, was_sent: true }));
    }

    #[test]
    fn batch_may_mix_head_with_other_methods() {
        let requests = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nHEAD /b HTTP/1.1\r\nHost: a\r\n\r\nPOST /c HTTP/1.1\r\n\
            Host: a\r\nContent-Length: 6\r\n\r\nHEAD /HEAD /d HTTP/1.1\r\nHost: a\r\n\r\n";
        let mask = crate::expect_no_bodies(requests).unwrap();
        assert_eq!(mask & 0b1111, 0b1010);
        let mut connection = connection();
        connection.begin(0, 1, Batch { bytes: requests.len(), requests: 4, expects_no_body: false });
        connection.expect_no_bodies(mask);
        connection.sent(requests.len());
        let bare = &OK[..OK.len() - 2];
        for (answer, left) in [(OK, 3), (bare, 2), (OK, 1), (bare, 0)] {
            assert_eq!(receive(&mut connection, answer, 2).unwrap().left, left);
        }
        assert!(connection.is_idle());
    }

    #[test]
    fn large_batch_is_all_head_or_without_head() {
        let (get, head) = ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(crate::expect_no_bodies(get.repeat(100).as_bytes()), Some(0));
        assert_eq!(crate::expect_no_bodies(head.repeat(100).as_bytes()), Some(u64::MAX));
        assert_eq!(crate::expect_no_bodies((get.repeat(64) + head).as_bytes()), None);
        assert_eq!(crate::expect_no_bodies(b"not a request"), Some(0));
        let mut connection = connection();
        connection.begin(0, 1, Batch { bytes: 9, requests: 100, expects_no_body: true });
        connection.sent(9);
        let answers = OK[..OK.len() - 2].repeat(100);
        let mut at = 0;
        while at < answers.len() {
            at += connection.receive(&answers[at..], 2, &mut ()).unwrap().0;
        }
        assert!(connection.is_idle());
    }

    #[test]
    fn a_redirect_keeps_the_instants_of_its_first_request() {
        let mut connection = connection();
        connection.begin(5, 6, ONE);
        connection.sent(30);
        receive(&mut connection, OK, 7).unwrap();
        connection.follow(Batch { bytes: 10, requests: 1, expects_no_body: true });
        connection.sent(10);
        let answer = receive(&mut connection, &OK[..OK.len() - 2], 9).unwrap();
        assert_eq!((answer.timing.due_ns, answer.timing.sent_ns, answer.timing.done_ns), (5, 6, 9));
    }

    #[test]
    fn promised_bytes_that_were_not_sent_can_be_taken_back() {
        let mut connection = connection();
        connection.take_back(1);
        assert!(connection.is_idle());
        connection.begin(0, 0, ONE);
        assert!(connection.sent(30));
        connection.take_back(3);
        assert!(connection.is_sending());
        assert_eq!(connection.close(), Some(Outstanding { requests: 1, was_sent: false }));
    }

    #[test]
    fn early_response_is_the_last_of_its_connection() {
        let mut connection = connection();
        connection.begin(0, 0, ONE);
        connection.sent(1);
        let answer = receive(&mut connection, OK, 1).unwrap();
        assert!(!answer.was_sent && !answer.keeps_connection());
    }

    #[test]
    fn unsolicited_bytes_are_malformed() {
        let mut connection = connection();
        assert_eq!(connection.receive(OK, 1, &mut ()), Err(Malformed::UnsolicitedBytes));
        connection.begin(0, 0, ONE);
        connection.sent(30);
        let twice = [OK, OK].concat();
        let (used, answer) = connection.receive(&twice, 1, &mut ()).unwrap();
        assert!(used == OK.len() && answer.is_some());
        assert_eq!(connection.receive(&twice[used..], 1, &mut ()), Err(Malformed::UnsolicitedBytes));
    }

    #[test]
    fn end_of_connection_depends_on_its_state() {
        let mut connection = connection();
        assert_eq!(connection.ended(1), Closed::Idle);
        connection.opened();
        connection.begin(0, 0, ONE);
        assert_eq!(connection.ended(1), Closed::Early(Outstanding { requests: 1, was_sent: false }));
        connection.opened();
        connection.begin(0, 0, ONE);
        connection.sent(30);
        receive(&mut connection, &OK[..30], 1);
        assert_eq!(connection.ended(1), Closed::Early(Outstanding { requests: 1, was_sent: true }));
        connection.opened();
        connection.begin(5, 6, ONE);
        connection.sent(30);
        receive(&mut connection, b"HTTP/1.0 200 OK\r\n\r\nabc", 7);
        let Closed::Answered(answer) = connection.ended(8) else { panic!("no answer") };
        assert_eq!((answer.response.body_bytes, answer.timing.done_ns), (3, 8));
        assert_eq!(connection.close(), None);
    }
}
