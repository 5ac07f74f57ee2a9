//! What all clients of a fleet share: servers, identities, times and retries. Values only; the agent makes them from a test's
//! specification and checks them there.

use std::sync::Arc;

use super::expectation::Expectation;
use super::server::Server;
use crate::openvpn::config::{ClientConfig, Identity};

/// What all clients of a fleet share.
pub struct Settings {
    /// The profile, in OpenVPN's terms.
    pub config: Arc<ClientConfig>,
    /// The identities; client n has number n of them, from the first again after the last.
    pub identities: Vec<Identity>,
    /// The servers. An attempt that follows a failed one goes to the next server.
    pub servers: Vec<Server>,
    /// How long one attempt may take, ns.
    pub attempt_ns: u64,
    /// How many times in succession a client that failed tries again.
    pub retries: u32,
    /// What the server has to give to each client.
    pub expectation: Expectation,
    /// The profile's MTU for the tunnel.
    pub mtu: Option<u16>,
    /// How long the first echo reply may take once the options are there, ns.
    pub first_data_ns: u64,
    /// Pings of configured clients.
    pub pings: Option<PingSettings>,
}

/// Which clients ping, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingSettings {
    /// The time between two pings of a client, ns.
    pub gap_ns: u64,
    /// The clients below this number ping; their first pings are spread over one gap.
    pub clients: u32,
}

impl Settings {
    /// The identity of a client.
    pub fn identity(&self, client: u32) -> &Identity {
        &self.identities[client as usize % self.identities.len()]
    }

    /// The server of an attempt; `turn` counts on after each failure.
    pub fn server(&self, turn: u32) -> Server {
        self.servers[turn as usize % self.servers.len()]
    }
}
