//! The phases of a client's life, why an attempt is made, and when its steps were done. Plain values: `attempt` moves a client
//! from one phase to the next.

/// How far a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Its arrival is not due yet.
    #[default]
    Waiting,
    /// The TCP handshake is running.
    Connecting,
    /// The first reset is sent and not answered.
    Asking,
    /// The OpenVPN handshake is running, until all pushed options are there.
    Negotiating,
    /// The verification echo is on its way through the tunnel.
    Proving,
    /// An echo reply came back through the tunnel.
    Configured,
    /// As `Partial`: no reply came within the time for the first data packet, and a late one still makes the client `Configured`.
    Overdue,
    /// As `Partial`: another client holds the same address or number. If that client's tunnel was dead by then, this client goes on
    /// to be verified.
    Contested,
    /// The tunnel is up and something is missing.
    Partial,
    /// The attempt failed, and the next one waits for its time.
    Resting,
    /// The client failed and does not try again.
    Failed,
}

/// The number of phases.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Occasion {
    /// The client arrives.
    #[default]
    Arrival,
    /// It failed, or lost its tunnel.
    Retry,
    /// A scheduled action told it to connect again.
    Reconnect,
}

/// When the steps of an attempt were done, ns; `None`: not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The attempt was due.
    pub due_ns: u64,
    /// The socket took the first reset.
    pub sent_ns: Option<u64>,
    /// The server answered the reset.
    pub answered_ns: Option<u64>,
    /// The TLS handshake was done.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys were there.
    pub keys_ns: Option<u64>,
    /// All pushed options were there.
    pub pushed_ns: Option<u64>,
    /// The first echo reply came back through the tunnel.
    pub configured_ns: Option<u64>,
}

impl Steps {
    /// An attempt that was due at `due_ns` and has done nothing yet.
    pub fn due(due_ns: u64) -> Self {
        Self { due_ns, ..Self::default() }
    }

    /// The time from when the attempt was due to an instant, ns.
    pub fn since_due(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.due_ns)
    }
}
