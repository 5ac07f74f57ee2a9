//! Where a client connects to.

use std::net::SocketAddr;

use crate::openvpn::profile::Transport;

/// A server's address and transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address and port.
    pub address: SocketAddr,
    /// What carries the packets.
    pub transport: Transport,
}
