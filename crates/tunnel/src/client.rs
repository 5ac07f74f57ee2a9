//! One VPN client's life as a machine: attempts and retries, verification of what the server assigned, scheduled actions, renewals
//! and teardown. It is given events and the time, and has its [`Effects`] carried out; it owns no socket, reads no clock and never
//! waits. The driver hands it each [`Input`], calls `poll` until that says `Wait`, then sets a timer for `deadline_ns`.
//! `attempt` is the way up and what follows a failure, `verification` what makes a tunnel `configured`, `teardown` its end.

pub mod assigned_config;
mod attempt;
pub mod attempt_log;
mod echo;
pub mod effects;
pub mod expectation;
pub mod packet_sizes;
pub mod phase;
mod renewal;
pub mod server;
pub mod settings;
mod teardown;
#[cfg(test)]
mod tests;
pub mod timer;
mod verification;

use std::net::SocketAddr;
use std::sync::Arc;

use self::assigned_config::AssignedConfig;
use self::attempt_log::{Attempt, AttemptLog};
use self::echo::Echoes;
use self::effects::{Effects, Figures, Inbox, Socket, SocketError};
use self::packet_sizes::{PacketSizes, ROUNDS};
use self::phase::{Occasion, Phase, Steps};
use self::renewal::Renewal;
use self::settings::Settings;
use self::timer::earlier;
use crate::inside::icmp;
use crate::openvpn::client::{Client as Session, Counters, Failure, Received};
use crate::openvpn::config::Token;

/// What has happened outside of a client.
#[derive(Debug)]
pub enum Input {
    /// Its arrival is due since this time, ns.
    Arrive {
        /// When, ns.
        due_ns: u64,
    },
    /// The TCP connection is made.
    Connected,
    /// The TCP connection could not be made.
    ConnectFailed(SocketError),
    /// The packets of a batch have been handed to `receive`.
    BatchReceived,
    /// The socket has sent what waited for room.
    Writable,
    /// The socket failed, or the server closed the connection.
    SocketFailed(SocketError),
    /// The timer for `deadline_ns` has run out.
    TimerDue,
    /// A scheduled action is due.
    Act {
        /// What the client does.
        action: Action,
        /// Since when it is due, ns.
        due_ns: u64,
    },
    /// The client alone holds the addresses and the number now that another client held too.
    ClaimFreed,
    /// Configured clients ping from now on.
    StartPings,
    /// No client pings any more.
    StopPings,
    /// Find out which sizes of packets get through the tunnel.
    ProbeSizes,
    /// The fleet leaves.
    Leave,
}

/// A scheduled action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Negotiate new keys.
    Renegotiate,
    /// Leave without a farewell and connect again.
    Reconnect,
}

/// Whether a client has more to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Call `poll` again, with the present time.
    Again,
    /// Nothing to do until the next input or `deadline_ns`.
    Wait,
}

/// A client's first success, which its report is about.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// When the steps of that attempt were done.
    pub steps: Steps,
    /// What the server assigned.
    pub assigned: AssignedConfig,
}

/// One client of a fleet.
pub struct VpnClient {
    number: u32,
    settings: Arc<Settings>,
    phase: Phase,
    /// The OpenVPN session of the present attempt; `None` before it begins to negotiate and after it has ended.
    session: Option<Box<Session>>,
    /// When the session is to be polled, ns. `None` without a session, and while it waits for packets alone.
    session_due_ns: Option<u64>,
    /// Whether the session is to be polled now.
    is_session_due: bool,
    /// What the session failed by; the attempt ends once the session has sent its last packets.
    ending: Option<Failure>,
    /// When the batch was received that is still to be looked at, ns.
    batch_ns: Option<u64>,
    /// What the session's counters were when they were last added to the driver's.
    counted: Counters,
    /// The present attempt, or the last one; its number is 0 before the first.
    current: Attempt,
    /// When the present attempt began, ns.
    began_ns: u64,
    /// When the present attempt is given up, ns. Set from an attempt's beginning until the fleet leaves; not before `began_ns`; it only
    /// moves to later times within an attempt. It ends `Connecting`, `Asking`, `Negotiating` and `Overdue`.
    give_up_ns: Option<u64>,
    /// When the next attempt is due, ns. Set in `Resting` alone.
    retry_ns: Option<u64>,
    first_due_ns: Option<u64>,
    /// Which server the next attempt goes to: each failure goes on to the next one.
    server_turn: u32,
    /// What the server gave to show instead of a password; it outlives an attempt.
    token: Option<Token>,
    /// Failures since the client was last configured.
    failures: u32,
    /// When the first failure was that no success has followed, ns.
    failed_ns: Option<u64>,
    /// Of the attempts that are over.
    retransmits: u32,
    /// What the server last assigned.
    assigned: Option<Box<AssignedConfig>>,
    success: Option<Box<Success>>,
    /// When the server was last heard, ns, where the present attempt's session has ended.
    heard_ns: Option<u64>,
    log: AttemptLog,
    renewal: Renewal,
    echoes: Echoes,
    /// Packets that came out of the tunnel, and that went into it.
    packets_received: u64,
    packets_sent: u64,
    /// Whether its arrival has ended, configured or not.
    has_arrived: bool,
    /// Whether the fleet leaves: what ends now is no failure, and nothing begins.
    is_leaving: bool,
}

