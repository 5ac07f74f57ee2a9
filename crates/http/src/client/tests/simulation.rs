//! A simulated network: a clock that a test moves, sockets whose peers are functions, and a record of all effects.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use super::super::{Attempt, Detached, Effects, Failure, Input, Metric, Opening, SocketUse, Wire};
use super::MS;
use crate::Timing;

/// A request that reached the server.
pub struct ServerRequest<'r> {
    /// Index of the request on its socket, from 0.
    pub number: u64,
    /// Index of the request over all sockets, from 0.
    pub total: u64,
    /// The head, or the raw bytes if the server reads raw bytes.
    pub bytes: &'r [u8],
}

impl ServerRequest<'_> {
    /// Method and target.
    pub fn line(&self) -> String {
        let text = String::from_utf8_lossy(self.bytes);
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }
}

/// A server's action, this many ns after the request.
#[derive(Clone, Debug)]
pub struct Reaction(pub u64, pub Action);

#[derive(Clone, Debug)]
pub enum Action {
    Sends(Vec<u8>),
    Closes,
    Breaks(&'static str),
    /// The system did not take this many bytes that it had promised.
    TakesBack(usize),
}

impl Reaction {
    pub fn sends(after_ns: u64, bytes: impl AsRef<[u8]>) -> Self {
        Self(after_ns, Action::Sends(bytes.as_ref().to_vec()))
    }

    pub fn closes(after_ns: u64) -> Self {
        Self(after_ns, Action::Closes)
    }
}

/// Outcome of a TCP handshake, 1 ms after it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    Yes,
    Refused,
    /// The handshake gets no response.
    Never,
}

/// What the system does with sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Takes all of it at once.
    Promised,
    /// Takes all bytes, and reports it after this delay, ns.
    Reported(u64),
    /// Takes this many bytes, and reports it only when the socket is detached.
    Silent(usize),
}

pub struct Socket {
    id: u64,
    received: Vec<u8>,
    number: u64,
}

pub enum Event {
    Input(Input),
    Sends(Vec<u8>),
    Refused,
}

