//! Taking answers, in clear or through TLS, and giving connections their next request: from the set of requests, or from a
//! script. Owns what an answer is counted as, so that each request ends in one way, and what follows from it.

use std::net::SocketAddr;

use leadline_http::{Answer, Batch, Closed, Malformed, Picker, Sink};
use leadline_stats::Histogram;
use leadline_sys::clock::{monotonic_ns, realtime_ns};

use super::io_backend::IoBackend;
use super::redirect;
use super::scripted::Scripted;
use super::worker::{Metric, Worker};

/// Where requests come from.
pub enum Source {
    /// The plan's, in turn.
    Fixed(Picker),
    /// A script.
    Script(Box<Scripted>),
}

impl Source {
    /// Requests that go out in one piece.
    pub fn batch(&self) -> u32 {
        match self {
            Source::Fixed(_) => 1,
            Source::Script(script) => script.batch(),
        }
    }

    /// Whether header fields and bodies of answers are wanted.
    pub fn captures(&self) -> bool {
        matches!(self, Source::Script(script) if script.wants_answers())
    }

    /// Where this thread's connections go, where that is not the plan's.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Source::Fixed(_) => None,
            Source::Script(script) => script.address(),
        }
    }

    /// The script, to be heard once more at the end.
    pub fn into_script(self) -> Option<Box<Scripted>> {
        match self {
            Source::Fixed(_) => None,
            Source::Script(script) => Some(script),
        }
    }
}

/// What is kept of an answer for those that look into it.
#[derive(Debug)]
pub struct Capture {
    keeps_body: bool,
    /// Names and values, one after the other, and where each pair begins, parts and ends.
    text: Vec<u8>,
    pub fields: Vec<(usize, usize, usize)>,
    pub body: Vec<u8>,
    /// Whether there was more than is kept.
    pub is_cut: bool,
}

/// The longest body that a script is shown, bytes.
const CAPTURE_LIMIT_BYTES: usize = 64 << 20;
/// A buffer that was larger is given back after its answer, bytes.
const KEPT_BYTES: usize = 256 << 10;

impl Capture {
    /// Of header fields, and with `keeps_body` of the body.
    pub fn new(keeps_body: bool) -> Self {
        Self { keeps_body, text: Vec::new(), fields: Vec::new(), body: Vec::new(), is_cut: false }
    }

    /// Name and value of each field.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|&(from, middle, to)| (&self.text[from..middle], &self.text[middle..to]))
    }

    /// The value of the last field of this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().filter(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes())).last().map(|(_, value)| value)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
        self.body.clear();
        self.body.shrink_to(KEPT_BYTES);
        self.is_cut = false;
    }
}

impl Sink for Capture {
    fn status(&mut self, _status: u16) {
        self.clear();
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let to = self.text.len();
        match self.fields.last_mut() {
            Some(last) if name.is_empty() => last.2 = to,
            _ => self.fields.push((from, from + name.len(), to)),
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.keeps_body {
            let room = CAPTURE_LIMIT_BYTES - self.body.len();
            self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.is_cut |= bytes.len() > room;
        }
    }
}

impl<B: IoBackend> Worker<B> {
    /// Bytes came.
    #[inline]
    pub fn receive(&mut self, index: usize, at_ns: u64) {
        if let Some(stamp_ns) = self.backend.stamp_ns() {
            self.compare_with_stamp(stamp_ns, at_ns);
        }
        if self.connections[index].tls.is_some() {
            return self.unseal(index, at_ns);
        }
        let epoch = self.connections[index].epoch;
        let mut at = 0;
        loop {
            let Self { backend, connections, .. } = self;
            let rest = &backend.received()[at..];
            let length = rest.len();
            let connection = &mut connections[index];
            let fed = match &mut connection.capture {
                None => connection.machine.receive(rest, at_ns, &mut ()),
                Some(capture) => connection.machine.receive(rest, at_ns, &mut **capture),
            };
            match fed {
                Ok((used, answer)) => {
                    at += used;
                    self.on_response(index, used, answer, used < length);
                }
                Err(cause) => {
                    self.counters.received(length as u64, 0);
                    return self.fail(index, cause.name(), || cause.explanation().to_owned());
                }
            }
            if length == 0 || at >= self.backend.received().len() || self.connections[index].epoch != epoch {
                return;
            }
        }
    }