impl VpnClient {
    /// A client whose arrival is not due yet; `server_turn` says which server it begins with.
    pub fn new(number: u32, settings: Arc<Settings>, server_turn: u32) -> Self {
        Self {
            number,
            settings,
            phase: Phase::Waiting,
            session: None,
            session_due_ns: None,
            is_session_due: false,
            ending: None,
            batch_ns: None,
            counted: Counters::default(),
            current: Attempt::none(),
            began_ns: 0,
            give_up_ns: None,
            retry_ns: None,
            first_due_ns: None,
            server_turn,
            token: None,
            failures: 0,
            failed_ns: None,
            retransmits: 0,
            assigned: None,
            success: None,
            heard_ns: None,
            log: AttemptLog::default(),
            renewal: Renewal::default(),
            echoes: Echoes::default(),
            packets_received: 0,
            packets_sent: 0,
            has_arrived: false,
            is_leaving: false,
        }
    }

    /// Take an input; where it says `Again`, call `poll` until that says `Wait`.
    pub fn handle(&mut self, now_ns: u64, input: Input, effects: &mut impl Effects) -> Progress {
        match input {
            Input::Arrive { due_ns } => self.begin(now_ns, due_ns, Occasion::Arrival, effects),
            Input::Connected => self.negotiate(now_ns, effects),
            Input::ConnectFailed(error) => self.fail(now_ns, error.code, &error.to_string(), effects),
            Input::BatchReceived => self.batch_received(now_ns, effects),
            Input::Writable => self.is_session_due = true,
            Input::SocketFailed(error) => self.socket_failed(now_ns, &error, effects),
            Input::TimerDue => self.timer_due(now_ns, effects),
            Input::Act { action, due_ns } => self.act(now_ns, due_ns, action, effects),
            Input::ClaimFreed => self.claim_freed(now_ns, effects),
            Input::StartPings if self.phase == Phase::Configured => self.ping_from(0, effects),
            Input::StartPings => {}
            Input::StopPings => self.echoes.ping_from(None),
            Input::ProbeSizes => self.probe_sizes(now_ns, effects),
            Input::Leave => self.leave(now_ns, effects),
        }
        self.progress()
    }

    /// Do one step of what is due now.
    pub fn poll(&mut self, now_ns: u64, effects: &mut impl Effects) -> Progress {
        if self.is_session_due {
            self.step_session(now_ns, effects);
        } else if let Some(batch_ns) = self.batch_ns.take() {
            self.look_at_batch(batch_ns, effects);
        }
        self.progress()
    }

