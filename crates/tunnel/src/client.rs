//! The life of one VPN client as a state machine: attempts and retries, verification of the assigned configuration,
//! scheduled actions, renewals and teardown. It receives events with their time and acts through [`Effects`]; it owns
//! no socket, reads no clock and never waits. The driver passes each [`Input`], calls `poll` until it returns `Wait`,
//! then sets a timer for `deadline_ns`. `attempt` connects and handles failures, `verification` decides whether a
//! tunnel is `configured`, `teardown` ends it.

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
use crate::inside::icmp;
use crate::protocol::{Counters, Failure, Received, Session, Token};
use crate::timer::earlier;

/// An event for a client.
#[derive(Debug)]
pub enum Input {
    /// The client's arrival is due.
    Arrive {
        /// Since when, ns.
        due_ns: u64,
    },
    /// The TCP connection is established.
    Connected,
    /// The TCP connection could not be established.
    ConnectFailed(SocketError),
    /// All packets of a batch have been passed to `receive`.
    BatchReceived,
    /// The socket has sent the data that waited for buffer space.
    Writable,
    /// The socket failed, or the server closed the connection.
    SocketFailed(SocketError),
    /// The timer for `deadline_ns` has expired.
    TimerDue,
    /// A scheduled action is due.
    Act {
        /// The action.
        action: Action,
        /// Since when it is due, ns.
        due_ns: u64,
    },
    /// No other client holds this client's addresses and peer id any more.
    ClaimFreed,
    /// Configured clients start to ping.
    StartPings,
    /// All clients stop pinging.
    StopPings,
    /// Start to probe which packet sizes pass through the tunnel.
    ProbeSizes,
    /// The fleet disconnects.
    Leave,
}

/// A scheduled action of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Negotiate new keys.
    Renegotiate,
    /// Drop the tunnel without an exit notification and connect again.
    Reconnect,
}

/// Whether a client has more to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Call `poll` again with the current time.
    Again,
    /// Nothing to do until the next input or `deadline_ns`.
    Wait,
}

/// A client's first success, which its report describes.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// The times of that attempt's steps.
    pub steps: Steps,
    /// The assigned configuration.
    pub assigned: AssignedConfig,
}

/// One client of a fleet.
pub struct VpnClient {
    number: u32,
    settings: Arc<Settings>,
    phase: Phase,
    /// The session of the current attempt; `None` before it negotiates and after it has ended.
    session: Option<Box<dyn Session>>,
    /// When to poll the session, ns. `None` without a session, and while the session waits for packets only.
    session_due_ns: Option<u64>,
    /// Whether the session has to be polled now.
    is_session_due: bool,
    /// The session's failure; the attempt ends when the session has sent its last packets.
    ending: Option<Failure>,
    /// When the batch that is not processed yet was received, ns.
    batch_ns: Option<u64>,
    /// The session's counters when they were last added to the driver's.
    counted: Counters,
    /// The current or last attempt; its number is 0 before the first.
    current: Attempt,
    /// When the current attempt began, ns.
    began_ns: u64,
    /// When the current attempt times out, ns. Set from the beginning of an attempt until the fleet disconnects; not
    /// before `began_ns`; within an attempt it only moves to later times. It ends the phases `Connecting`, `Asking`,
    /// `Negotiating` and `Overdue`.
    give_up_ns: Option<u64>,
    /// When the next attempt is due, ns. Set only in the phase `Resting`.
    retry_ns: Option<u64>,
    /// When the first attempt was due, ns; it stays over retries.
    first_due_ns: Option<u64>,
    /// Index of the next attempt's server, modulo the number of servers; each failure increments it.
    server_turn: u32,
    /// The server's token, which replaces the password; it is kept between attempts.
    token: Option<Token>,
    /// Failures since the client was last configured.
    failures: u32,
    /// Time of the first failure since the last success, ns.
    failed_ns: Option<u64>,
    /// Retransmissions of ended attempts.
    retransmits: u32,
    /// The last assigned configuration.
    assigned: Option<Box<AssignedConfig>>,
    success: Option<Box<Success>>,
    /// When the server was last heard, ns, if the current attempt's session has ended.
    heard_ns: Option<u64>,
    log: AttemptLog,
    renewal: Renewal,
    echoes: Echoes,
    /// Packets received from the tunnel, and sent into it.
    packets_received: u64,
    packets_sent: u64,
    /// Whether the client's arrival has ended, configured or not.
    has_arrived: bool,
    /// Whether the fleet disconnects: an ending tunnel is no failure then, and no attempt begins.
    is_leaving: bool,
}

impl VpnClient {
    /// Creates a client whose arrival is not due yet; `server_turn` selects its first server.
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

    /// Handles an input; if it returns `Again`, call `poll` until that returns `Wait`.
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

    /// Performs one step of the work that is due now.
    pub fn poll(&mut self, now_ns: u64, effects: &mut impl Effects) -> Progress {
        if self.is_session_due {
            self.step_session(now_ns, effects);
        } else if let Some(batch_ns) = self.batch_ns.take() {
            self.process_batch(batch_ns, effects);
        }
        self.progress()
    }

    /// Handles one packet from the socket, over TCP without its length; `arrived_ns` is when the kernel received it.
    /// After all packets of a batch, `Input::BatchReceived` follows.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, arrived_ns: u64, packet: &mut [u8], inbox: &mut impl Inbox) {
        // Without a session, the packet was in transit when the attempt ended.
        let Some(session) = &mut self.session else { return };
        let mut space = std::mem::take(inbox.space());
        match session.handle(now_ns, packet, &mut space) {
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
        *inbox.space() = space;
    }

