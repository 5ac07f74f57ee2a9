//! What a protocol contributes to a fleet's plan.

use std::sync::Arc;

use leadline_tunnel::client::server::Server;
use leadline_tunnel::protocol::Protocol;

/// A protocol's part of a fleet's plan.
pub struct ProtocolPlan {
    pub protocol: Arc<dyn Protocol>,
    pub servers: Vec<Server>,
    /// Whether clients begin with different servers (`remote-random`).
    pub has_random_remotes: bool,
    /// The MTU in the client's file.
    pub mtu: Option<u16>,
    /// The ciphers that the clients offer.
    pub ciphers: Vec<&'static str>,
    /// Options of the file that have no meaning for a fleet, and servers out of reach.
    pub ignored: Vec<String>,
}
