//! What happens to one client's attempt: it begins, connects, negotiates, fails and rests. Owns what each event of its machine
//! and of its socket means to it, and what is counted then; what follows once the options are there is `verification`'s.

use std::io;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::Interest;
use leadline_tunnel::openvpn::client::{Client as OpenVpnClient, Event, Failure, Output};
use leadline_tunnel::openvpn::framing::set_length;
use leadline_tunnel::openvpn::packet::{Header, Opcode};

use super::client::{Client, Occasion, Phase, Steps};
use super::metric::Metric;
use super::transport::{Sent, TransportSocket};
use super::worker::Worker;
use crate::events::error_code;

/// The rest after a failure, ns; doubled after each further one, as OpenVPN 2.6 and later do (`connect-retry 1 300`).
const FIRST_REST_NS: u64 = 1_000_000_000;
const LONGEST_REST_NS: u64 = 300_000_000_000;
/// A change of pushed options could not be applied.
const UPDATE_REJECTED: &str = "push_update_rejected";
/// A timer that runs so late, ns, tells of a thread that could not: its process was stopped, say, or had no CPU.
const HELD_UP_NS: u64 = 100_000_000;

impl Worker {
    /// An attempt is due.
    pub fn begin(&mut self, index: usize, due_ns: u64, occasion: Occasion) {
        let client = &mut self.clients[index];
        if let Some(over) = client.attempt() {
            client.log.push(over);
        }
        client.occasion = occasion;
        (client.ended_ns, client.heard_ns, client.local) = (None, None, None);
        client.server = Some(self.fleet.plan.server(client.remote).address);
        client.steps = Steps { due_ns, ..Steps::default() };
        client.first_due_ns.get_or_insert(due_ns);
        client.cause = None;
        let opened = if client.transport.is_some() { Ok(()) } else { self.open(index) };
        let client = &mut self.clients[index];
        client.attempts += 1;
        self.tally.attempts += 1;
        self.tally.reconnects_begun += u64::from(occasion == Occasion::Reconnect);
        let now_ns = monotonic_ns();
        client.began_ns = now_ns;
        client.give_up_ns = now_ns.saturating_add(self.fleet.plan.attempt_ns);
        if let Err(error) = opened {
            return self.fail(index, error_code(&error), &format!("opening a socket: {error}"));
        }
        match &client.transport {
            Some(TransportSocket::Tcp { .. }) => {
                self.enter_phase(index, Phase::Connecting);
                self.rearm(index);
            }
            _ => self.negotiate(index),
        }
    }

    /// TCP's handshake is over, one way or the other.
    pub fn connected(&mut self, index: usize) {
        let Some(transport) = &self.clients[index].transport else { return };
        if let Some(error) = transport.failure() {
            return self.fail(index, error_code(&error), &error.to_string());
        }
        if let Err(error) = transport.watch_for(&self.poll, index as u64, Interest::Read) {
            return self.fail(index, error_code(&error), &error.to_string());
        }
        self.negotiate(index);
    }

    fn negotiate(&mut self, index: usize) {
        self.enter_phase(index, Phase::Asking);
        let plan = &self.fleet.plan;
        let client = &mut self.clients[index];
        client.local = client.transport.as_ref().and_then(TransportSocket::local);
        let now_ns = monotonic_ns();
        let identity = plan.identity(client.number);
        let machine = match client.token.clone() {
            None => OpenVpnClient::new(&plan.config, identity, now_ns),
            token => OpenVpnClient::new(&plan.config, &identity.with_token(token), now_ns),
        };
        client.machine = Some(Box::new(machine));
        self.drive(index);
    }

    /// Let the machine do what it wants to, until it waits.
    pub fn drive(&mut self, index: usize) {
        let mut failure = None;
        loop {
            let now_ns = monotonic_ns();
            let Some(machine) = &mut self.clients[index].machine else { break };
            match machine.poll(now_ns, &mut self.control) {
                Output::Send => {
                    match self.transmit(index) {
                        Ok(()) => self.note_sent(index),
                        Err(error) => self.broken(index, &error),
                    }
                    if self.clients[index].machine.is_none() {
                        return;
                    }
                }
                // Its last words to the server are still to come.
                Output::Event(Event::Failed(failed)) => failure = Some(Self::failure_cause(failed)),
                Output::Event(event) => failure = self.on_event(index, now_ns, event).or(failure),
                Output::Wait(due_ns) => {
                    self.clients[index].machine_due_ns = due_ns.unwrap_or(u64::MAX);
                    break;
                }
            }
        }
        match failure {
            Some((name, detail)) => self.fail(index, name, &detail),
            None => self.rearm(index),
        }
    }

    /// A control packet has been handed to the socket: of the first one the time is taken, after the machine's work for it.
    fn note_sent(&mut self, index: usize) {
        let steps = &mut self.clients[index].steps;
        if steps.sent_ns == 0 {
            steps.sent_ns = monotonic_ns();
            self.recorder.record(Metric::Late as usize, steps.due_ns, steps.sent_ns.saturating_sub(steps.due_ns));
        }
    }

