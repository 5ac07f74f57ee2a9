//! The side effects of one thread's connections: sockets over the thread's backend, TLS, the resolver, counters, and the
//! users, who receive how each exchange ended. Translates what sockets report into the inputs of the machine
//! ([`leadline_scenario::connections`]); decides nothing about requests.

use std::io;
use std::sync::Arc;

use leadline_http::client::{Failure, SocketUse};
use leadline_scenario::connections::{Connections, Dialled, Effects, Input, Origin, StreamEnd};
use leadline_scenario::figures::Age;
use leadline_scenario::{Effect, ExchangeEnd, ExchangeFailure, Machine, Send};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::Remote;
use leadline_tls::TlsClient;
use socket2::Socket;

use super::kept_sockets::KeptSockets;
use super::plan::Plan;
use crate::load::net::failure::{connect_failure, failure};
use crate::load::net::io_backend::{Completion, IoBackend};
use crate::load::net::resolver::{Answer, Resolver};
use crate::metering::FlowCounters;

/// Effects of the users that are carried out before sockets have their turn.
const EFFECTS_PER_TURN: usize = 10_000;

/// The side effects of one thread's connections.
pub struct WorkerEffects<B> {
    pub plan: Arc<Plan>,
    /// The users.
    pub users: Machine,
    pub backend: B,
    pub resolver: Resolver,
    pub counters: Arc<FlowCounters>,
    /// Sockets of requests that were given up before their answers.
    pub kept: KeptSockets<Socket>,
    /// Connections that the backend has.
    open: usize,
    /// TLS of each connection that uses it.
    tls: Vec<Option<Box<Records>>>,
    /// Counts connections, for their local addresses.
    turn: usize,
    /// Records to send.
    out: Vec<u8>,
    /// What was received over TLS; empty while the backend has what was received.
    plain: Vec<u8>,
}

/// TLS of one connection.
struct Records {
    client: TlsClient,
    /// Whether the handshake has ended.
    is_secured: bool,
    /// Bytes that the socket has not taken yet.
    left_bytes: usize,
    /// Bytes of the request that they carry.
    request_bytes: usize,
}

impl<B: IoBackend> WorkerEffects<B> {
    pub fn new(plan: Arc<Plan>, users: Machine, backend: B, counters: Arc<FlowCounters>, number: usize) -> Self {
        Self {
            users,
            backend,
            resolver: Resolver::new(Arc::clone(&plan.names)),
            counters,
            kept: KeptSockets::new(),
            open: 0,
            tls: (0..plan.connections).map(|_| None).collect(),
            turn: number,
            out: Vec::new(),
            plain: Vec::new(),
            plan,
        }
    }

    /// Carries out what the users want: a limited number of effects at a time, because a request that fails at once may be
    /// followed by another one without end.
    pub fn obey(&mut self, connections: &mut Connections, now_ns: u64) {
        for _ in 0..EFFECTS_PER_TURN {
            let Some(effect) = self.users.effect() else { return };
            match effect {
                Effect::Send(send) => connections.request(send, now_ns, self),
                Effect::Cancel { user } => connections.cancel(user, now_ns, self),
                Effect::CloseConnections { user } => connections.close_idle(user, now_ns, self),
            }
        }
    }

    /// Passes on what a socket reports.
    pub fn pass(&mut self, connections: &mut Connections, slot: usize, at_ns: u64, completion: Completion) {
        let place = slot as u32;
        let input = match completion {
            Completion::Received if self.tls[slot].is_some() => return self.decrypt(connections, place, at_ns),
            Completion::Received => Input::Received,
            Completion::Sent(bytes) => match self.sent_of_request(slot, bytes) {
                Some(bytes) => Input::Sent(bytes),
                None => return,
            },
            Completion::NotSent(missing, error) => {
                // Of a request over TLS nothing counts as sent before all of its records are.
                let missing = if self.tls[slot].is_some() { 0 } else { missing };
                Input::NotSent { missing, failure: failure(error) }
            }
            Completion::Ended(outcome) => Input::Ended(self.stream_end(slot, outcome)),
            Completion::Writable => Input::Connected,
            Completion::Accepted(_) => return,
        };
        connections.handle(place, at_ns, input, self);
    }

    /// Passes on the answers of the resolver.
    pub fn take_resolved(&mut self, connections: &mut Connections, now_ns: u64) {
        while let Some(Answer { name: (host, port), took_ns, .. }) = self.resolver.answer(now_ns) {
            connections.resolved(&host, port, took_ns, now_ns, self);
        }
    }

    fn stream_end(&mut self, slot: usize, outcome: io::Result<()>) -> StreamEnd {
        match outcome {
            Err(error) => StreamEnd::Broken(failure(error)),
            Ok(()) => match self.tls[slot].as_mut().and_then(|tls| tls.client.end().err()) {
                Some(cut) => StreamEnd::Cut(cut.into()),
                None => StreamEnd::Clean,
            },
        }
    }

    /// Returns how many bytes of the request a socket took, when it took some.
    fn sent_of_request(&mut self, slot: usize, bytes: usize) -> Option<usize> {
        let Some(tls) = &mut self.tls[slot] else { return Some(bytes) };
        tls.left_bytes = tls.left_bytes.saturating_sub(bytes);
        (tls.left_bytes == 0).then(|| std::mem::take(&mut tls.request_bytes))
    }

