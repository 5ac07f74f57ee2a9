//! One connection as a client drives it, the same for closed and open loops. Owns which request is outstanding, how
//! much of it has gone, and its three instants. Refuses pipelining: one request is outstanding at a time, so that a
//! latency is the server's and not a queue's in front of it.
//!
//! | State     | `opened` | `begin` | `sent` (all)  | `receive` (whole answer)        | `ended`, `close` |
//! |-----------|----------|---------|---------------|---------------------------------|------------------|
//! | closed    | idle     |         |               |                                 | closed           |
//! | idle      |          | sending |               | error: unsolicited bytes        | closed           |
//! | sending   |          |         | receiving     | idle; the caller has to close   | closed           |
//! | receiving |          |         |               | idle; the caller may have to close | closed        |
//!
//! `take_back` turns receiving into sending: what was said to be sent was not.

use crate::{End, Malformed, RequestTemplate, Response, ResponseParser};

/// The three instants of a request, ns on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// When it was to be sent.
    pub due_ns: u64,
    /// When its first byte was offered to the system.
    pub sent_ns: u64,
    /// When its answer's last byte had been read.
    pub done_ns: u64,
}

/// A request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The response.
    pub response: Response,
    /// When the request was due, sent and done.
    pub timing: Timing,
    /// Whether the request had gone out whole before its answer came.
    pub was_sent: bool,
}

/// What received bytes led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The answer is not whole yet.
    Partial,
    /// It is, and the connection may carry the next request.
    Answered(Answer),
    /// It is, and the connection has to be closed.
    AnsweredLast(Answer),
    /// It is, and more bytes than it has came with it: the connection has to be closed.
    AnsweredWithSurplus(Answer),
}

/// What it means that the peer closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing was outstanding.
    Idle,
    /// That was the end of the answer.
    Answered(Answer),
    /// The outstanding request will not be answered.
    Early {
        /// Whether it had gone out whole.
        was_sent: bool,
    },
}

/// One connection's state.
#[derive(Debug)]
pub struct ClientConnection {
    state: State,
    parser: ResponseParser,
    request_bytes: usize,
    sent_bytes: usize,
    timing: Timing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Idle,
    Sending,
    Receiving,
}

impl ClientConnection {
    /// A connection, still closed, for one kind of request.
    #[must_use]
    pub fn new(template: &RequestTemplate) -> Self {
        Self {
            state: State::Closed,
            parser: ResponseParser::new(template.expects_no_body()),
            request_bytes: template.bytes().len(),
            sent_bytes: 0,
            timing: Timing::default(),
        }
    }

