//! The side effects of one thread's connections: sockets over the thread's backend, the resolver, counters, and the
//! users, who receive how each exchange ended. Decides nothing about requests.

use std::sync::Arc;

use leadline_http::client::{ClientTls, Failure, Opening, SocketUse, Wire};
use leadline_scenario::connections::{Connections, Effects, Origin};
use leadline_scenario::figures::Age;
use leadline_scenario::{Effect, ExchangeEnd, ExchangeFailure, Send, Users};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::Remote;
use socket2::Socket;

use super::kept_sockets::KeptSockets;
use super::plan::Plan;
use crate::load::net::failure::{connect_failure, failure};
use crate::load::net::io_backend::IoBackend;
use crate::load::net::resolver::{Answer, Resolver};
use crate::metering::FlowCounters;

/// Effects of the users that are carried out before sockets have their turn.
const EFFECTS_PER_TURN: usize = 10_000;

/// The side effects of one thread's connections.
pub struct WorkerEffects<B, U> {
    pub plan: Arc<Plan>,
    /// The users.
    pub users: U,
    pub backend: B,
    pub resolver: Resolver,
    pub counters: Arc<FlowCounters>,
    /// Sockets of requests that were given up before their answers.
    pub kept: KeptSockets<Socket>,
    /// Connections that the backend has.
    open: usize,
    /// Counts connections, for their local addresses.
    turn: usize,
}

impl<B: IoBackend, U: Users> WorkerEffects<B, U> {
    pub fn new(plan: Arc<Plan>, users: U, backend: B, counters: Arc<FlowCounters>, number: usize) -> Self {
        Self {
            users,
            backend,
            resolver: Resolver::new(Arc::clone(&plan.names)),
            counters,
            kept: KeptSockets::new(),
            open: 0,
            turn: number,
            plan,
        }
    }

    /// Carries out what the users want: a limited number of effects at a time, because a request that fails at once may be
    /// followed by another one without end.
    pub fn apply_effects(&mut self, connections: &mut Connections, now_ns: u64) {
        for _ in 0..EFFECTS_PER_TURN {
            let Some(effect) = self.users.effect() else { return };
            match effect {
                Effect::Send(send) => connections.request(send, now_ns, self),
                Effect::Cancel { user } => connections.cancel(user, now_ns, self),
                Effect::CloseConnections { user } => connections.close_idle(user, now_ns, self),
            }
        }
    }

    /// Passes on the answers of the resolver.
    pub fn take_resolved(&mut self, connections: &mut Connections, now_ns: u64) {
        while let Some(Answer { name: (host, port), took_ns, .. }) = self.resolver.answer(now_ns) {
            connections.resolved(&host, port, took_ns, now_ns, self);
        }
    }
}

impl<B: IoBackend, U: Users> Wire for WorkerEffects<B, U> {
    #[inline]
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure> {
        self.backend.send_copy(index, bytes).map_err(failure)
    }

    #[inline]
    fn received(&self) -> &[u8] {
        self.backend.received()
    }
}

impl<B: IoBackend, U: Users> Effects for WorkerEffects<B, U> {
    fn open(&mut self, slot: u32, origin: &Origin) -> Result<Opening, Failure> {
        let name = (Arc::clone(&origin.host), origin.port);
        let address = match self.resolver.addresses(&name, monotonic_ns()) {
            None => return Ok(Opening::Resolving),
            Some(addresses) => addresses.map_err(|detail| Failure { name: "unknown_host", detail })?.first(),
        };
        // Kept sockets and connections together need no more descriptors than the connections that the plan allows.
        self.kept.shrink_to(self.plan.connections.saturating_sub(self.open + 1));
        let socket = self.plan.dialler.begin(&Remote::Inet(address), &mut self.turn);
        let connecting = socket.and_then(|socket| self.backend.connect(slot as usize, socket));
        self.open += usize::from(connecting.is_ok());
        connecting.map(|()| Opening::Connecting).map_err(|error| connect_failure(&error, &address))
    }

    fn take_up(&mut self, slot: u32) -> Result<(), Failure> {
        self.backend.connected(slot as usize, false).map_err(failure)
    }

    fn tls(&mut self, host: &Arc<str>) -> Result<ClientTls, Failure> {
        self.plan.tls_of(host).map_err(|detail| Failure { name: "bad_tls", detail })
    }

    #[inline]
    fn handed_over_ns(&self) -> Option<u64> {
        self.backend.handed_over_ns()
    }

    fn close(&mut self, slot: u32, then: SocketUse) {
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
