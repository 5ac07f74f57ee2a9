//! How a connection comes up and goes down: name, TCP, proxy, TLS, requests; then down, and up again. Each step has its
//! time-out, its name among the errors and, where it is more than an instant, its histogram.

use std::io;

use leadline_http::tls::{TlsClient, TlsFailure};
use leadline_http::{Malformed, ResponseParser};
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::{self, Remote};

use super::io_backend::IoBackend;
use super::plan::Destination;
use super::worker::{failure_name, ConnectionState, Metric, Worker, FIRST_RETRY_NS, LONGEST_RETRY_NS};

/// One connection of so many receives with the kernel's stamps.
const STAMPED_EVERY: usize = 64;

impl<B: IoBackend> Worker<B> {
    /// Opens a connection that has not been needed so far.
    pub fn connect_unused(&mut self) {
        if let Some(index) = self.unused.pop() {
            self.connect(index);
        }
    }

    /// Begins to open a connection.
    pub fn connect(&mut self, index: usize) {
        let since_ns = monotonic_ns();
        self.opening += 1;
        // From here on it counts as opening, also where its socket fails at once.
        self.connections[index].state = ConnectionState::Connecting { since_ns };
        self.next_sweep_ns = self.next_sweep_ns.min(since_ns + self.plan.connect_timeout_ns);
        match (&self.source.address(), &self.plan.route.destination) {
            (Some(address), _) => self.connect_to(index, &Remote::Inet(*address), since_ns),
            (None, Destination::Resolved(remote, _)) => {
                let remote = remote.clone();
                self.connect_to(index, &remote, since_ns);
            }
            (None, Destination::PerConnection(_)) => {
                let connection = &mut self.connections[index];
                connection.state = ConnectionState::Resolving { since_ns };
                if let Some(resolver) = &mut self.resolver {
                    resolver.ask(index, connection.epoch, since_ns + self.plan.connect_timeout_ns);
                }
            }
        }
    }

    /// Takes up the addresses that have been found.
    pub fn take_resolved(&mut self) {
        while let Some(lookup) = self.resolver.as_mut().and_then(super::resolver::Resolver::answer) {
            let connection = &self.connections[lookup.index];
            if connection.epoch != lookup.epoch || !matches!(connection.state, ConnectionState::Resolving { .. }) {
                continue;
            }
            match lookup.address {
                Ok(address) => {
                    self.recorder.record(Metric::Dns as usize, u64::MAX, lookup.took_ns);
                    self.connect_to(lookup.index, &Remote::Inet(address), monotonic_ns());
                }
                Err(message) => self.not_connected(lookup.index, "unknown_host", || message),
            }
        }
    }

    fn connect_to(&mut self, index: usize, remote: &Remote, since_ns: u64) {
        let route = &self.plan.route;
        let from = (!route.binds.is_empty()).then(|| route.binds[self.next_bind % route.binds.len()]);
        self.next_bind = self.next_bind.wrapping_add(1);
        let begun = connect::begin(remote, from, &route.options);
        match begun.and_then(|socket| self.backend.connect(index, socket)) {
            Ok(()) => self.connections[index].state = ConnectionState::Connecting { since_ns },
            Err(error) => {
                self.not_connected(index, failure_name(&error), || format!("connecting to {remote}: {error}"))
            }
        }
    }

    /// The socket is connected, or has failed.
    pub fn connected(&mut self, index: usize, since_ns: u64, at_ns: u64) {
        let stamped = index % STAMPED_EVERY == 0 && self.ask_for_stamps(index);
        if let Err(error) = self.backend.connected(index, stamped) {
            let route = self.plan.route.to_string();
            return self.not_connected(index, failure_name(&error), || format!("connecting to {route}: {error}"));
        }
        self.tally.connections_opened += 1;
        self.recorder.record(Metric::Connect as usize, self.phase_due_ns(since_ns), at_ns.saturating_sub(since_ns));
        let now_ns = monotonic_ns();
        let plan = std::sync::Arc::clone(&self.plan);
        if let Some(request) = &plan.route.proxy_request {
            self.connections[index].proxy = Some(Box::new(ResponseParser::new(true)));
            self.connections[index].state = ConnectionState::Handshaking { since_ns: now_ns };
            self.send_handshake(index, request);
        } else {
            self.begin_tls(index, now_ns);
        }
    }

