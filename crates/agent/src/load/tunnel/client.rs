//! One client of a fleet: how far it is, what it holds, when something is to be done for it next. Owns no decision about
//! others, no clock and no socket call; `attempt` moves it on.

use std::net::SocketAddr;

use leadline_tunnel::openvpn::client::Client as OpenVpnClient;
use leadline_tunnel::openvpn::config::Token;
use leadline_wire::{TunnelClientReport, TunnelOccasion, TunnelState};

use super::assigned_config::AssignedConfig;
use super::attempt_log::{Attempt, AttemptLog};
use super::inner_traffic::InnerTraffic;
use super::transport::TransportSocket;

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its turn has not come.
    Waiting,
    /// TCP's handshake goes on.
    Connecting,
    /// The reset is on its way, and has had no answer.
    Asking,
    /// OpenVPN's handshake goes on, until the pushed options are there.
    Negotiating,
    /// The first data packet is on its way there and back.
    Proving,
    /// A packet came back.
    Configured,
    /// As `Partial`: its time for that is over, and the attempt's is not. Should the answer come after all, it is configured.
    Overdue,
    /// As `Partial`: it was given what another client holds. Should that client's tunnel turn out to have been dead by then, this
    /// one goes on to be configured.
    Contested,
    /// The tunnel is up, and something is missing.
    Partial,
    /// It failed, and tries again.
    Resting,
    /// It failed for good.
    Failed,
}

/// How many phases there are.
pub const PHASES: usize = 11;

impl Phase {
    /// Whether there is a tunnel.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Proving | Self::Overdue | Self::Contested | Self::Configured | Self::Partial)
    }

    /// Whether an attempt is under way.
    pub fn is_trying(self) -> bool {
        matches!(self, Self::Connecting | Self::Asking | Self::Negotiating | Self::Proving)
    }
}

/// Why an attempt is made.
pub type Occasion = TunnelOccasion;

/// When an attempt's steps were done, monotonic ns; 0: not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub due_ns: u64,
    pub sent_ns: u64,
    pub answered_ns: u64,
    pub tls_ns: u64,
    pub keys_ns: u64,
    pub pushed_ns: u64,
    pub configured_ns: u64,
}

/// New keys that are in use at this end.
#[derive(Clone, Copy, Debug)]
pub struct Renewed {
    /// Since when they had been due, ns, where the client was told to negotiate them.
    pub due_ns: Option<u64>,
    /// When both halves were there, ns.
    pub done_ns: u64,
}

/// A client's first success, which its report is about.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    pub steps: Steps,
    pub assigned: AssignedConfig,
}

/// See the file's head.
pub struct Client {
    /// Its number in the fleet.
    pub number: u32,
    pub phase: Phase,
    pub transport: Option<TransportSocket>,
    pub machine: Option<Box<OpenVpnClient>>,
    /// The timer that is set, ns; `u64::MAX` where none is.
    pub armed_ns: u64,
    /// When the machine wants to be asked again, ns.
    pub machine_due_ns: u64,
    /// When the attempt began, ns.
    pub began_ns: u64,
    /// When the attempt is given up, ns.
    pub give_up_ns: u64,
    /// When a resting client tries again, ns.
    pub retry_ns: u64,
    pub occasion: Occasion,
    pub steps: Steps,
    /// When its first attempt was due, ns; it has made none before.
    pub first_due_ns: Option<u64>,
    pub attempts: u32,
    /// Which server the next attempt goes to: each failure goes on to the next one.
    pub remote: u32,
    /// Where the present attempt goes.
    pub server: Option<SocketAddr>,
    /// What its server gave it to show instead of a password, which outlives an attempt.
    pub token: Option<Token>,
    /// Failures since it was last configured.
    pub failures: u32,
    /// When the first of them was, ns.
    pub failed_ns: Option<u64>,
    /// Of the attempts that are over.
    pub retransmits: u32,
    pub cause: Option<&'static str>,
    /// What the present tunnel was given.
    pub assigned: Option<Box<AssignedConfig>>,
    pub success: Option<Box<Success>>,
    pub local: Option<SocketAddr>,
    /// When the present attempt, or its tunnel, ended, ns.
    pub ended_ns: Option<u64>,
    /// When its server was last heard, ns, where the present attempt's machine is gone.
    pub heard_ns: Option<u64>,
    /// The attempts before the present one.
    pub log: AttemptLog,
    /// Since when new keys are due, ns.
    pub renewal_due_ns: Option<u64>,
    /// New keys that the server has neither accepted nor refused.
    pub renewed: Option<Renewed>,
    pub inner: InnerTraffic,
    /// Whether it has once come to an end of its way up.
    pub has_ended: bool,
}