    /// Whether a request may begin.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether part of a request has still to be sent.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.state == State::Sending
    }

    /// When the outstanding request was sent, if there is one.
    #[must_use]
    pub fn outstanding_since_ns(&self) -> Option<u64> {
        matches!(self.state, State::Sending | State::Receiving).then_some(self.timing.sent_ns)
    }

    /// When the outstanding request was due, if there is one.
    #[must_use]
    pub fn outstanding_due_ns(&self) -> Option<u64> {
        matches!(self.state, State::Sending | State::Receiving).then_some(self.timing.due_ns)
    }

    /// Takes up a connection that has just been established.
    pub fn opened(&mut self) {
        self.parser.reset();
        self.state = State::Idle;
    }

    /// Begins a request on an idle connection; [`ClientConnection::unsent_from`] says what to send.
    pub fn begin(&mut self, due_ns: u64, now_ns: u64) {
        debug_assert!(self.is_idle(), "one request at a time");
        self.timing = Timing { due_ns, sent_ns: now_ns, done_ns: 0 };
        self.sent_bytes = 0;
        self.state = State::Sending;
    }

    /// The first byte of the template that has not been sent.
    #[must_use]
    pub fn unsent_from(&self) -> usize {
        self.sent_bytes
    }

    /// Takes note of bytes that the system accepted; says whether the request is out.
    pub fn sent(&mut self, bytes: usize) -> bool {
        self.sent_bytes = self.request_bytes.min(self.sent_bytes + bytes);
        if self.state == State::Sending && self.sent_bytes == self.request_bytes {
            self.state = State::Receiving;
            return true;
        }
        false
    }

    /// Takes back the last bytes of an outstanding request: the system had promised to accept them and did not.
    pub fn take_back(&mut self, bytes: usize) {
        if bytes > 0 && matches!(self.state, State::Sending | State::Receiving) {
            self.sent_bytes = self.sent_bytes.saturating_sub(bytes);
            self.state = State::Sending;
        }
    }

    /// Takes bytes from the peer.
    ///
    /// # Errors
    /// What is wrong with them; the connection has to be closed then.
    #[inline]
    pub fn receive(&mut self, input: &[u8], now_ns: u64) -> Result<Received, Malformed> {
        if !matches!(self.state, State::Sending | State::Receiving) {
            return Err(Malformed::UnsolicitedBytes);
        }
        let fed = self.parser.feed(input)?;
        let Some(response) = fed.response else { return Ok(Received::Partial) };
        let answer = self.answered(response, now_ns);
        Ok(if fed.consumed < input.len() {
            Received::AnsweredWithSurplus(answer)
        } else if response.keep_alive && answer.was_sent {
            Received::Answered(answer)
        } else {
            // What is left of a request that was answered early would be read as the next one.
            Received::AnsweredLast(answer)
        })
    }

    /// Takes the peer's end of the connection, which is closed then.
    pub fn ended(&mut self, now_ns: u64) -> Closed {
        let closed = match self.state {
            State::Closed | State::Idle => Closed::Idle,
            State::Sending | State::Receiving => match self.parser.finish() {
                End::Response(response) => Closed::Answered(self.answered(response, now_ns)),
                End::Clean | End::Early => Closed::Early { was_sent: self.state == State::Receiving },
            },
        };
        self.state = State::Closed;
        closed
    }

    /// Gives the connection up; says whether a request was outstanding, and if so whether it had gone out whole.
    pub fn close(&mut self) -> Option<bool> {
        let outstanding = match self.state {
            State::Closed | State::Idle => None,
            State::Sending => Some(false),
            State::Receiving => Some(true),
        };
        self.state = State::Closed;
        outstanding
    }

    fn answered(&mut self, response: Response, now_ns: u64) -> Answer {
        let was_sent = self.state == State::Receiving;
        self.timing.done_ns = now_ns;
        self.state = State::Idle;
        Answer { response, timing: self.timing, was_sent }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientConnection, Closed, Received};
    use crate::{Malformed, RequestTemplate, Url};

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

    fn connection() -> (ClientConnection, usize) {
        let template = RequestTemplate::new("GET", &Url::parse("http://a/").unwrap(), [], None).unwrap();
        let mut connection = ClientConnection::new(&template);
        connection.opened();
        (connection, template.bytes().len())
    }

    #[test]
    fn a_request_and_its_answer() {
        let (mut connection, length) = connection();
        connection.begin(100, 130);
        assert!(!connection.sent(5));
        assert_eq!(connection.unsent_from(), 5);
        assert!(connection.sent(length - 5));
        assert_eq!(connection.outstanding_since_ns(), Some(130));
        assert_eq!(connection.outstanding_due_ns(), Some(100));
        assert_eq!(connection.receive(&OK[..20], 150), Ok(Received::Partial));
        let Ok(Received::Answered(answer)) = connection.receive(&OK[20..], 170) else { panic!("no answer") };
        assert_eq!((answer.timing.due_ns, answer.timing.sent_ns, answer.timing.done_ns), (100, 130, 170));
        assert!(answer.was_sent && connection.is_idle());
        assert_eq!(connection.outstanding_since_ns(), None);
    }

    #[test]
    fn what_was_promised_and_not_sent_is_taken_back() {
        let (mut connection, length) = connection();
        connection.take_back(1);
        assert!(connection.is_idle());
        connection.begin(0, 0);
        assert!(connection.sent(length));
        connection.take_back(3);
        assert!(connection.is_sending());
        assert_eq!(connection.unsent_from(), length - 3);
        assert_eq!(connection.close(), Some(false));
    }

    #[test]
    fn an_early_answer_is_an_answer_and_the_last() {
        let (mut connection, _) = connection();
        connection.begin(0, 0);
        connection.sent(1);
        let Ok(Received::AnsweredLast(answer)) = connection.receive(OK, 1) else { panic!("no answer") };
        assert!(!answer.was_sent);
    }

    #[test]
    fn bytes_that_nobody_asked_for() {
        let (mut connection, length) = connection();
        assert_eq!(connection.receive(OK, 1), Err(Malformed::UnsolicitedBytes));
        connection.begin(0, 0);
        connection.sent(length);
        let twice = [OK, OK].concat();
        assert!(matches!(connection.receive(&twice, 1), Ok(Received::AnsweredWithSurplus(_))));
    }

    #[test]
    fn ends() {
        let (mut connection, length) = connection();
        assert_eq!(connection.ended(1), Closed::Idle);
        connection.opened();
        connection.begin(0, 0);
        assert_eq!(connection.ended(1), Closed::Early { was_sent: false });
        connection.opened();
        connection.begin(0, 0);
        connection.sent(length);
        connection.receive(&OK[..30], 1).unwrap();
        assert_eq!(connection.ended(1), Closed::Early { was_sent: true });
        connection.opened();
        connection.begin(5, 6);
        connection.sent(length);
        connection.receive(b"HTTP/1.0 200 OK\r\n\r\nabc", 7).unwrap();
        let Closed::Answered(answer) = connection.ended(8) else { panic!("no answer") };
        assert_eq!((answer.response.body_bytes, answer.timing.done_ns), (3, 8));
        assert_eq!(connection.close(), None);
    }
}
