//! What the peers of an HTTP responder may take up.

/// What peers may take up.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Connections open at once, over all threads.
    pub connections: usize,
    /// Connections of one peer.
    pub per_peer: usize,
    /// What all connections' buffers may take together, bytes; then those that hold more than little are closed.
    pub memory_bytes: usize,
    /// How long a connection may be silent that is owed nothing, ns.
    pub idle_ns: u64,
    /// How long a peer may leave an answer untaken, ns.
    pub stalled_ns: u64,
}

/// The limits unless a test or a command sets others.
pub const LIMITS: Limits = Limits {
    connections: 65_536,
    per_peer: 65_536,
    memory_bytes: 512 << 20,
    idle_ns: 60_000_000_000,
    stalled_ns: 600_000_000_000,
};

/// What a connection may always hold, bytes: requests and answers of usual sizes. With as many connections as there may be that is
/// as much again as `Limits::memory_bytes`.
pub const MODEST_BYTES: usize = 8 << 10;

/// What a peer may still send after the last answer, bytes: closing with it unread would reset the answer.
pub const LINGER_BYTES: usize = 1024 * 1024;
