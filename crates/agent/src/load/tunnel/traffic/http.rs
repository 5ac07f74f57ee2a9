//! HTTP requests over one connection per client, one after another, at a rate or back to back. Latency counts from
//! when a request was due; a request without a response has at least the latency of its age when it is given up. The
//! session is the same machine as outside a tunnel; a connection that ends is opened again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_http::client::{Sent, Session};
use leadline_http::{Answer, Batch, Closed, Malformed, RequestTemplate, Url};
use leadline_pace::Pace;
use leadline_tunnel::inside::tcp::{Buffers, Connection, Stack};
use leadline_tunnel::timer::earlier;
use leadline_wire::{unless_zero, Direction, ErrorReport, HttpRequest, StatusCounts, TrafficCounts};

use super::interface::{count, Channel, ClientContext, Figures, Traffic, TrafficPlan};
use super::schedule::{row, Latency, Schedule};
use super::target::server;
use crate::events::input_error;
use crate::load::tunnel::metric::Metric;

/// The buffers of a connection.
const BUFFERS: Buffers = Buffers { receive_bytes: 64 << 10, send_bytes: 16 << 10 };
/// The time limit of a response, ns; then its connection is closed.
const TIMEOUT_NS: u64 = 10_000_000_000;
/// How long responses are waited for after the end, ns.
const DRAIN_NS: u64 = 5_000_000_000;
/// The pause before a client connects again after a failure, ns.
const REST_NS: u64 = 500_000_000;
/// How long after the end requests that were due before it may still begin, ns.
const OVERTIME_NS: u64 = super::schedule::OVERTIME_NS;
/// Requests that have been outstanding for longer than this at the end are counted separately, ns.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// The maximum number of unsent requests of all clients whose age is recorded; further ones are counted separately.
const MOST_AGED: u64 = 10_000_000;

/// The HTTP traffic of all clients.
pub struct HttpPlan {
    server: SocketAddr,
    request: Arc<RequestTemplate>,
    pace: Option<Pace>,
    duration_ns: u64,
    seed: u64,
}

impl HttpPlan {
    /// Checks the specification.
    pub fn new(
        request: &HttpRequest,
        rate_per_s: Option<f64>,
        duration_ms: u64,
        seed: u64,
    ) -> Result<Self, ErrorReport> {
        let url = Url::parse(&request.url).map_err(|error| input_error("bad_url", error.to_string()))?;
        if url.is_https {
            return Err(input_error("bad_url", "http: requests inside of a tunnel go over plain http://"));
        }
        let refused = |rate| input_error("bad_rate", format!("http: {rate} requests/s is no rate"));
        let pace = rate_per_s.map(|rate| Pace::per_second(rate).ok_or_else(|| refused(rate))).transpose()?;
        let body = request.body_base64.as_deref().map(|text| BASE64_STANDARD.decode(text)).transpose();
        let body = body.map_err(|error| input_error("bad_body", format!("body_base64: {error}")))?;
        let headers = request.headers.iter().map(|header| (header.name.as_str(), header.value.as_str()));
        let template = RequestTemplate::new(&request.method, &url, headers, body.as_deref());
        let request = Arc::new(template.map_err(|error| input_error("bad_request", error.to_string()))?);
        let server = server("http", &url.host, url.port)?;
        Ok(Self { server, request, pace, duration_ns: duration_ms.saturating_mul(1_000_000), seed })
    }
}

impl TrafficPlan for HttpPlan {
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str> {
        let has_address = if self.server.is_ipv4() { context.ipv4.is_some() } else { context.ipv6.is_some() };
        if !has_address {
            return Err("no_address");
        }
        context.carries_tcp()?;
        let seed = self.seed ^ u64::from(context.client).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Box::new(HttpTraffic {
            client: context.client,
            clients: u64::from(context.clients.max(1)),
            server: self.server,
            request: Arc::clone(&self.request),
            schedule: self.pace.map(|pace| Schedule::new(pace, context, self.duration_ns)),
            duration_ns: self.duration_ns,
            start_ns: None,
            stack: Box::new(Stack::new(context.ipv4, context.ipv6, context.mtu, seed, 0)),
            connection: None,
            connect_ns: None,
            local: None,
            session: Session::default(),
            deadline_ns: Some(0),
            tally: Tally::default(),
        }))
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns
    }
}