    /// Passes on what a connection received over TLS.
    fn decrypt(&mut self, connections: &mut Connections, slot: u32, at_ns: u64) {
        let Some(tls) = &mut self.tls[slot as usize] else { return };
        let was_secured = tls.is_secured;
        self.out.clear();
        let taken = if was_secured {
            let plain = &mut self.plain;
            plain.clear();
            tls.client.receive_with(self.backend.received(), |bytes| plain.extend_from_slice(bytes))
        } else {
            tls.client.receive(self.backend.received())
        };
        if tls.client.has_output() {
            tls.client.take_output(&mut self.out);
        }
        let is_over = was_secured && tls.client.peer_closed();
        let ended = !was_secured && !tls.client.is_handshaking();
        let handshake = ended.then(|| tls.client.handshake()).flatten().filter(|_| taken.is_ok());
        tls.is_secured |= handshake.is_some();
        if let Err(failure) = self.send_records(slot) {
            connections.handle(slot, at_ns, Input::NotSent { missing: 0, failure }, self);
        }
        if !self.plain.is_empty() {
            self.pass_if_open(connections, slot, at_ns, Input::Received);
            self.plain.clear();
        }
        match (taken, handshake) {
            (Err(failure), _) => self.pass_if_open(connections, slot, at_ns, Input::Unreadable(failure.into())),
            (Ok(()), Some(handshake)) => {
                self.pass_if_open(connections, slot, at_ns, Input::Secured { resumed: handshake.resumed });
            }
            (Ok(()), None) if is_over => {
                let end = self.stream_end(slot as usize, Ok(()));
                self.pass_if_open(connections, slot, at_ns, Input::Ended(end));
            }
            (Ok(()), None) => {}
        }
    }

    /// Passes an input on, unless an earlier one has closed the connection: its place may belong to another one.
    fn pass_if_open(&mut self, connections: &mut Connections, slot: u32, at_ns: u64, input: Input) {
        if self.tls[slot as usize].is_some() {
            connections.handle(slot, at_ns, input, self);
        }
    }

    /// Sends the records in `out`, which belong to no request.
    fn send_records(&mut self, slot: u32) -> Result<(), Failure> {
        if self.out.is_empty() {
            return Ok(());
        }
        let taken = self.backend.send_copy(slot as usize, &self.out).map_err(failure)?;
        if let Some(tls) = &mut self.tls[slot as usize] {
            tls.left_bytes += self.out.len() - taken;
        }
        Ok(())
    }
}

impl<B: IoBackend> Effects for WorkerEffects<B> {
    fn open(&mut self, slot: u32, origin: &Origin) -> Result<Dialled, Failure> {
        let name = (Arc::clone(&origin.host), origin.port);
        let address = match self.resolver.addresses(&name, monotonic_ns()) {
            None => return Ok(Dialled::Resolving),
            Some(addresses) => addresses.map_err(|detail| Failure { name: "unknown_host", detail })?.first(),
        };
        // Kept sockets and connections together need no more descriptors than the connections that the plan allows.
        self.kept.shrink_to(self.plan.connections.saturating_sub(self.open + 1));
        let socket = self.plan.dialler.begin(&Remote::Inet(address), &mut self.turn);
        let connecting = socket.and_then(|socket| self.backend.connect(slot as usize, socket));
        self.open += usize::from(connecting.is_ok());
        connecting.map(|()| Dialled::Connecting).map_err(|error| connect_failure(&error, &address))
    }

    fn take_up(&mut self, slot: u32) -> Result<(), Failure> {
        self.backend.connected(slot as usize, false).map_err(failure)
    }

    fn secure(&mut self, slot: u32, host: &Arc<str>) -> Result<(), Failure> {
        let shared = self.plan.tls_of(host).map_err(|detail| Failure { name: "bad_tls", detail })?;
        let mut client = TlsClient::new(&shared)?;
        self.out.clear();
        client.take_output(&mut self.out);
        let records = Records { client, is_secured: false, left_bytes: 0, request_bytes: 0 };
        self.tls[slot as usize] = Some(Box::new(records));
        self.send_records(slot)
    }

    #[inline]
    fn send(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(tls) = &mut self.tls[slot as usize] else {
            return self.backend.send_copy(slot as usize, bytes).map_err(failure);
        };
        self.out.clear();
        tls.client.write_to(bytes, &mut self.out);
        let taken = self.backend.send_copy(slot as usize, &self.out).map_err(failure)?;
        tls.left_bytes += self.out.len() - taken;
        if tls.left_bytes == 0 {
            return Ok(bytes.len());
        }
        tls.request_bytes = bytes.len();
        Ok(0)
    }

    #[inline]
    fn handed_over_ns(&self) -> Option<u64> {
        self.backend.handed_over_ns()
    }

    #[inline]
    fn received(&self) -> &[u8] {
        if self.plain.is_empty() {
            self.backend.received()
        } else {
            &self.plain
        }
    }

    fn close(&mut self, slot: u32, then: SocketUse) {
        self.tls[slot as usize] = None;
        if let Some(detached) = self.backend.detach(slot as usize, then) {
            self.open -= 1;
            if then == SocketUse::Keep {
                self.kept.keep(detached.socket);
            }
        }
    }

    #[inline]
    fn count_sent(&mut self, bytes: u64, requests: u64) {
        self.counters.sent(bytes, requests);
    }

    fn take_back(&mut self, bytes: u64, requests: u64) {
        self.counters.not_sent(bytes, requests);
    }

    #[inline]
    fn count_received(&mut self, bytes: u64, responses: u64) {
        self.counters.received(bytes, responses);
    }

    #[inline]
    fn answered(&mut self, send: &Send, end: &ExchangeEnd<'_>, now_ns: u64) {
        self.users.answered(send.user, send.exchange, end, now_ns);
    }

    fn failed(&mut self, send: &Send, failure: ExchangeFailure, now_ns: u64) {
        self.users.failed(send.user, send.exchange, failure, now_ns);
    }

    fn given_up(&mut self, send: &Send, age: Age) {
        if let Some(label) = send.label {
            self.users.figures().outstanding(label, send.due_ns, age);
        }
    }
}