    /// Seals a packet for the tunnel into the outgoing buffer; returns whether it will be sent. Call `flush`
    /// afterwards.
    #[inline]
    pub fn send(&mut self, now_ns: u64, packet: &[u8], socket: &mut impl Socket) -> bool {
        let Some(session) = &mut self.session else { return false };
        let is_sent = socket.send_data(|out| session.send(now_ns, packet, out));
        self.packets_sent += u64::from(is_sent);
        is_sent
    }

    /// Sends the packets in the outgoing buffer.
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

    /// Corrects the count of `send` by packets that were not sent.
    pub fn not_sent(&mut self, packets: u64) {
        self.packets_sent = self.packets_sent.saturating_sub(packets);
    }

    /// Accepts renewed keys that the server has not refused for long enough.
    pub fn accept_silence(&mut self, now_ns: u64, figures: &mut impl Figures) {
        self.renewal.accept_silence(now_ns, figures);
    }

    /// When `Input::TimerDue` has to be passed, ns; `None` while the client only waits for packets.
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

    /// The client's number in the fleet.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The client's phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The last assigned configuration.
    pub fn assigned(&self) -> Option<&AssignedConfig> {
        self.assigned.as_deref()
    }

    /// Why the current attempt ended, or the first check that failed.
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

    /// The current or last attempt.
    pub fn attempt(&self) -> Option<Attempt> {
        let steps = &self.current.steps;
        let is_assigned = steps.complete_ns().or(steps.ip_assigned_ns).is_some();
        let assigned = self.assigned.as_deref().copied().filter(|_| is_assigned);
        (self.current.number > 0).then_some(Attempt { assigned, ..self.current })
    }

    /// The stored attempts before the current one.
    pub fn earlier_attempts(&self) -> impl Iterator<Item = Attempt> + '_ {
        self.log.iter()
    }

    /// When the server was last heard in the current attempt, ns.
    pub fn heard_ns(&self) -> Option<u64> {
        self.session.as_ref().map_or(self.heard_ns, |session| session.last_received_ns())
    }

    /// Retransmitted control packets of all attempts.
    pub fn retransmits(&self) -> u32 {
        self.retransmits + self.session.as_ref().map_or(0, |session| session.retransmits())
    }

    /// The local address of the current attempt.
    pub fn local(&self) -> Option<SocketAddr> {
        self.current.local
    }

    /// Packets received from the tunnel.
    pub fn packets_received(&self) -> u64 {
        self.packets_received
    }

    /// Packets sent into the tunnel.
    pub fn packets_sent(&self) -> u64 {
        self.packets_sent
    }

    /// The numbers of pings sent and answered.
    pub fn pings(&self) -> (u64, u64) {
        self.echoes.pings()
    }

    /// Until when the server may still refuse renewed keys, ns.
    pub fn refusable_until_ns(&self) -> Option<u64> {
        self.renewal.refusable_until_ns()
    }

    /// Whether the client is up and has something left to send or to wait for, including its exit notification.
    pub fn is_session_waiting(&self) -> bool {
        self.phase.is_up() && self.session_due_ns.is_some()
    }

    /// Whether packet sizes are still being probed.
    pub fn is_probing_sizes(&self) -> bool {
        self.echoes.is_probing_sizes()
    }

    /// The packet sizes that pass, if they were probed.
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

    /// Adds the session's counts of a batch, and processes the batch when the session has nothing due.
    fn batch_received(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if let Some(session) = &self.session {
            let counters = session.counters();
            effects.counts().rejected += counters.rejected - self.counted.rejected;
            effects.counts().replayed += counters.replayed - self.counted.replayed;
            self.counted = counters;
        }
        if self.is_session_due {
            self.batch_ns = Some(now_ns);
        } else {
            self.watch_session();
            self.process_batch(now_ns, effects);
        }
    }

    /// Sends the replies to a batch, and checks the verification.
    fn process_batch(&mut self, now_ns: u64, effects: &mut impl Effects) {
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
            self.check_verification(now_ns, effects);
        }
    }

    /// Data through the tunnel may have used up its keys, and postpones keepalives.
    #[inline]
    fn watch_session(&mut self) {
        if let Some(session) = &self.session {
            self.session_due_ns = session.deadline_ns();
        }
    }

    fn enter(&mut self, phase: Phase, effects: &mut impl Effects) {
        effects.entered(self.phase, phase);
        self.phase = phase;
    }

    /// Builds an echo request in the driver's buffer and sends it; returns whether it will be sent.
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

    /// Starts this client's pings when all clients ping, if this client does; it was configured at `at_ns`. If some
    /// clients are settled, only they ping, because their pings measure the effect of arrivals on others.
    fn ping_from(&mut self, at_ns: u64, effects: &mut impl Effects) {
        let Some(pings) = self.settings.pings.filter(|pings| self.number < pings.clients) else { return };
        let Some(since_ns) = effects.pings_since_ns() else { return };
        // The pings are spread over one gap; otherwise all clients of a storm would ping at the same time.
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

/// Splits off the first IP packet by the length in its header.
fn first_packet(packets: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packets.get(at)?, *packets.get(at + 1)?])));
    let length = match packets.first()? >> 4 {
        4 => word(2)?,
        _ => 40 + word(4)?,
    };
    (length > 0).then(|| packets.split_at_checked(length)).flatten()
}
