//! What a client has been given, out of all that was pushed, and what it should have been given. Owns the checks by which a
//! client counts as `configured`, in their order; pure. Whether another client holds the same, `register` says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use leadline_tunnel::openvpn::data::DataCipher;
use leadline_tunnel::openvpn::message::net::Net;
use leadline_tunnel::openvpn::message::push::{Pushed, Topology};
use leadline_tunnel::openvpn::profile::Transport;
use leadline_wire::{ErrorReport, TunnelExpectation};

use super::plan::Server;
use super::traffic::ClientContext;
use crate::events::input_error;

/// The check that an option fails which says nothing: the client is without it, whatever it was meant to say.
pub const OPTION_MALFORMED: &str = "partial_option_malformed";
/// The tunnel's MTU where nobody says another (OpenVPN's `tun-mtu`).
const USUAL_MTU: u16 = 1500;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedConfig {
    /// Its addresses.
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
    /// The server's end.
    pub server_ipv4: Option<Ipv4Addr>,
    pub server_ipv6: Option<Ipv6Addr>,
    /// Its number. Over UDP it names one client of the server; over TCP the connection does that, and servers before 2.6 push
    /// `peer-id 0` to every client.
    pub peer_id: Option<u32>,
    /// That server.
    pub server: Server,
    /// Its data cipher.
    pub cipher: Option<DataCipher>,
    /// The longest packet, bytes.
    pub mtu: u16,
}

impl AssignedConfig {
    /// Out of what this server pushed; `profile_mtu` is the profile's own.
    pub fn new(server: Server, pushed: &Pushed, cipher: Option<DataCipher>, profile_mtu: Option<u16>) -> Self {
        Self {
            ipv4: pushed.ifconfig.map(|(own, _)| own),
            ipv6: pushed.ifconfig_ipv6.map(|(own, ..)| own),
            server_ipv4: server_ipv4(pushed),
            server_ipv6: pushed.ifconfig_ipv6.and_then(|(.., peer)| peer),
            peer_id: pushed.peer_id,
            server,
            cipher,
            mtu: pushed.tun_mtu.or(profile_mtu).unwrap_or(USUAL_MTU),
        }
    }

    /// The server and its number there, where the server tells its clients apart by it.
    pub fn place(&self) -> Option<(SocketAddr, u32)> {
        match self.server.transport {
            Transport::Udp => Some((self.server.address, self.peer_id?)),
            Transport::Tcp => None,
        }
    }

    /// Its addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ipv4.map(IpAddr::from).into_iter().chain(self.ipv6.map(IpAddr::from))
    }

    /// Between which addresses the proving echo goes: to the one that is expected to answer, else to the server's end.
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

    /// What its traffic is told.
    pub fn context(&self, client: u32, clients: u32) -> ClientContext {
        ClientContext {
            client,
            clients,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            server_ipv4: self.server_ipv4,
            server_ipv6: self.server_ipv6,
            mtu: self.mtu,
        }
    }
}

/// The server's own address. `net30` gives the client a peer that answers nobody, and pushes a route to the server instead:
/// to it alone, or to the whole network of which it has the first address.
fn server_ipv4(pushed: &Pushed) -> Option<Ipv4Addr> {
    let (own, other) = pushed.ifconfig?;
    match pushed.topology.unwrap_or(Topology::Net30) {
        Topology::PointToPoint => Some(other),
        Topology::Subnet => pushed.route_gateway.or_else(|| first_of(Net::from_netmask(own, other)?)),
        Topology::Net30 => {
            let routes = || pushed.routes.iter().copied().filter(|net| net.address().is_ipv4());
            let alone = routes().find(|net| net.bits() == 32);
            let around = routes().find(|net| net.contains(own.into()));
            alone.or(around).and_then(first_of).or(pushed.route_gateway).or(Some(other))
        }
    }
}

/// The address that a server takes of a network.
fn first_of(net: Net) -> Option<Ipv4Addr> {
    match net.address() {
        IpAddr::V4(address) if net.bits() >= 31 => Some(address),
        IpAddr::V4(address) => Some((address.to_bits() + 1).into()),
        IpAddr::V6(_) => None,
    }
}

/// What a client must have been given.
#[derive(Debug, Default)]
pub struct Expectation {
    pools: Vec<Net>,
    routes: Vec<Net>,
    dns: Vec<IpAddr>,
    options: Vec<String>,
    /// Who answers the proving echo; the server's end where absent.
    pub echo: Option<IpAddr>,
    offered: Vec<DataCipher>,
}