struct HttpTraffic {
    client: u32,
    /// The number of clients in the whole fleet.
    clients: u64,
    server: SocketAddr,
    request: Arc<RequestTemplate>,
    /// When requests are due; back to back if absent.
    schedule: Option<Schedule>,
    duration_ns: u64,
    /// When requests may begin, ns; set by `start`. The connection is opened before.
    start_ns: Option<u64>,
    stack: Box<Stack>,
    connection: Option<Connection>,
    /// When to connect, ns; without effect while there is a connection. `None`: at the next `poll`.
    connect_ns: Option<u64>,
    local: Option<SocketAddr>,
    session: Session,
    /// The next request, connection, timeout or packet of TCP; `None` if only a received packet calls for work, and once
    /// it is done.
    deadline_ns: Option<u64>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    /// Requests that were begun, were sent completely, and were answered.
    begun: u64,
    sent: u64,
    answered: u64,
    sent_bytes: u64,
    received_bytes: u64,
    /// Requests that were sent completely and not answered by the end; those of them that had been outstanding for
    /// long.
    unanswered: u64,
    unanswered_long: u64,
    /// Requests that were begun and not sent completely by the end.
    unfinished: u64,
    latency: Latency,
    connections: u64,
    status: [u64; 10],
    /// When the first request began, ns.
    first_ns: Option<u64>,
    /// Since when the connection has been free for a request.
    free_ns: u64,
    /// When the last response arrived, if no request has begun since then. Back to back, the next request is due from
    /// this instant on, even if its connection has to be opened again.
    answered_ns: Option<u64>,
    /// When no further request was due, ns; no connection is opened after that.
    ended_ns: Option<u64>,
    is_done: bool,
    errors: BTreeMap<&'static str, u64>,
}

impl HttpTraffic {
    /// Opens a connection if there is none, and handles the state of an existing one.
    fn keep_connected(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        if self.connection.is_some_and(|connection| self.stack.error(connection).is_some()) {
            // A response that arrived just before the failure is complete.
            self.read(now_ns, channel);
        }
        if let Some(connection) = self.connection {
            if let Some(error) = self.stack.error(connection) {
                if self.session.exchange.is_idle() {
                    // A server may end an idle connection.
                    self.close(now_ns);
                } else {
                    count(&mut self.tally.errors, error.name());
                    self.close(now_ns + REST_NS);
                }
            } else if self.stack.is_at_end(connection) {
                self.far_end_closed(now_ns, channel);
            } else if !self.has_opened() && self.stack.is_writable(connection) {
                self.session.exchange.opened();
                self.tally.connections += 1;
                self.tally.free_ns = now_ns;
            }
        }
        if self.connection.is_none()
            && self.connect_ns.is_none_or(|at_ns| now_ns >= at_ns)
            && self.tally.ended_ns.is_none()
        {
            match self.stack.connect(now_ns, self.server, BUFFERS) {
                Ok(connection) => {
                    self.local = Some(self.stack.local(connection));
                    self.connection = Some(connection);
                }
                Err(error) => {
                    count(&mut self.tally.errors, error.name());
                    self.connect_ns = Some(now_ns + REST_NS);
                }
            }
        }
    }

    fn has_opened(&self) -> bool {
        self.session.exchange.is_idle() || self.session.exchange.outstanding().is_some()
    }

    fn far_end_closed(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        match self.session.end(now_ns).0 {
            Closed::Idle => {}
            Closed::Answered(answer) => self.take_answer(&answer, channel),
            Closed::Early(_) => count(&mut self.tally.errors, "closed_early"),
        }
        self.close(now_ns);
    }