pub type LookUp = Box<dyn FnMut() -> Option<Result<SocketAddr, String>>>;
pub type Server = Box<dyn FnMut(&ServerRequest<'_>) -> Vec<Reaction>>;

/// The simulated network.
pub struct Simulation {
    pub now_ns: u64,
    pub payload: Arc<[u8]>,
    pub sending: Sending,
    /// How many bytes of those that it promised to send it has not taken when a socket that carried a request is
    /// detached.
    pub left_bytes: usize,
    /// Time that sent bytes are queued before they are handed over, ns.
    pub queue_ns: u64,
    /// Answers each attempt to connect, by its index.
    pub accept: Box<dyn FnMut(u64) -> Accept>,
    /// Answers each name lookup, if set; `None` means that no answer comes.
    pub resolve: Option<LookUp>,
    /// What the server sends as soon as it has accepted a connection.
    pub greeting: Option<&'static str>,
    /// Whether the server receives raw bytes instead of requests.
    pub is_raw: bool,
    pub server: Server,
    pub sockets: BTreeMap<usize, Socket>,
    pub events: BTreeMap<(u64, u64), (usize, u64, Event)>,
    pub last_event: u64,
    pub requests: u64,
    pub received: Vec<u8>,
    pub refused: bool,
    pub queue: Vec<(usize, Vec<u8>)>,
    pub handed_over_ns: u64,
    /// When each attempt to connect began, ns.
    pub attempts_ns: Vec<u64>,
    /// Method and target of each request.
    pub request_lines: Vec<String>,
    pub sent_bytes: u64,
    pub sent: u64,
    pub received_bytes: u64,
    pub responses: u64,
    pub kept: usize,
    pub failures: BTreeMap<&'static str, u64>,
    pub examples: BTreeMap<&'static str, String>,
    /// Metric, due time and value.
    pub recorded: Vec<(Metric, Option<u64>, u64)>,
}

impl Simulation {
    /// Creates a network with this server.
    pub fn new(server: impl FnMut(&ServerRequest<'_>) -> Vec<Reaction> + 'static) -> Self {
        Self {
            now_ns: 0,
            payload: Arc::from([]),
            sending: Sending::Promised,
            left_bytes: 0,
            queue_ns: 0,
            accept: Box::new(|_| Accept::Yes),
            resolve: None,
            greeting: None,
            is_raw: false,
            server: Box::new(server),
            sockets: BTreeMap::new(),
            events: BTreeMap::new(),
            last_event: 0,
            requests: 0,
            received: Vec::new(),
            refused: false,
            queue: Vec::new(),
            handed_over_ns: 0,
            attempts_ns: Vec::new(),
            request_lines: Vec::new(),
            sent_bytes: 0,
            sent: 0,
            received_bytes: 0,
            responses: 0,
            kept: 0,
            failures: BTreeMap::new(),
            examples: BTreeMap::new(),
            recorded: Vec::new(),
        }
    }

    /// Time of the next event, ns.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// Takes the next event that has happened by now.
    pub fn next_event(&mut self) -> Option<(usize, Input)> {
        loop {
            let entry = self.events.first_entry().filter(|entry| entry.key().0 <= self.now_ns)?;
            let (index, id, event) = entry.remove();
            if self.sockets.get(&index).is_none_or(|socket| socket.id != id) {
                continue;
            }
            self.refused = matches!(event, Event::Refused);
            let input = match event {
                Event::Input(input) => input,
                Event::Refused => Input::Connected,
                Event::Sends(bytes) => {
                    self.received = bytes;
                    Input::Received
                }
            };
            return Some((index, input));
        }
    }

    /// Hands queued bytes over, as a wait does.
    pub fn hand_over(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        self.now_ns += self.queue_ns;
        self.handed_over_ns = self.now_ns;
        for (index, bytes) in std::mem::take(&mut self.queue) {
            self.deliver(index, &bytes);
        }
    }

    fn plan(&mut self, after_ns: u64, index: usize, event: Event) {
        let Some(socket) = self.sockets.get(&index) else { return };
        self.last_event += 1;
        self.events.insert((self.now_ns + after_ns, self.last_event), (index, socket.id, event));
    }

    /// Delivers bytes to the server.
    fn deliver(&mut self, index: usize, bytes: &[u8]) {
        if let Sending::Reported(after_ns) = self.sending {
            self.plan(after_ns, index, Event::Input(Input::Sent(bytes.len())));
        }
        let Some(socket) = self.sockets.get_mut(&index) else { return };
        socket.received.extend_from_slice(bytes);
        loop {
            let Some(socket) = self.sockets.get_mut(&index) else { return };
            let length = match socket.received.windows(4).position(|window| window == b"\r\n\r\n") {
                _ if self.is_raw => socket.received.len(),
                Some(end) => end + 4,
                None => return,
            };
            if length == 0 {
                return;
            }
            let bytes: Vec<u8> = socket.received.drain(..length).collect();
            let request = ServerRequest { number: socket.number, total: self.requests, bytes: &bytes };
            (socket.number, self.requests) = (socket.number + 1, self.requests + 1);
            self.request_lines.push(request.line());
            for Reaction(after_ns, action) in (self.server)(&request) {
                let event = match action {
                    Action::Sends(bytes) => Event::Sends(bytes),
                    Action::Closes => Event::Input(Input::Ended(Ok(()))),
                    Action::TakesBack(missing) => {
                        let failure = Failure { name: "reset", detail: String::new() };
                        Event::Input(Input::NotSent { missing, failure })
                    }
                    Action::Breaks(name) => {
                        Event::Input(Input::Ended(Err(Failure { name, detail: format!("it is {name}") })))
                    }
                };
                self.plan(after_ns, index, event);
            }
        }
    }
}

impl Wire for Simulation {
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure> {
        self.queue.push((index, bytes.to_vec()));
        if self.queue_ns == 0 {
            self.hand_over();
        }
        Ok(if self.sending == Sending::Promised { bytes.len() } else { 0 })
    }

    fn received(&self) -> &[u8] {
        &self.received
    }
}

impl Effects for Simulation {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn open(&mut self, attempt: Attempt) -> Result<Opening, Failure> {
        let id = self.attempts_ns.len() as u64;
        self.sockets.insert(attempt.index, Socket { id, received: Vec::new(), number: 0 });
        if let (None, Some(resolve)) = (attempt.address, &mut self.resolve) {
            if let Some(address) = resolve() {
                self.plan(MS, attempt.index, Event::Input(Input::Resolved { address, took_ns: MS }));
            }
            return Ok(Opening::Resolving);
        }
        self.attempts_ns.push(self.now_ns);
        self.sockets.insert(attempt.index, Socket { id, received: Vec::new(), number: 0 });
        match (self.accept)(id) {
            Accept::Yes => {
                self.plan(MS, attempt.index, Event::Input(Input::Connected));
                if let Some(greeting) = self.greeting {
                    self.plan(2 * MS, attempt.index, Event::Sends(greeting.into()));
                }
            }
            Accept::Refused => self.plan(MS, attempt.index, Event::Refused),
            Accept::Never => {}
        }
        Ok(Opening::Connecting)
    }

    fn take_up(&mut self, _index: usize) -> Result<(), Failure> {
        if self.refused {
            return Err(Failure { name: "connection_refused", detail: "no process listens".to_owned() });
        }
        Ok(())
    }

    fn send(&mut self, index: usize, piece: Range<usize>) -> Result<usize, Failure> {
        let bytes = self.payload[piece].to_vec();
        self.send_copy(index, &bytes)
    }

    fn handed_over_ns(&self) -> Option<u64> {
        self.queue.is_empty().then_some(self.handed_over_ns)
    }

    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached> {
        self.hand_over();
        let is_used = self.sockets.remove(&index)?.number > 0;
        self.kept += usize::from(then == SocketUse::Keep);
        let taken_bytes = if let Sending::Silent(bytes) = self.sending { bytes } else { 0 };
        Some(Detached { unsent_bytes: if is_used { self.left_bytes } else { 0 }, taken_bytes })
    }

    fn count_sent(&mut self, bytes: u64, requests: u64) {
        self.sent_bytes += bytes;
        self.sent += requests;
    }

    fn take_back(&mut self, bytes: u64, requests: u64) {
        self.sent_bytes -= bytes;
        self.sent -= requests;
    }

    fn count_received(&mut self, bytes: u64, responses: u64) {
        self.received_bytes += bytes;
        self.responses += responses;
    }

    fn count_failure(&mut self, name: &'static str, requests: u64, detail: impl FnOnce() -> String) {
        *self.failures.entry(name).or_insert(0) += requests;
        self.keep_example(name, detail);
    }

    fn keep_example(&mut self, name: &'static str, detail: impl FnOnce() -> String) {
        self.examples.entry(name).or_insert_with(detail);
    }

    fn record(&mut self, metric: Metric, due_ns: Option<u64>, value_ns: u64) {
        self.recorded.push((metric, due_ns, value_ns));
    }

    fn record_late(&mut self, due_ns: u64, late_ns: u64) {
        self.record(Metric::Late, Some(due_ns), late_ns);
    }

    fn record_response(&mut self, timing: &Timing) {
        let Timing { due_ns, sent_ns, first_ns, done_ns } = *timing;
        self.record(Metric::Latency, Some(due_ns), done_ns - due_ns);
        self.record(Metric::Service, Some(due_ns), done_ns - sent_ns);
        self.record(Metric::FirstByte, Some(due_ns), first_ns - sent_ns);
        self.record(Metric::Transfer, Some(due_ns), done_ns - first_ns);
    }
}

/// An address for name lookups.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