    /// Take one packet from the socket, of TCP without its length; `arrived_ns` is when the kernel had it. Once all packets of a batch
    /// are taken, `Input::BatchReceived` follows.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, arrived_ns: u64, packet: &mut [u8], inbox: &mut impl Inbox) {
        // Without a session it is what was under way when the attempt ended.
        let Some(session) = &mut self.session else { return };
        match session.handle(now_ns, packet) {
            Received::Payload(payload) => {
                self.packets_received += 1;
                let is_ours = is_icmp(payload)
                    && (self.echoes.receive(arrived_ns, payload, inbox) || icmp::answer(payload, inbox.replies()));
                if !is_ours {
                    inbox.deliver(arrived_ns, payload);
                }
            }
            Received::Control => self.is_session_due = true,
            Received::Nothing => {}
        }
    }

    /// Seal a packet for the tunnel and put it into the outgoing buffer; returns whether it will be sent. `flush` follows.
    #[inline]
    pub fn send(&mut self, now_ns: u64, packet: &[u8], socket: &mut impl Socket) -> bool {
        let Some(session) = &mut self.session else { return false };
        let is_sent = socket.send_data(|out| session.send(now_ns, packet, out));
        self.packets_sent += u64::from(is_sent);
        is_sent
    }

    /// Send what `send` has put into the outgoing buffer.
    pub fn flush(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let flushed = effects.socket().flush();
        if flushed.refused > 0 {
            self.not_sent(flushed.refused);
            effects.packets_refused(flushed.refused);
        }
        self.watch_session();
        if let Some(error) = flushed.error {
            self.socket_failed(now_ns, &error, effects);
        }
    }

    /// This many packets that `send` had counted were not sent after all.
    pub fn not_sent(&mut self, packets: u64) {
        self.packets_sent = self.packets_sent.saturating_sub(packets);
    }

    /// Accept renewed keys that the server has not refused for long enough.
    pub fn accept_silence(&mut self, now_ns: u64, figures: &mut impl Figures) {
        self.renewal.accept_silence(now_ns, figures);
    }

    /// When `Input::TimerDue` is to be handed in, ns; `None` while the client only waits for packets.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        let own_ns = match self.phase {
            Phase::Waiting | Phase::Failed => return None,
            Phase::Resting => return self.retry_ns,
            Phase::Connecting | Phase::Asking | Phase::Negotiating => self.give_up_ns,
            Phase::Proving | Phase::Contested => self.echoes.verification_due_ns(),
            Phase::Overdue => earlier(self.give_up_ns, self.echoes.verification_due_ns()),
            Phase::Partial => None,
            Phase::Configured => self.echoes.ping_due_ns(),
        };
        earlier(own_ns, self.session_due_ns)
    }

    /// Its number in the fleet.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What the server last assigned.
    pub fn assigned(&self) -> Option<&AssignedConfig> {
        self.assigned.as_deref()
    }

    /// Why the present attempt ended, or the first check that it missed.
    pub fn cause(&self) -> Option<&'static str> {
        self.current.cause
    }

    /// When the first attempt was due, ns.
    pub fn first_due_ns(&self) -> Option<u64> {
        self.first_due_ns
    }

    /// The first success.
    pub fn success(&self) -> Option<&Success> {
        self.success.as_deref()
    }

    /// The present attempt, or the last one.
    pub fn attempt(&self) -> Option<Attempt> {
        let is_pushed = self.current.steps.pushed_ns.is_some();
        let assigned = self.assigned.as_deref().copied().filter(|_| is_pushed);
        (self.current.number > 0).then_some(Attempt { assigned, ..self.current })
    }

    /// The attempts before the present one that are kept.
    pub fn earlier_attempts(&self) -> impl Iterator<Item = Attempt> + '_ {
        self.log.iter()
    }

    /// When the server was last heard in the present attempt, ns.
    pub fn heard_ns(&self) -> Option<u64> {
        self.session.as_ref().map_or(self.heard_ns, |session| session.last_received_ns())
    }

    /// Control packets that were sent again, in all attempts.
    pub fn retransmits(&self) -> u32 {
        self.retransmits + self.session.as_ref().map_or(0, |session| session.retransmits())
    }

    /// The local address of the present attempt.
    pub fn local(&self) -> Option<SocketAddr> {
        self.current.local
    }

    /// Packets that came out of the tunnel.
    pub fn packets_received(&self) -> u64 {
        self.packets_received
    }

    /// Packets that went into the tunnel.
    pub fn packets_sent(&self) -> u64 {
        self.packets_sent
    }

    /// The numbers of pings sent and answered.
    pub fn pings(&self) -> (u64, u64) {
        self.echoes.pings()
    }

    /// Until when a refusal of renewed keys may still come, ns.
    pub fn refusable_until_ns(&self) -> Option<u64> {
        self.renewal.refusable_until_ns()
    }

    /// Whether the client is up and has something left to send or to wait for, its farewell among it.
    pub fn is_session_waiting(&self) -> bool {
        self.phase.is_up() && self.session_due_ns.is_some()
    }

    /// Whether sizes of packets are still being found out.
    pub fn is_probing_sizes(&self) -> bool {
        self.echoes.is_probing_sizes()
    }

    /// The sizes of packets that get through, where they were found out.
    pub fn packet_sizes(&self) -> Option<PacketSizes> {
        self.echoes.packet_sizes()
    }

    fn progress(&self) -> Progress {
        if self.is_session_due || self.batch_ns.is_some() {
            Progress::Again
        } else {
            Progress::Wait
        }
    }

    /// Count what the session made of a batch, and look at it once the session has taken what is due.
    fn batch_received(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if let Some(session) = &self.session {
            let counters = *session.counters();
            effects.counts().rejected += counters.rejected - self.counted.rejected;
            effects.counts().replayed += counters.replayed - self.counted.replayed;
            self.counted = counters;
        }
        if self.is_session_due {
            self.batch_ns = Some(now_ns);
        } else {
            self.watch_session();
            self.look_at_batch(now_ns, effects);
        }
    }

    /// Send the replies that a batch calls for, and look at the verification.
    fn look_at_batch(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if !effects.scratch().replies.is_empty() {
            let mut replies = std::mem::take(&mut effects.scratch().replies);
            let mut rest = replies.as_slice();
            while let Some((packet, more)) = first_packet(rest) {
                self.send(now_ns, packet, effects.socket());
                rest = more;
            }
            replies.clear();
            effects.scratch().replies = replies;
            self.flush(now_ns, effects);
        }
        if matches!(self.phase, Phase::Proving | Phase::Overdue | Phase::Contested) {
            self.look_at_verification(now_ns, effects);
        }
    }

    /// Data that went through the tunnel may have used its keys up, and puts keepalives off.
    #[inline]
    fn watch_session(&mut self) {
        if let Some(session) = &self.session {
            self.session_due_ns = Some(session.deadline_ns()).filter(|due_ns| *due_ns != u64::MAX);
        }
    }

    fn enter(&mut self, phase: Phase, effects: &mut impl Effects) {
        effects.entered(self.phase, phase);
        self.phase = phase;
    }

    /// Build an echo request in the driver's buffer and send it; returns whether it will be sent.
    fn send_echo(
        &mut self,
        now_ns: u64,
        effects: &mut impl Effects,
        build: impl FnOnce(&Echoes, &mut Vec<u8>) -> bool,
    ) -> bool {
        let mut packet = std::mem::take(&mut effects.scratch().packet);
        packet.clear();
        let is_sent = build(&self.echoes, &mut packet) && self.send(now_ns, &packet, effects.socket());
        effects.scratch().packet = packet;
        is_sent
    }

    fn send_ping(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let due_ns = self.echoes.ping_due_ns().filter(|due_ns| now_ns >= *due_ns);
        let (Some(due_ns), Some(pings)) = (due_ns, self.settings.pings) else { return };
        let is_sent = self.send_echo(now_ns, effects, |echoes, out| echoes.build_ping(now_ns, out));
        self.echoes.ping_sent((due_ns, now_ns), pings.gap_ns, is_sent, effects);
        self.flush(now_ns, effects);
    }

    /// Ping from when all clients do, if this one does; it was configured at `at_ns`. Where some clients are settled only they ping, for
    /// their pings tell what the arrivals do to others.
    fn ping_from(&mut self, at_ns: u64, effects: &mut impl Effects) {
        let Some(pings) = self.settings.pings.filter(|pings| self.number < pings.clients) else { return };
        let Some(since_ns) = effects.pings_since_ns() else { return };
        // Spread over one gap, or all pings of a storm's clients would go out together.
        let share = u128::from(pings.gap_ns) * u128::from(self.number) / u128::from(pings.clients);
        let share_ns = u64::try_from(share).unwrap_or(pings.gap_ns);
        self.echoes.ping_from(Some(at_ns.max(since_ns).saturating_add(share_ns)));
    }

    fn probe_sizes(&mut self, now_ns: u64, effects: &mut impl Effects) {
        self.echoes.probe_sizes(self.assigned.as_ref().map_or(0, |assigned| assigned.mtu));
        for round in 0..ROUNDS {
            for (number, bytes) in self.echoes.size_requests(round) {
                self.send_echo(now_ns, effects, |echoes, out| echoes.build(number, now_ns, bytes, out));
            }
            self.flush(now_ns, effects);
        }
    }
}

/// Whether a packet may be ICMP or ICMPv6, without extension headers.
#[inline]
fn is_icmp(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(9) == Some(&1),
        Some(6) => packet.get(6) == Some(&58),
        _ => false,
    }
}

/// Split the first IP packet off those that follow it, by the length in its header.
fn first_packet(packets: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packets.get(at)?, *packets.get(at + 1)?])));
    let length = match packets.first()? >> 4 {
        4 => word(2)?,
        _ => 40 + word(4)?,
    };
    (length > 0).then(|| packets.split_at_checked(length)).flatten()
}