impl Client {
    /// A client whose turn has not come, and which server it begins with.
    pub fn new(number: u32, remote: u32) -> Self {
        Self {
            number,
            phase: Phase::Waiting,
            transport: None,
            machine: None,
            armed_ns: u64::MAX,
            machine_due_ns: u64::MAX,
            began_ns: 0,
            give_up_ns: u64::MAX,
            retry_ns: u64::MAX,
            occasion: Occasion::Arrival,
            steps: Steps::default(),
            first_due_ns: None,
            attempts: 0,
            remote,
            server: None,
            token: None,
            failures: 0,
            failed_ns: None,
            retransmits: 0,
            cause: None,
            assigned: None,
            success: None,
            local: None,
            ended_ns: None,
            heard_ns: None,
            log: AttemptLog::default(),
            renewal_due_ns: None,
            renewed: None,
            inner: InnerTraffic::default(),
            has_ended: false,
        }
    }

    /// When something is to be done for it, ns; `u64::MAX` while it only waits for packets.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        let own_ns = match self.phase {
            Phase::Waiting | Phase::Failed => return u64::MAX,
            Phase::Resting => return self.retry_ns,
            Phase::Connecting | Phase::Asking | Phase::Negotiating => self.give_up_ns,
            Phase::Proving | Phase::Contested => self.inner.proof_due_ns(),
            Phase::Overdue => self.give_up_ns.min(self.inner.proof_due_ns()),
            Phase::Partial => u64::MAX,
            Phase::Configured => self.inner.ping_due_ns(),
        };
        let is_blocked = self.transport.as_ref().is_some_and(TransportSocket::is_blocked);
        let traffic_ns = if is_blocked { u64::MAX } else { self.inner.traffic_due_ns() };
        own_ns.min(self.machine_due_ns).min(traffic_ns)
    }

    /// Its present attempt, if it has made one.
    pub fn attempt(&self) -> Option<Attempt> {
        (self.attempts > 0).then(|| Attempt {
            number: self.attempts,
            occasion: self.occasion,
            steps: self.steps,
            ended_ns: self.ended_ns,
            cause: self.cause,
            server: self.server,
            local: self.local,
            assigned: self.assigned.as_deref().copied().filter(|_| self.steps.pushed_ns > 0),
        })
    }

    /// Its row in the report.
    pub fn report(&self) -> TunnelClientReport {
        let steps = self.success.as_ref().map_or(&self.steps, |success| &success.steps);
        let assigned = self.success.as_ref().map(|success| &success.assigned).or(self.assigned.as_deref());
        let since = |step_ns: u64| (step_ns > 0).then(|| step_ns.saturating_sub(steps.due_ns));
        let heard_ns = self.machine.as_ref().map_or(self.heard_ns, |machine| machine.last_received_ns());
        let running = self.machine.as_ref().map_or(0, |machine| machine.retransmits());
        TunnelClientReport {
            client: self.number,
            state: match self.phase {
                Phase::Waiting => TunnelState::Waiting,
                Phase::Configured => TunnelState::Configured,
                Phase::Overdue | Phase::Contested | Phase::Partial => TunnelState::Partial,
                _ => TunnelState::Failed,
            },
            cause: self.cause.map(str::to_owned),
            due_ns: steps.due_ns,
            first_due_ns: self.first_due_ns.unwrap_or(steps.due_ns),
            sent_ns: since(steps.sent_ns),
            answered_ns: since(steps.answered_ns),
            tls_ns: since(steps.tls_ns),
            keys_ns: since(steps.keys_ns),
            pushed_ns: since(steps.pushed_ns),
            configured_ns: since(steps.configured_ns),
            ended_ns: self.ended_ns.and_then(since),
            heard_ns: heard_ns.and_then(since),
            attempts: self.attempts,
            retransmits: self.retransmits + running,
            addresses: assigned
                .into_iter()
                .flat_map(AssignedConfig::addresses)
                .map(|address| address.to_string())
                .collect(),
            peer_id: assigned.and_then(|assigned| assigned.peer_id),
            cipher: assigned.and_then(|assigned| assigned.cipher).map(|cipher| cipher.name().to_owned()),
            local: self.local.map(|local| local.to_string()),
            inside: self.inner.counts(),
        }
    }
}