impl Expectation {
    /// As asked for; a cipher has to be one of `offered`.
    ///
    /// # Errors
    /// A network or address that is none.
    pub fn new(spec: &TunnelExpectation, offered: Vec<DataCipher>) -> Result<Self, ErrorReport> {
        let nets = |name: &str, texts: &[String]| -> Result<Vec<Net>, ErrorReport> {
            let net =
                |text: &String| text.parse().map_err(|error| input_error("bad_network", format!("{name}: {error}")));
            texts.iter().map(net).collect()
        };
        let address = |name: &str, text: &String| -> Result<IpAddr, ErrorReport> {
            text.parse().map_err(|_| input_error("bad_address", format!("{name}: `{text}` is no IP address")))
        };
        Ok(Self {
            pools: nets("expect.pools", &spec.pools)?,
            routes: nets("expect.routes", &spec.routes)?,
            dns: spec.dns.iter().map(|text| address("expect.dns", text)).collect::<Result<_, _>>()?,
            options: spec.options.clone(),
            echo: spec.echo.as_ref().map(|text| address("expect.echo", text)).transpose()?,
            offered,
        })
    }

    /// The first thing that is missing, by name. Whether addresses and number are the client's alone, `Register` says.
    pub fn missing(&self, pushed: &Pushed, assigned: &AssignedConfig) -> Option<&'static str> {
        let in_pool = |address: IpAddr| self.pools.iter().any(|pool| pool.contains(address));
        if assigned.addresses().next().is_none() {
            Some("partial_no_address")
        } else if !self.pools.is_empty() && !assigned.addresses().all(in_pool) {
            Some("partial_address_outside_pool")
        } else if !self.routes.iter().all(|route| pushed.routes.contains(route)) {
            Some("partial_route_missing")
        } else if !self.dns.iter().all(|server| pushed.dns.contains(server)) {
            Some("partial_dns_missing")
        } else if !self.options.iter().all(|option| pushed.texts.contains(option.as_str())) {
            Some("partial_option_missing")
        } else if pushed.malformed().is_some() {
            Some(OPTION_MALFORMED)
        } else if assigned.cipher.is_some_and(|cipher| !self.offered.contains(&cipher)) {
            Some("partial_cipher_not_offered")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(options: &str) -> Pushed {
        let mut pushed = Pushed::default();
        pushed.absorb(options).unwrap();
        pushed
    }

    fn assigned(options: &str) -> AssignedConfig {
        AssignedConfig::new(udp("192.0.2.1:1194"), &pushed(options), None, None)
    }

    fn udp(address: &str) -> Server {
        Server { address: address.parse().unwrap(), transport: Transport::Udp }
    }

    fn address(text: &str) -> Option<Ipv4Addr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn server_address_is_derived_in_every_topology() {
        let subnet = "topology subnet,ifconfig 10.8.0.5 255.255.255.0";
        assert_eq!(assigned(subnet).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned(&format!("{subnet},route-gateway 10.8.0.9")).server_ipv4, address("10.8.0.9"));
        let net30 = "topology net30,ifconfig 10.8.0.6 10.8.0.5";
        assert_eq!(assigned(&format!("route 10.8.0.1,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned(&format!("route 10.8.0.0 255.255.255.0,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned("topology p2p,ifconfig 10.8.0.6 10.8.0.1").server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned("route 192.168.0.0 255.255.0.0").server_ipv4, None);
    }

    #[test]
    fn first_missing_expectation_is_named() {
        let spec = TunnelExpectation {
            pools: vec!["10.8.0.0/24".into(), "fd00:8::/64".into()],
            routes: vec!["10.9.0.0/16".into()],
            dns: vec!["10.8.0.1".into()],
            options: vec!["block-outside-dns".into()],
            echo: None,
        };
        let expectation = Expectation::new(&spec, vec![DataCipher::Aes256Gcm]).unwrap();
        let whole = "topology subnet,ifconfig 10.8.0.5 255.255.255.0,route 10.9.0.0 255.255.0.0,\
                     dhcp-option DNS 10.8.0.1,block-outside-dns";
        let missing = |options: &str, cipher| {
            let pushed = pushed(options);
            expectation.missing(&pushed, &AssignedConfig::new(udp("192.0.2.1:1194"), &pushed, cipher, None))
        };
        let cipher = Some(DataCipher::Aes256Gcm);
        assert_eq!(missing(whole, cipher), None);
        assert_eq!(missing(whole, Some(DataCipher::Aes128Gcm)), Some("partial_cipher_not_offered"));
        let without = |part: &str| whole.replace(part, "topology subnet");
        assert_eq!(missing(&without("ifconfig 10.8.0.5 255.255.255.0"), cipher), Some("partial_no_address"));
        assert_eq!(missing(&whole.replace("10.8.0.5", "10.7.0.5"), cipher), Some("partial_address_outside_pool"));
        assert_eq!(missing(&without("route 10.9.0.0 255.255.0.0"), cipher), Some("partial_route_missing"));
        assert_eq!(missing(&without("dhcp-option DNS 10.8.0.1"), cipher), Some("partial_dns_missing"));
        assert_eq!(missing(&without("block-outside-dns"), cipher), Some("partial_option_missing"));
        assert_eq!(missing(&format!("{whole},tun-mtu 30"), cipher), Some("partial_option_malformed"));
        assert_eq!(missing(&format!("{whole},protocol-flags unheard-of"), cipher), Some("partial_option_malformed"));
        assert_eq!(missing(&whole.replace("10.8.0.5", "224.0.0.5"), cipher), Some("partial_no_address"));
    }
}