    /// Takes what some bytes of an answer led to. Nothing more is begun here while more bytes of the same piece are left.
    #[inline]
    fn on_response(&mut self, index: usize, used: usize, answer: Option<Answer>, is_more: bool) {
        self.counters.received(used as u64, 0);
        let Some(answer) = answer else { return };
        if answer.left > 0 {
            self.answered(index, &answer);
            if !answer.goes_on() {
                self.on_early_close(index, &answer);
            }
            return;
        }
        if is_more {
            return self.on_excess_bytes(index, &answer);
        }
        if self.plan.redirects > 0 && self.follow(index, &answer) {
            return;
        }
        self.answered(index, &answer);
        let connection = &mut self.connections[index];
        connection.served += u64::from(connection.machine.batch_requests());
        if answer.goes_on() && connection.served < self.plan.requests_per_connection {
            self.next(index, answer.timing.done_ns, answer.timing.done_ns);
        } else {
            self.reopen(index, Some(answer.timing.done_ns));
        }
    }

    /// More came than was asked for. What of it is the answer cannot be known, so that the request has none, and the
    /// connection cannot be trusted any further.
    fn on_excess_bytes(&mut self, index: usize, answer: &Answer) {
        if !answer.was_sent {
            self.counters.sent(0, 1);
        }
        self.tally.last_ns = Some(answer.timing.done_ns);
        self.failures
            .count(Malformed::UnsolicitedBytes.name(), 1, || Malformed::UnsolicitedBytes.explanation().to_owned());
        self.reopen(index, None);
    }

    /// The server ends the connection before it has answered the whole batch.
    fn on_early_close(&mut self, index: usize, answer: &Answer) {
        self.record_age(index, answer.timing.done_ns);
        let message = "the server ended the connection before it had answered all pipelined requests";
        self.failures.count("closed_early", u64::from(answer.left), || message.to_owned());
        self.reopen(index, Some(answer.timing.done_ns));
    }

    /// Takes ciphertext. Plaintext is copied once, which spares a borrow that would last too long.
    fn unseal(&mut self, index: usize, at_ns: u64) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let Self { backend, connections, out, .. } = self;
        let connection = &mut connections[index];
        let Some(tls) = &mut connection.tls else { return };
        let was_handshaking = tls.is_handshaking();
        let taken = tls.receive_with(backend.received(), |bytes| plain.extend_from_slice(bytes));
        out.clear();
        if tls.has_output() {
            tls.take_output(out);
        }
        let (is_handshaking, is_over, epoch) = (tls.is_handshaking(), tls.peer_closed(), connection.epoch);
        if !out.is_empty() {
            let answer = std::mem::take(out);
            // That it cannot be sent is told by the connection's end.
            let _ = self.send_records(index, &answer);
            self.out = answer;
        }
        if was_handshaking && !is_handshaking {
            let since_ns = self.connections[index].machine.outstanding_since_ns().unwrap_or(at_ns);
            self.shook_hands(index, since_ns, at_ns);
        }
        let mut at = 0;
        while at < plain.len() && self.connections[index].epoch == epoch {
            let connection = &mut self.connections[index];
            let rest = &plain[at..];
            let fed = match &mut connection.capture {
                None => connection.machine.receive(rest, at_ns, &mut ()),
                Some(capture) => connection.machine.receive(rest, at_ns, &mut **capture),
            };
            match fed {
                Ok((used, answer)) => {
                    at += used;
                    self.on_response(index, used, answer, at < plain.len());
                }
                Err(cause) => {
                    self.counters.received(rest.len() as u64, 0);
                    self.fail(index, cause.name(), || cause.explanation().to_owned());
                }
            }
        }
        self.plain = plain;
        if self.connections[index].epoch != epoch {
            return;
        }
        match taken {
            Err(failure) => self.fail(index, failure.name, || failure.detail.clone()),
            Ok(()) if is_over => self.ended(index, at_ns),
            Ok(()) => {}
        }
    }