    /// Closes the connection; the next one is opened at `again_ns`.
    fn close(&mut self, again_ns: u64) {
        self.session.exchange.close();
        if let Some(connection) = self.connection.take() {
            // An orderly close if the far end has closed too; otherwise the far end learns that nothing more is read.
            if self.stack.is_at_end(connection) {
                self.stack.close(connection);
            } else {
                self.stack.abort(connection);
            }
            self.stack.release(connection);
        }
        self.connect_ns = Some(again_ns);
    }

    /// When the next request is due, ns; `None` once all are begun or the time is over.
    fn next_due_ns(&self, start_ns: u64, now_ns: u64) -> Option<u64> {
        let end_ns = start_ns.saturating_add(self.duration_ns);
        match self.schedule {
            Some(schedule) if self.tally.begun >= schedule.total() || now_ns >= end_ns.saturating_add(OVERTIME_NS) => {
                None
            }
            Some(schedule) => Some(start_ns.saturating_add(schedule.due_ns(self.tally.begun))),
            None => (now_ns < end_ns).then_some(self.tally.answered_ns.unwrap_or(now_ns).max(start_ns)),
        }
    }

    /// Begins the next request if it is due and the connection is free, and writes as much as the socket accepts.
    fn send(&mut self, start_ns: u64, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(connection) = self.connection else { return };
        let due_ns =
            self.next_due_ns(start_ns, now_ns).filter(|due_ns| *due_ns <= now_ns && self.session.exchange.is_idle());
        if let Some(due_ns) = due_ns {
            let batch = Batch {
                bytes: self.request.bytes().len(),
                requests: 1,
                expects_no_body: self.request.expects_no_body(),
            };
            self.session.exchange.begin(due_ns, now_ns, batch);
            self.tally.begun += 1;
            self.tally.answered_ns = None;
            self.tally.first_ns.get_or_insert(now_ns);
            // Back to back, a request has no due time and cannot be late.
            if self.schedule.is_some() {
                let late_ns = now_ns.saturating_sub(due_ns.max(self.tally.free_ns));
                channel.record(Metric::TrafficLate, due_ns, late_ns);
            }
        }
        if self.session.exchange.is_sending() {
            let from = self.request.bytes().len() - self.session.exchange.unsent_bytes();
            let written = self.stack.write(connection, &self.request.bytes()[from..]);
            let Sent { bytes, requests } = self.session.on_taken(written);
            self.tally.sent_bytes += bytes;
            self.tally.sent += requests;
            channel.counters.sent(bytes, requests);
        }
    }

    /// Reads what has arrived, up to the end of a response. If more bytes have arrived, it is unknown which of them
    /// are the response: the request has no response, and the connection is closed.
    fn read(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(connection) = self.connection else { return };
        let (exchange, tally) = (&mut self.session.exchange, &mut self.tally);
        let mut answer: Option<Answer> = None;
        let mut malformed: Option<Malformed> = None;
        self.stack.read(connection, |piece| {
            if answer.is_some() {
                malformed = Some(Malformed::UnsolicitedBytes);
            }
            if malformed.is_some() {
                return 0;
            }
            match exchange.receive(piece, now_ns, &mut ()) {
                Ok((used, completed)) => {
                    tally.received_bytes += used as u64;
                    channel.counters.received(used as u64, 0);
                    answer = completed;
                    used
                }
                Err(cause) => {
                    malformed = Some(cause);
                    0
                }
            }
        });
        if let Some(cause) = malformed {
            if let Some(answer) = answer {
                self.note_sent(&answer, channel);
            }
            count(&mut self.tally.errors, cause.name());
            return self.close(now_ns);
        }
        let Some(answer) = answer else { return };
        self.take_answer(&answer, channel);
        self.tally.free_ns = now_ns;
        if !answer.keeps_connection() {
            self.close(now_ns);
        }
    }

