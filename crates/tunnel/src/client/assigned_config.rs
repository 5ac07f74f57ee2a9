//! The configuration that a server assigned to one client, extracted from the pushed options: addresses, server
//! address, peer id, cipher, MTU. Has no side effects. `expectation` compares it with the test's expectation; the
//! driver knows whether another client holds the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::server::Server;
use crate::openvpn::data::DataCipher;
use crate::openvpn::message::net;
use crate::openvpn::message::push::{Pushed, Topology};
use crate::openvpn::profile::Transport;

/// Default MTU of the tunnel if neither server nor profile sets one (OpenVPN's `tun-mtu`), bytes.
const DEFAULT_MTU: u16 = 1500;

/// The configuration that a server assigned to one client.
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
    /// The data cipher.
    pub cipher: Option<DataCipher>,
    /// Maximum packet length, bytes.
    pub mtu: u16,
}

impl AssignedConfig {
    /// Extracts the configuration from the options that this server pushed; `profile_mtu` is the profile's MTU.
    pub fn new(server: Server, pushed: &Pushed, cipher: Option<DataCipher>, profile_mtu: Option<u16>) -> Self {
        Self {
            ipv4: pushed.ifconfig.map(|(own, _)| own),
            ipv6: pushed.ifconfig_ipv6.map(|(own, ..)| own),
            server_ipv4: server_ipv4(pushed),
            server_ipv6: pushed.ifconfig_ipv6.and_then(|(.., peer)| peer),
            peer_id: pushed.peer_id,
            server,
            cipher,
            mtu: pushed.tun_mtu.or(profile_mtu).unwrap_or(DEFAULT_MTU),
        }
    }

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

/// The server's own address. `net30` gives the client a peer address that never answers, and pushes a route to the
/// server instead: to the server alone, or to the whole network whose first address it has.
fn server_ipv4(pushed: &Pushed) -> Option<Ipv4Addr> {
    let (own, other) = pushed.ifconfig?;
    match pushed.topology.unwrap_or(Topology::Net30) {
        Topology::PointToPoint => Some(other),
        Topology::Subnet => pushed.route_gateway.or_else(|| first_of(net::from_netmask(own, other)?)),
        Topology::Net30 => {
            let routes = || pushed.routes.iter().copied().filter(|net| net.addr().is_ipv4());
            let alone = routes().find(|net| net.prefix_len() == 32);
            let around = routes().find(|net| net.contains(&IpAddr::V4(own)));
            alone.or(around).and_then(first_of).or(pushed.route_gateway).or(Some(other))
        }
    }
}

/// The address that a server takes from a network.
fn first_of(net: IpNet) -> Option<Ipv4Addr> {
    match net.addr() {
        IpAddr::V4(address) if net.prefix_len() >= 31 => Some(address),
        IpAddr::V4(address) => Some((address.to_bits() + 1).into()),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(options: &str) -> AssignedConfig {
        let mut pushed = Pushed::default();
        pushed.absorb(options).unwrap();
        let server = Server { address: "192.0.2.1:1194".parse().unwrap(), transport: Transport::Udp };
        AssignedConfig::new(server, &pushed, None, None)
    }

    fn address(text: &str) -> Option<Ipv4Addr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn server_address_is_known_in_every_topology() {
        let subnet = "topology subnet,ifconfig 10.8.0.5 255.255.255.0";
        assert_eq!(assigned(subnet).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned(&format!("{subnet},route-gateway 10.8.0.9")).server_ipv4, address("10.8.0.9"));
        let net30 = "topology net30,ifconfig 10.8.0.6 10.8.0.5";
        assert_eq!(assigned(&format!("route 10.8.0.1,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned(&format!("route 10.8.0.0 255.255.255.0,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned("topology p2p,ifconfig 10.8.0.6 10.8.0.1").server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned("route 192.168.0.0 255.255.0.0").server_ipv4, None);
    }
}
