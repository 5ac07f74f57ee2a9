//! The phases of a client, the reason for an attempt, and the times of its steps. Plain values: `attempt` moves a
//! client from one phase to the next.

/// A client's phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The arrival is not due yet.
    #[default]
    Waiting,
    /// The TCP handshake is in progress.
    Connecting,
    /// The first packet is sent and not answered.
    Asking,
    /// The protocol's handshake is in progress, until the configuration is complete.
    Negotiating,
    /// The verification echo is in transit through the tunnel.
    Proving,
    /// An echo reply arrived through the tunnel.
    Configured,
    /// As `Partial`: no reply arrived within the time for the first data packet; a late one still makes the client
    /// `Configured`.
    Overdue,
    /// As `Partial`: another client holds the same address or peer id. If that client's tunnel turns out to be dead,
    /// this client is verified.
    Contested,
    /// The tunnel is up and a check failed.
    Partial,
    /// The attempt failed, and the next one is scheduled.
    Resting,
    /// The client failed and does not retry.
    Failed,
}

/// The number of phases.
pub const PHASES: usize = 11;

impl Phase {
    /// Whether there is a tunnel.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Proving | Self::Overdue | Self::Contested | Self::Configured | Self::Partial)
    }

    /// Whether an attempt is in progress.
    pub fn is_trying(self) -> bool {
        matches!(self, Self::Connecting | Self::Asking | Self::Negotiating | Self::Proving)
    }
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// The client arrives.
    #[default]
    Arrival,
    /// The client failed or lost its tunnel.
    Retry,
    /// A scheduled action ordered a new connection.
    Reconnect,
}

/// The times of an attempt's steps, ns; `None` for a step that is not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The attempt was due.
    pub due_ns: u64,
    /// The socket took the first packet.
    pub sent_ns: Option<u64>,
    /// The server answered the first packet.
    pub answered_ns: Option<u64>,
    /// The TLS handshake ended.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys were known.
    pub keys_ns: Option<u64>,
    /// All pushed options were known.
    pub pushed_ns: Option<u64>,
    /// The two ends had authenticated each other (the IKE SA).
    pub ike_up_ns: Option<u64>,
    /// The server had assigned an address.
    pub ip_assigned_ns: Option<u64>,
    /// The keys of the data channel were in use: a child SA, or WireGuard's session.
    pub child_up_ns: Option<u64>,
    /// The first echo reply arrived through the tunnel.
    pub configured_ns: Option<u64>,
}

impl Steps {
    /// The steps of an attempt that was due at `due_ns` and has not begun.
    pub fn due(due_ns: u64) -> Self {
        Self { due_ns, ..Self::default() }
    }

    /// When the configuration was complete, ns.
    pub fn complete_ns(&self) -> Option<u64> {
        self.pushed_ns.or(self.child_up_ns)
    }

    /// Duration from the due time to `at_ns`, ns.
    pub fn since_due(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.due_ns)
    }
}