    /// Opening before the start is not repeated for the measured part, so it is never warm-up.
    fn phase_due_ns(&self, since_ns: u64) -> u64 {
        if self.tally.first_sent_ns.is_some() {
            since_ns
        } else {
            u64::MAX
        }
    }

    fn ask_for_stamps(&self, index: usize) -> bool {
        self.backend.socket(index).is_some_and(|socket| connect::stamp_received(socket).is_ok())
    }

    /// TCP, and a proxy if there is one, lead to the server: TLS's turn, or the requests'.
    fn begin_tls(&mut self, index: usize, now_ns: u64) {
        let Some(shared) = &self.plan.tls else { return self.established(index, now_ns) };
        let mut tls = match TlsClient::new(shared) {
            Ok(tls) => Box::new(tls),
            Err(failure) => return self.tls_failed(index, &failure),
        };
        self.connections[index].state = ConnectionState::Handshaking { since_ns: now_ns };
        if tls.offers_early_data() {
            // The first request goes with the hello, if there is one; what is known of the handshake comes later.
            self.connections[index].tls = Some(tls);
            return self.established(index, now_ns);
        }
        self.out.clear();
        tls.take_output(&mut self.out);
        self.connections[index].tls = Some(tls);
        let hello = std::mem::take(&mut self.out);
        self.send_handshake(index, &hello);
        self.out = hello;
    }

    fn send_handshake(&mut self, index: usize, bytes: &[u8]) {
        if let Err(error) = self.send_records(index, bytes) {
            self.handshake_ended(index, Err(error));
        }
    }

    /// Bytes came in a handshake.
    pub fn on_handshake_bytes(&mut self, index: usize, at_ns: u64) {
        if self.connections[index].proxy.is_some() {
            return self.proxy_answered(index, at_ns);
        }
        let Self { backend, connections, out, .. } = self;
        let connection = &mut connections[index];
        let (ConnectionState::Handshaking { since_ns }, Some(tls)) = (connection.state, &mut connection.tls) else {
            return;
        };
        let taken = tls.receive(backend.received());
        out.clear();
        tls.take_output(out);
        let is_over = !tls.is_handshaking();
        let answer = std::mem::take(out);
        if !answer.is_empty() {
            // An alert of ours is worth sending too; that it cannot be is told by the connection's end.
            let _ = self.send_records(index, &answer);
        }
        self.out = answer;
        match taken {
            Err(failure) => self.tls_failed(index, &failure),
            Ok(()) if is_over => {
                self.shook_hands(index, since_ns, at_ns);
                self.established(index, at_ns);
            }
            Ok(()) => {}
        }
    }

    /// Counts a finished handshake.
    pub fn shook_hands(&mut self, index: usize, since_ns: u64, at_ns: u64) {
        let Some(handshake) = self.connections[index].tls.as_ref().and_then(|tls| tls.handshake()) else { return };
        let (metric, count) = if handshake.resumed {
            (Metric::TlsResumed, &mut self.tally.tls_resumed)
        } else {
            (Metric::TlsFull, &mut self.tally.tls_full)
        };
        *count += 1;
        self.recorder.record(metric as usize, self.phase_due_ns(since_ns), at_ns.saturating_sub(since_ns));
    }

    fn proxy_answered(&mut self, index: usize, at_ns: u64) {
        let Self { backend, connections, .. } = self;
        let bytes = backend.received();
        let Some(parser) = &mut connections[index].proxy else { return };
        match parser.feed(bytes) {
            Err(cause) => self.not_connected(index, "proxy_malformed", || cause.explanation().to_owned()),
            Ok(fed) => match fed.response {
                None => {}
                Some(response) if response.status / 100 != 2 => {
                    self.not_connected(index, "proxy_refused", || format!("the proxy answered {}", response.status));
                }
                // The server behind it speaks only once it has been spoken to.
                Some(_) if fed.consumed < bytes.len() => {
                    self.not_connected(index, "proxy_malformed", || {
                        Malformed::UnsolicitedBytes.explanation().to_owned()
                    });
                }
                Some(_) => {
                    self.connections[index].proxy = None;
                    self.begin_tls(index, at_ns);
                }
            },
        }
    }

