//! The address and transport of a server.

use std::net::SocketAddr;

use crate::openvpn::profile::Transport;

/// A server's address and transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// The transport of the packets.
    pub transport: Transport,
}
