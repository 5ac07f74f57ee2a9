//! The resource limits of an HTTP responder's peers.

/// The maximum number of open connections, over all threads.
pub const MAX_CONNECTIONS: usize = 65_536;

/// The resource limits of a responder.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Connections open at once, over all threads.
    pub connections: usize,
    /// The maximum memory of all connections' buffers together, bytes; beyond it, connections that hold more than a
    /// modest amount are closed.
    pub memory_bytes: usize,
    /// How long a connection may be silent while it waits for no response, ns.
    pub idle_ns: u64,
    /// How long a peer may leave a response unread, ns.
    pub stalled_ns: u64,
}

/// The limits unless a test or a command sets others.
pub const LIMITS: Limits = Limits {
    connections: MAX_CONNECTIONS,
    memory_bytes: 512 << 20,
    idle_ns: 60_000_000_000,
    stalled_ns: 600_000_000_000,
};

/// The memory that a connection may always hold, bytes: requests and responses of usual sizes. With the maximum
/// number of connections, this is as much again as `Limits::memory_bytes`.
pub const MODEST_BYTES: usize = 8 << 10;

/// How much a peer may still send after the last response, bytes: closing with unread data would reset the response.
pub const LINGER_BYTES: usize = 1024 * 1024;

#[cfg(test)]
pub mod tests {
    //! Occupancies for tests of HTTP alone.

    use std::sync::Arc;

    use crate::serve::occupancy::Occupancy;
    use crate::serve::shares::{Amounts, Resource, ShareLimits};

    /// Returns the occupancy of a server that has this many places for HTTP connections, for all peers and for one, and
    /// this limit of the rate to a peer, bit/s.
    pub fn occupancy(connections: usize, of_peer: usize, rate_bps: Option<u64>) -> Arc<Occupancy> {
        let limit = |most: usize| Amounts::UNLIMITED.with(Resource::HttpConnections, most as u64);
        let limits = ShareLimits { per_peer: limit(of_peer), all: limit(connections), rate_bps };
        Arc::new(Occupancy::new(limits, 0))
    }
}