    /// What the kernel had long before we read it is the generator's delay and not the server's.
    fn compare_with_stamp(&mut self, stamp_ns: u64, at_ns: u64) {
        let since_reading_ns = monotonic_ns().saturating_sub(at_ns);
        let waited_ns = realtime_ns().saturating_sub(stamp_ns).saturating_sub(since_reading_ns);
        let due_ns = self.tally.first_sent_ns.map_or(u64::MAX, |_| at_ns);
        self.recorder.record(Metric::KernelWait as usize, due_ns, waited_ns);
    }

    /// Counts an answer, unless the script that looks at it fails: then that is what became of its request.
    #[inline]
    fn answered(&mut self, index: usize, answer: &Answer) {
        let timing = answer.timing;
        if !answer.was_sent {
            self.counters.sent(0, 1);
        }
        self.tally.last_ns = Some(timing.done_ns);
        if let Source::Script(_) = self.source {
            if let Err(error) = self.show_script(index, answer) {
                return self.script_failed(&error, 1);
            }
        }
        self.counters.received(0, 1);
        let status = answer.response.status;
        self.tally.body_bytes += answer.response.body_bytes;
        self.tally.status[usize::from(status / 100) % 10] += 1;
        if status >= 400 {
            self.bad_status(index, status);
        }
        let mut record = |metric, place| self.recorder.record_at(metric as usize, timing.due_ns, place);
        let service = Histogram::place(timing.done_ns.saturating_sub(timing.sent_ns));
        let transfer_ns = timing.done_ns - timing.first_ns;
        // Most answers come in one piece.
        let first_byte = match transfer_ns {
            0 => service,
            _ => Histogram::place(timing.first_ns.saturating_sub(timing.sent_ns)),
        };
        record(Metric::Latency, Histogram::place(timing.done_ns.saturating_sub(timing.due_ns)));
        record(Metric::Service, service);
        record(Metric::FirstByte, first_byte);
        record(Metric::Transfer, Histogram::place(transfer_ns));
    }

    /// Keeps the first example of each class.
    fn bad_status(&mut self, index: usize, status: u16) {
        let connection = &self.connections[index];
        let request = connection.request as usize;
        let source =
            connection.redirected.as_deref().unwrap_or(&self.plan.sources[request.min(self.plan.sources.len() - 1)]);
        self.failures.example(&format!("status_{}xx", status / 100), || {
            format!("{} {}: {status}", source.method, source.url.target)
        });
    }

    fn show_script(&mut self, index: usize, answer: &Answer) -> Result<(), String> {
        let Source::Script(script) = &mut self.source else { return Ok(()) };
        if let Some(capture) = self.connections[index].capture.as_deref() {
            script.response(answer.response.status, capture)?;
        }
        if script.stopped() {
            self.stopped_ns = Some(answer.timing.done_ns);
        }
        Ok(())
    }

    /// A script that fails ends its thread: it would fail again.
    pub fn script_failed(&mut self, error: &str, requests: u32) {
        self.failures.count("script_error", u64::from(requests), || error.to_owned());
        self.stopped_ns.get_or_insert(monotonic_ns());
    }

    /// Follows a redirect if that was asked for; says whether it did.
    #[inline]
    fn follow(&mut self, index: usize, answer: &Answer) -> bool {
        let connection = &self.connections[index];
        if connection.redirects_left == 0 || answer.response.status / 100 != 3 || !answer.goes_on() {
            return false;
        }
        let Some(location) = connection.capture.as_ref().and_then(|capture| capture.field("location")) else {
            return false;
        };
        // RFC 9110, 10.2.2: a relative reference is resolved against the URI of the request that was redirected.
        let source = connection.redirected.as_deref().unwrap_or(&self.plan.sources[connection.request as usize]);
        let Some((source, next)) = redirect::next(source, answer.response.status, location) else { return false };
        let batch = Batch { bytes: next.bytes().len(), requests: 1, expects_no_body: next.expects_no_body() };
        self.tally.redirects += 1;
        self.tally.body_bytes += answer.response.body_bytes;
        let connection = &mut self.connections[index];
        connection.redirects_left -= 1;
        connection.redirected = Some(Box::new(source));
        connection.machine.follow(batch);
        // It has been counted with the request that it follows from.
        self.counters.not_sent(0, 1);
        self.send_whole(index, next.bytes());
        true
    }

