//! Settings that all clients of a fleet share: protocol, servers, time limits and retries. Plain values; the agent
//! creates them from a test's specification and validates them.

use std::sync::Arc;

use super::expectation::Expectation;
use super::server::Server;
use crate::protocol::Protocol;

/// Settings that all clients of a fleet share.
pub struct Settings {
    /// The protocol, with the clients' identities.
    pub protocol: Arc<dyn Protocol>,
    /// The servers. An attempt after a failed one goes to the next server.
    pub servers: Vec<Server>,
    /// Time limit of one attempt, ns.
    pub attempt_ns: u64,
    /// Maximum number of consecutive retries after a failure.
    pub retries: u32,
    /// The expected configuration of each client.
    pub expectation: Expectation,
    /// The MTU of the tunnel in the client's file.
    pub mtu: Option<u16>,
    /// Time limit of the first echo reply after the options are known, ns.
    pub first_data_ns: u64,
    /// Pings of configured clients.
    pub pings: Option<PingSettings>,
}

/// Which clients ping, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// Time between two pings of a client, ns.
    pub gap_ns: u64,
    /// Clients below this number ping; their first pings are spread over one gap.
    pub clients: u32,
}

impl Settings {
    /// The server of an attempt; `turn` increments after each failure.
    pub fn server(&self, turn: u32) -> Server {
        self.servers[turn as usize % self.servers.len()]
    }
}