    /// Send the packet that is in `control`.
    fn transmit(&mut self, index: usize) -> io::Result<()> {
        let Some(transport) = &mut self.clients[index].transport else { return Ok(()) };
        if let Some(header) = self.control.first().and_then(|byte| Header::parse(*byte)) {
            if matches!(header.opcode, Opcode::HardResetClientV2 | Opcode::HardResetClientV3) {
                self.tally.resets_sent += 1;
            }
        }
        if transport.is_stream() {
            self.control.splice(..0, [0, 0]);
            set_length(&mut self.control, 0);
        }
        let was_blocked = transport.is_blocked();
        let sent = transport.send(&self.control, self.control.len())?;
        if sent != Sent::Taken {
            self.tally.pushback += 1;
        }
        if sent == Sent::Waits && !was_blocked {
            transport.watch_for(&self.poll, index as u64, Interest::ReadWrite)?;
        }
        Ok(())
    }

    /// Take an event of the machine; says what the client fails by, where it does.
    pub fn on_event(&mut self, index: usize, now_ns: u64, event: Event) -> Option<(&'static str, String)> {
        let steps = &mut self.clients[index].steps;
        match event {
            Event::Answered => {
                steps.answered_ns = now_ns;
                self.enter_phase(index, Phase::Negotiating);
            }
            Event::TlsDone => steps.tls_ns = now_ns,
            Event::KeysDone => steps.keys_ns = now_ns,
            Event::Up => {
                steps.pushed_ns = now_ns;
                self.on_connected(index, now_ns);
            }
            Event::Renegotiated => self.renewed(index, now_ns),
            Event::RenegotiationAccepted => self.accept_renewal(index),
            Event::RenegotiationRefused => self.refuse_renewal(index),
            Event::RenegotiationFailed => {
                self.tally.renewals_failed += 1;
                self.tally.renewals_unfinished += u64::from(self.take_renewal(index).is_some());
            }
            Event::Updated => self.updated(index),
            Event::UpdateRejected(why) => return Some((UPDATE_REJECTED, why)),
            Event::Pending { until_ns } => {
                self.tally.auth_pending += 1;
                let give_up_ns = &mut self.clients[index].give_up_ns;
                *give_up_ns = until_ns.max(*give_up_ns);
            }
            Event::Restart(why) => return Some(("restarted_by_server", why)),
            Event::PeerLeft => return Some(("server_left", String::new())),
            Event::Failed(failure) => return Some(Self::failure_cause(failure)),
        }
        None
    }

    /// What a machine failed by. Silence is explained, beside the machine's word on what ended it.
    fn failure_cause(failure: Failure) -> (&'static str, String) {
        let detail = match explanation(failure.name) {
            "" => failure.detail,
            silence => format!("{silence}; {}", failure.detail),
        };
        (failure.name, detail)
    }

    /// What a client that was silent for its attempt's whole time failed by.
    fn timeout_cause(&self, client: &Client) -> (&'static str, String) {
        let name = client.machine.as_ref().map_or("reset_unanswered", |machine| machine.stuck_at());
        let own_ns = self.fleet.plan.attempt_ns;
        let given_ns = client.give_up_ns.saturating_sub(client.began_ns);
        let mut detail = format!("{}; ended by the attempt's own time, {} s", explanation(name), own_ns as f64 / 1e9);
        if given_ns > own_ns {
            let given_s = given_ns as f64 / 1e9;
            detail.push_str(&format!(", which the server's AUTH_PENDING made {given_s:.1} s"));
        }
        (name, detail)
    }

    /// A socket has failed, or its server has closed it.
    pub fn broken(&mut self, index: usize, error: &io::Error) {
        let client = &self.clients[index];
        let is_stream = client.transport.as_ref().is_some_and(TransportSocket::is_stream);
        let is_unanswered = client.phase == Phase::Asking;
        if !is_stream && !is_unanswered {
            // A datagram could not be delivered; that the server is gone its silence will tell.
            *self.failures_of_sockets(error) += 1;
            return;
        }
        let is_end = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        match (error.kind(), is_end) {
            (io::ErrorKind::InvalidData, _) => self.fail(index, "malformed_stream", &error.to_string()),
            (_, true) if is_unanswered => self.fail(
                index,
                "closed_unanswered",
                "the server took the connection and closed it before it answered the reset: it has as many clients as it \
                 takes (max-clients), or does not know the key of the control channel",
            ),
            (_, true) => self.fail(index, "closed_by_server", &error.to_string()),
            _ => self.fail(index, error_code(error), &error.to_string()),
        }
    }

