//! The address and transport of a server.

use std::net::SocketAddr;

/// A server's address and transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// The transport of the packets.
    pub transport: Transport,
}

/// The transport of a tunnel's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP, with a length before each packet.
    Tcp,
}