    /// A server that answers early has received its request, even if a part of it has not been sent.
    fn note_sent(&mut self, answer: &Answer, channel: &mut Channel<'_>) {
        let early = u64::from(!answer.was_sent);
        self.tally.sent += early;
        channel.counters.sent(0, early);
    }

    fn take_answer(&mut self, answer: &Answer, channel: &mut Channel<'_>) {
        let timing = answer.timing;
        self.note_sent(answer, channel);
        channel.counters.received(0, 1);
        let latency_ns = timing.done_ns.saturating_sub(timing.due_ns);
        self.tally.latency.record(latency_ns);
        channel.record(Metric::Latency, timing.due_ns, latency_ns);
        channel.record(Metric::Service, timing.due_ns, timing.done_ns.saturating_sub(timing.sent_ns));
        self.tally.answered += 1;
        self.tally.answered_ns = Some(timing.done_ns);
        self.tally.status[usize::from(answer.response.status / 100).min(9)] += 1;
    }

    /// Records the age of a request without a response. It is not a latency but a lower bound of one, and has a
    /// separate histogram.
    fn record_age(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(due_ns) = self.session.exchange.outstanding_due_ns() else { return };
        let sent_ns = self.session.exchange.outstanding_since_ns().unwrap_or(now_ns);
        channel.record(Metric::LatencyCensored, due_ns, now_ns.saturating_sub(due_ns));
        channel.record(Metric::ServiceCensored, due_ns, now_ns.saturating_sub(sent_ns));
    }

    /// Records the age of requests that were due and never begun. Returns their number, and how many of them were too
    /// many for an age each.
    fn record_unbegun(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> (u64, u64) {
        let (Some(schedule), Some(start_ns)) = (self.schedule, self.start_ns) else { return (0, 0) };
        let last_ns = now_ns.min(start_ns.saturating_add(self.duration_ns));
        let unbegun = schedule.due_count(now_ns.saturating_sub(start_ns)).saturating_sub(self.tally.begun);
        let aged = unbegun.min(MOST_AGED / self.clients);
        for number in self.tally.begun..self.tally.begun + aged {
            let due_ns = start_ns.saturating_add(schedule.due_ns(number));
            channel.record(Metric::LatencyCensored, due_ns, last_ns.saturating_sub(due_ns));
        }
        (unbegun, unbegun - aged)
    }

    /// Counts the outstanding request at the end, after which its response is not waited for.
    fn leave_unanswered(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        self.record_age(now_ns, channel);
        let since_ns = self.session.exchange.outstanding_since_ns().unwrap_or(now_ns);
        match self.session.exchange.close() {
            Some(abandoned) if abandoned.was_sent => {
                self.tally.unanswered += 1;
                self.tally.unanswered_long += u64::from(now_ns.saturating_sub(since_ns) > LONG_WAIT_NS);
            }
            Some(_) => self.tally.unfinished += 1,
            None => {}
        }
    }

    /// Gives up requests beyond their time limit, and ends when nothing more can arrive; returns when to call again,
    /// ns, unless it has ended.
    fn watch_time(&mut self, start_ns: u64, now_ns: u64, channel: &mut Channel<'_>) -> Option<u64> {
        let end_ns = start_ns.saturating_add(self.duration_ns);
        let waits_until_ns = self.session.exchange.outstanding_since_ns().map(|since_ns| {
            let patient_ns = since_ns.saturating_add(TIMEOUT_NS);
            patient_ns.min(end_ns.saturating_add(DRAIN_NS).max(since_ns))
        });
        if waits_until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            if now_ns >= end_ns.saturating_add(DRAIN_NS) {
                self.leave_unanswered(now_ns, channel);
            } else {
                self.record_age(now_ns, channel);
                count(&mut self.tally.errors, "timeout");
            }
            self.close(now_ns);
        }
        let next_due_ns = self.next_due_ns(start_ns, now_ns);
        if next_due_ns.is_none() && now_ns >= end_ns {
            self.tally.ended_ns.get_or_insert(now_ns.min(end_ns));
            if self.session.exchange.outstanding().is_none() && !self.tally.is_done {
                self.tally.is_done = true;
                if let Some(connection) = self.connection.take() {
                    self.stack.close(connection);
                    self.stack.release(connection);
                }
            }
        }
        if self.tally.is_done {
            return None;
        }
        let due_ns = next_due_ns.filter(|_| self.session.exchange.is_idle()).map(|due_ns| due_ns.max(now_ns));
        let over_ns = (next_due_ns.is_none() && now_ns < end_ns).then_some(end_ns);
        let overtime_ns = Some(end_ns.saturating_add(OVERTIME_NS)).filter(|over_ns| now_ns < *over_ns);
        [self.connect_due_ns(now_ns), due_ns, over_ns, overtime_ns, waits_until_ns].into_iter().flatten().min()
    }