    /// The peer ended the connection during a handshake, or it broke.
    pub fn handshake_ended(&mut self, index: usize, outcome: io::Result<()>) {
        let has_proxy = self.connections[index].proxy.is_some();
        let cut = self.connections[index].tls.as_mut().and_then(|tls| tls.end().err());
        match (outcome, cut) {
            (Err(error), _) => self.not_connected(index, failure_name(&error), || error.to_string()),
            (Ok(()), Some(failure)) if !has_proxy => self.tls_failed(index, &failure),
            (Ok(()), _) => self.not_connected(index, "proxy_closed_early", || "the proxy hung up".to_owned()),
        }
    }

    fn tls_failed(&mut self, index: usize, failure: &TlsFailure) {
        self.not_connected(index, failure.name, || failure.detail.clone());
    }

    /// The connection carries requests from now on.
    fn established(&mut self, index: usize, now_ns: u64) {
        self.opening -= 1;
        self.up += 1;
        let connection = &mut self.connections[index];
        connection.state = ConnectionState::Up;
        (connection.retry_delay_ns, connection.failed_attempts) = (FIRST_RETRY_NS, 0);
        connection.served = 0;
        connection.machine.opened();
        let wanted_ns = connection.owed_since_ns.take().unwrap_or(now_ns);
        self.next(index, wanted_ns, now_ns);
    }

    /// Counts a failed attempt to connect and rests before the next one.
    fn not_connected(&mut self, index: usize, name: &str, example: impl FnOnce() -> String) {
        self.failures.count(name, 1, example);
        // What waited for this connection is not kept waiting on its account: a failure has its own place.
        self.connections[index].owed_since_ns = None;
        self.connections[index].failed_attempts += 1;
        self.disconnect(index);
        self.schedule_retry(index);
    }

    /// A step of opening has taken longer than it may.
    pub fn too_slow(&mut self, index: usize, state: ConnectionState) {
        let connection = &self.connections[index];
        let name = match state {
            ConnectionState::Resolving { .. } => "dns_timeout",
            ConnectionState::Handshaking { .. } if connection.proxy.is_some() => "proxy_timeout",
            ConnectionState::Handshaking { .. } => "tls_timeout",
            _ => "connect_timeout",
        };
        let (route, limit_ms) = (self.plan.route.to_string(), self.plan.connect_timeout_ns / 1_000_000);
        self.not_connected(index, name, || format!("{route} did not answer within {limit_ms} ms"));
    }

    /// An idle connection is gone. It is opened anew, but not at once: a server that hangs up on whoever comes would
    /// otherwise be called again and again for nothing.
    pub fn lost_idle(&mut self, index: usize) {
        self.disconnect(index);
        self.schedule_retry(index);
    }

    /// Closes a connection and begins another in its place, unless no request is left for it, those on their way up being
    /// served first. With `owed_since_ns`, the next request has waited since then.
    pub fn reopen(&mut self, index: usize, owed_since_ns: Option<u64>) {
        self.disconnect(index);
        if self.schedule.left() > self.opening as u64 {
            self.connections[index].owed_since_ns = owed_since_ns;
            self.connect(index);
        }
    }

    pub fn disconnect(&mut self, index: usize) {
        drop(self.detach(index));
        let connection = &mut self.connections[index];
        match connection.state {
            ConnectionState::Up => self.up -= 1,
            ConnectionState::Resolving { .. }
            | ConnectionState::Connecting { .. }
            | ConnectionState::Handshaking { .. } => self.opening -= 1,
            ConnectionState::Down { .. } | ConnectionState::Unused => {}
        }
        if std::mem::take(&mut connection.is_queued) {
            self.idle.retain(|&idle| idle != index);
        }
        connection.machine.close();
        (connection.tls, connection.proxy, connection.broken, connection.records_left) = (None, None, None, 0);
        connection.epoch = connection.epoch.wrapping_add(1);
        connection.state = ConnectionState::Down { retry_ns: u64::MAX };
    }

    fn schedule_retry(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let retry_ns = monotonic_ns() + connection.retry_delay_ns;
        connection.retry_delay_ns = (connection.retry_delay_ns * 2).min(LONGEST_RETRY_NS);
        connection.state = ConnectionState::Down { retry_ns };
        self.next_sweep_ns = self.next_sweep_ns.min(retry_ns);
    }
}