    /// Gives a connection its next request, or lets it wait for one. It is wanted since `wanted_ns` and can carry one since
    /// `free_ns`: later, where it had to be opened anew in between.
    #[inline]
    pub fn next(&mut self, index: usize, wanted_ns: u64, free_ns: u64) {
        if let Source::Script(script) = &mut self.source {
            if self.stopped_ns.is_some() {
                return;
            }
            match script.delay_ms() {
                Ok(0) => {}
                Ok(delay_ms) => {
                    let ready_ns = monotonic_ns() + delay_ms * 1_000_000;
                    let epoch = self.connections[index].epoch;
                    return self.delayed.push(std::cmp::Reverse((ready_ns, index, epoch)));
                }
                Err(error) => {
                    // The request that was to wait fails, where one is due; else it is an error without a request.
                    let requests = script.batch();
                    let is_due = self.schedule.take(free_ns, wanted_ns).is_some();
                    return self.script_failed(&error, if is_due { requests } else { 1 });
                }
            }
        }
        self.offer(index, wanted_ns, free_ns);
    }

    /// As [`Worker::next`], once a script has had its say.
    #[inline]
    pub fn offer(&mut self, index: usize, wanted_ns: u64, free_ns: u64) {
        // Whether it is time is asked of the instant when it became free: answers of one wait are all there at once.
        match self.schedule.take(free_ns, wanted_ns) {
            Some(due_ns) => {
                // The longest idle connection could have taken it, had this one not come first.
                let free_ns = self.idle.front().map_or(free_ns, |&idle| self.connections[idle].free_ns);
                self.begin(index, due_ns, free_ns);
            }
            None => {
                let connection = &mut self.connections[index];
                (connection.is_queued, connection.free_ns) = (true, free_ns);
                self.idle.push_back(index);
            }
        }
    }

    /// The peer has ended the connection.
    pub fn ended(&mut self, index: usize, at_ns: u64) {
        drop(self.detach(index));
        let connection = &mut self.connections[index];
        let broken = connection.broken;
        let closed = match &mut connection.tls {
            // Without the peer's word that nothing follows, what ends with the connection may have been cut.
            Some(tls) if connection.machine.outstanding_since_ns().is_some() => match tls.end() {
                Err(failure) => return self.fail(index, failure.name, || failure.detail.clone()),
                Ok(()) => connection.machine.ended(at_ns),
            },
            _ => connection.machine.ended(at_ns),
        };
        match closed {
            Closed::Idle => return self.lost_idle(index),
            Closed::Answered(answer) => {
                self.answered(index, &answer);
                if answer.left > 0 {
                    return self.on_early_close(index, &answer);
                }
                return self.reopen(index, Some(at_ns));
            }
            Closed::Early(outstanding) => {
                self.tally.last_ns = Some(monotonic_ns());
                let message = "the server hung up before it had answered";
                let name = broken.unwrap_or("closed_early");
                self.failures.count(name, u64::from(outstanding.requests), || message.to_owned());
            }
        }
        self.reopen(index, None);
    }

    /// Counts a connection's failure under its one name, with the requests that were outstanding if there were any.
    pub fn fail(&mut self, index: usize, name: &str, example: impl FnOnce() -> String) {
        drop(self.detach(index));
        let outstanding = self.connections[index].machine.close();
        // A server may drop a connection that is idle; only what it sends unasked is an error then.
        if outstanding.is_none() && name != Malformed::UnsolicitedBytes.name() {
            return self.lost_idle(index);
        }
        if outstanding.is_some() {
            self.tally.last_ns = Some(monotonic_ns());
        }
        let requests = outstanding.map_or(1, |outstanding| outstanding.requests);
        let name = self.connections[index].broken.unwrap_or(name);
        self.failures.count(name, u64::from(requests), example);
        self.reopen(index, None);
    }
}
