//! The configuration that was assigned to one client, by its server or by its own file: addresses, server address,
//! peer id, cipher, MTU. Has no side effects. `expectation` compares it with the test's expectation; the driver knows
//! whether another client holds the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::server::{Server, Transport};

/// The configuration that was assigned to one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedConfig {
    /// The client's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The client's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The server's IPv4 address inside the tunnel.
    pub server_ipv4: Option<Ipv4Addr>,
    /// The server's IPv6 address inside the tunnel.
    pub server_ipv6: Option<Ipv6Addr>,
    /// The client's peer id. Over UDP it identifies one client of the server. Over TCP the connection does, and
    /// servers before 2.6 push `peer-id 0` to every client.
    pub peer_id: Option<u32>,
    /// The server.
    pub server: Server,
    /// The name of the data cipher.
    pub cipher: Option<&'static str>,
    /// Maximum packet length, bytes.
    pub mtu: u16,
}

impl AssignedConfig {
    /// The server and the client's peer id there, if the server identifies clients by it.
    pub fn place(&self) -> Option<(SocketAddr, u32)> {
        match self.server.transport {
            Transport::Udp => Some((self.server.address, self.peer_id?)),
            Transport::Tcp => None,
        }
    }

    /// The client's addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ipv4.map(IpAddr::from).into_iter().chain(self.ipv6.map(IpAddr::from))
    }

    /// Source and destination of the verification echo: the destination is the expected address, or the server's
    /// address.
    pub fn echo_ends(&self, expected: Option<IpAddr>) -> Option<(IpAddr, IpAddr)> {
        match expected {
            Some(to @ IpAddr::V4(_)) => Some((self.ipv4?.into(), to)),
            Some(to @ IpAddr::V6(_)) => Some((self.ipv6?.into(), to)),
            None => {
                let v4 = self.ipv4.zip(self.server_ipv4).map(|(own, to)| (own.into(), to.into()));
                v4.or_else(|| self.ipv6.zip(self.server_ipv6).map(|(own, to)| (own.into(), to.into())))
            }
        }
    }

    /// Whether traffic that began with the other configuration can continue with this one.
    pub fn carries_traffic_of(&self, other: &Self) -> bool {
        (self.ipv4, self.ipv6, self.mtu) == (other.ipv4, other.ipv6, other.mtu)
    }
}