    /// When to connect, ns; `None` while there is a connection.
    fn connect_due_ns(&self, now_ns: u64) -> Option<u64> {
        self.connection.is_none().then(|| self.connect_ns.map_or(now_ns, |at_ns| at_ns.max(now_ns)))
    }
}

impl Traffic for HttpTraffic {
    fn is_ready(&self) -> bool {
        self.session.exchange.is_idle() || !self.tally.errors.is_empty()
    }

    fn start(&mut self, start_ns: u64) {
        self.start_ns = Some(start_ns);
        self.deadline_ns = Some(0);
    }

    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        self.keep_connected(now_ns, channel);
        self.read(now_ns, channel);
        // A connection that the response ended is opened again at once.
        self.keep_connected(now_ns, channel);
        if let Some(start_ns) = self.start_ns.filter(|start_ns| now_ns >= *start_ns) {
            self.send(start_ns, now_ns, channel);
        }
        let own_ns = match self.start_ns {
            Some(start_ns) if now_ns >= start_ns => self.watch_time(start_ns, now_ns, channel),
            Some(start_ns) => Some(start_ns),
            None => self.connect_due_ns(now_ns),
        };
        self.stack.poll(now_ns, channel.send);
        self.deadline_ns = earlier(own_ns, self.stack.deadline_ns(now_ns));
    }

    fn payload(&mut self, now_ns: u64, packet: &[u8], _channel: &mut Channel<'_>) {
        self.stack.handle(now_ns, packet);
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn is_done(&self) -> bool {
        self.tally.is_done
    }

    fn finish(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> Figures {
        self.leave_unanswered(now_ns, channel);
        let start_ns = self.start_ns.unwrap_or(now_ns);
        let (unbegun, without_age) = self.record_unbegun(now_ns, channel);
        let tally = &mut self.tally;
        let mut flow = row(self.client, Direction::Up, start_ns);
        flow.start_ns = tally.first_ns;
        flow.end_ns = tally.first_ns.map(|_| tally.ended_ns.unwrap_or(now_ns));
        flow.sent_bytes = Some(tally.sent_bytes);
        flow.received_bytes = Some(tally.received_bytes);
        flow.sent_units = Some(tally.sent);
        flow.received_units = Some(tally.answered);
        flow.latency_mean_us = tally.latency.mean_us();
        flow.latency_max_us = tally.latency.longest_us();
        flow.local = self.local.map(|local| local.to_string());
        flow.remote = Some(self.server.to_string());
        let counts = TrafficCounts {
            requests_due: Some(tally.begun + unbegun),
            requests_sent: Some(tally.sent),
            unsent: Some(unbegun + tally.unfinished),
            unsent_without_age: unless_zero(without_age),
            unanswered: Some(tally.unanswered),
            unanswered_over_1s: Some(tally.unanswered_long),
            connections: Some(tally.connections),
            status: StatusCounts::of(tally.status),
            ..TrafficCounts::default()
        };
        Figures { flows: vec![flow], counts, errors: std::mem::take(&mut tally.errors), examples: BTreeMap::new() }
    }
}