    fn failures_of_sockets(&mut self, error: &io::Error) -> &mut u64 {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            &mut self.tally.refused
        } else {
            &mut self.tally.socket_errors
        }
    }

    /// An attempt, or a tunnel, is over.
    pub fn fail(&mut self, index: usize, name: &'static str, detail: &str) {
        if self.is_tearing_down {
            self.end_tunnel(index);
            self.close(index);
            return;
        }
        let now_ns = monotonic_ns();
        let was_up = self.clients[index].phase.is_up();
        self.tally.lost += u64::from(self.clients[index].phase == Phase::Configured);
        self.end_tunnel(index);
        self.close(index);
        let plan = &self.fleet.plan;
        let client = &mut self.clients[index];
        self.failures.count(name, 1, || detail.to_owned());
        client.cause = Some(name);
        client.remote += 1;
        client.failed_ns.get_or_insert(now_ns);
        client.failures += 1;
        client.ended_ns.get_or_insert(now_ns);
        // A client restarts by itself there, and connects again whatever becomes of others.
        let is_retried = name == UPDATE_REJECTED || client.failures <= plan.retries;
        if is_final(name) || !is_retried {
            self.enter_phase(index, Phase::Failed);
            self.end_setup(index, now_ns);
            return;
        }
        let doublings = if was_up { 0 } else { client.failures - 1 };
        let rest_ns = FIRST_REST_NS.saturating_mul(1 << doublings.min(16)).min(LONGEST_REST_NS);
        client.retry_ns = now_ns + rest_ns;
        self.enter_phase(index, Phase::Resting);
        self.rearm(index);
    }

    /// The machine's part is over.
    pub fn end_tunnel(&mut self, index: usize) {
        self.settle_contest(index);
        let client = &mut self.clients[index];
        if let Some(machine) = client.machine.take() {
            client.heard_ns = machine.last_received_ns();
            client.retransmits += machine.retransmits();
            self.tally.retransmits += u64::from(machine.retransmits());
            // None where it was refused: the user and password may still be good.
            client.token = machine.token().cloned();
        }
        if let (Some(assigned), true) = (&client.assigned, client.phase.is_up()) {
            self.fleet.register.release(client.number, assigned, client.heard_ns.unwrap_or(0));
        }
        if client.attempts > 0 && !self.is_tearing_down {
            client.ended_ns.get_or_insert_with(monotonic_ns);
        }
        client.machine_due_ns = u64::MAX;
        client.inner.end();
        self.end_renewal(index, monotonic_ns());
        let detail = "a client's traffic stops for good when its tunnel drops, even if the client connects again";
        self.break_traffic(index, "tunnel_broke", detail);
    }

    /// A client has come to an end of its way up, the first time or not.
    pub fn end_setup(&mut self, index: usize, now_ns: u64) {
        let client = &mut self.clients[index];
        if !client.has_ended {
            client.has_ended = true;
            self.fleet.ended(client.number, now_ns);
        }
    }

    /// A client's timer has run out, which was due then, ns.
    pub fn on_timer(&mut self, index: usize, due_ns: u64, now_ns: u64) {
        // What waits in its socket may have come in time, and is heard before the silence is judged. TCP's handshake says by
        // another way that it is over.
        if now_ns > due_ns.saturating_add(HELD_UP_NS) && self.clients[index].phase != Phase::Connecting {
            self.read(index);
        }
        if self.is_tearing_down {
            return self.drive(index);
        }
        let client = &self.clients[index];
        let is_late = now_ns >= client.give_up_ns;
        match client.phase {
            Phase::Resting if now_ns >= client.retry_ns => {
                return self.begin(index, client.retry_ns, Occasion::Retry);
            }
            Phase::Connecting if is_late => return self.fail(index, "connect_timeout", "no answer to TCP's SYN"),
            Phase::Asking | Phase::Negotiating if is_late => {
                let (name, detail) = self.timeout_cause(client);
                return self.fail(index, name, &detail);
            }
            Phase::Overdue if is_late => {
                self.clients[index].inner.end();
                self.enter_phase(index, Phase::Partial);
                self.count_partial_return(index);
            }
            Phase::Proving | Phase::Overdue | Phase::Contested => {
                self.poll_proof(index, now_ns);
                self.check_proof(index, now_ns);
            }
            Phase::Configured => self.poll_pings(index, now_ns),
            _ => {}
        }
        if now_ns >= self.clients[index].machine_due_ns {
            self.drive(index);
        }
        if now_ns >= self.clients[index].inner.traffic_due_ns() {
            self.poll_traffic(index);
        }
        self.rearm(index);
    }
}

/// As OpenVPN does: who is refused (`auth-retry none`), told to stop, or to end with its server's silence (`ping-exit`) does not
/// ask again. Nor does a client that the host has no descriptor for: the fleet itself has the others.
fn is_final(name: &str) -> bool {
    matches!(name, "auth_failed" | "halted_by_server" | "ping_exit" | "too_many_open_files")
}

/// What a failure by silence may come from; empty for any other.
fn explanation(name: &str) -> &'static str {
    match name {
        "reset_unanswered" => {
            "no answer to any reset: the server is not there, does not know the key of the control channel, or has had too \
             many new clients (connect-freq-initial)"
        }
        "silence_after_reset" => {
            "the reset was answered and nothing after it: the server has as many clients as it takes (max-clients), or has \
             had too many new ones (connect-freq), or could not agree on TLS, which its log says"
        }
        "tls_unfinished" => "TLS's handshake was begun and not ended: the server is too slow, or packets get lost",
        "no_keys" => "TLS's handshake was done and the server's half of the keys did not come",
        "no_push_reply" => "the server sent no options: it is too slow, or somebody has yet to let the client in",
        _ => "",
    }
}
