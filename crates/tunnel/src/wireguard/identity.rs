//! What a client's file makes of it: its keys, its addresses, and the gateway as it knows it. Owns what the file
//! assigns, and where the gateway's own address inside the tunnel is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use boringtun::x25519;
use ipnet::IpNet;

use super::allowed::Prefix;
use super::file::{ClientFile, GatewayEntry};
use super::keys::{PresharedKey, PrivateKey, PublicKey};
use crate::client::assigned_config::AssignedConfig;
use crate::client::server::Server;
use crate::protocol::Granted;

/// The name of WireGuard's only cipher.
pub const CIPHER: &str = "CHACHA20-POLY1305";
/// Default MTU of the tunnel, bytes: `wg-quick`'s on a link of 1500.
const DEFAULT_MTU: u16 = 1420;

/// The gateway.
pub struct GatewayKeys {
    pub(super) public_key: PublicKey,
    pub(super) allowed: Vec<IpNet>,
    pub(super) keepalive_s: Option<u16>,
    dns: Vec<IpAddr>,
}

/// One client's keys and addresses.
pub struct ClientKeys {
    pub(super) private_key: PrivateKey,
    pub(super) public_key: x25519::PublicKey,
    pub(super) preshared_key: Option<PresharedKey>,
    /// The client's address, and the gateway's if it is known.
    ipv4: Option<(Ipv4Addr, Option<Ipv4Addr>)>,
    ipv6: Option<(Ipv6Addr, Option<Ipv6Addr>)>,
}

impl GatewayKeys {
    /// The gateway of a client's file.
    pub fn new(file: &ClientFile) -> Self {
        let GatewayEntry { public_key, allowed, keepalive_s, .. } = file.gateway.clone();
        Self { public_key, allowed, keepalive_s, dns: file.dns.clone() }
    }

    /// Whether packets to this address, or from it, pass through the tunnel.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allowed.iter().any(|network| network.contains(&address))
    }
}

impl ClientKeys {
    /// The client of a file.
    pub fn new(file: &ClientFile) -> Self {
        let networks = &file.gateway.allowed;
        let of = |wants_v4: bool| file.addresses.iter().find(|prefix| prefix.address.is_ipv4() == wants_v4).copied();
        let ipv4 = of(true).and_then(|prefix| match prefix.address {
            IpAddr::V4(own) => Some((own, gateway_inside(prefix, networks).and_then(as_v4))),
            IpAddr::V6(_) => None,
        });
        let ipv6 = of(false).and_then(|prefix| match prefix.address {
            IpAddr::V6(own) => Some((own, gateway_inside(prefix, networks).and_then(as_v6))),
            IpAddr::V4(_) => None,
        });
        let (private_key, preshared_key) = (file.private_key.clone(), file.preshared_key.clone());
        Self { public_key: x25519::PublicKey::from(&private_key.0), private_key, preshared_key, ipv4, ipv6 }
    }

    /// Whether the destination of the verification is known: the expected one, or the gateway's address.
    pub fn has_echo_target(&self, expected: Option<IpAddr>) -> bool {
        match expected {
            Some(IpAddr::V4(_)) => self.ipv4.is_some(),
            Some(IpAddr::V6(_)) => self.ipv6.is_some(),
            None => self.ipv4.is_some_and(|own| own.1.is_some()) || self.ipv6.is_some_and(|own| own.1.is_some()),
        }
    }

    /// The configuration that the file assigns.
    pub fn assigned(&self, server: Server, mtu: Option<u16>) -> AssignedConfig {
        AssignedConfig {
            ipv4: self.ipv4.map(|(own, _)| own),
            ipv6: self.ipv6.map(|(own, _)| own),
            server_ipv4: self.ipv4.and_then(|(_, server)| server),
            server_ipv6: self.ipv6.and_then(|(_, server)| server),
            peer_id: None,
            server,
            cipher: Some(CIPHER),
            mtu: mtu.unwrap_or(DEFAULT_MTU),
        }
    }
}

impl Granted for GatewayKeys {
    fn has_route(&self, route: &IpNet) -> bool {
        self.allowed.iter().any(|network| network.contains(route))
    }

    fn has_dns(&self, server: &IpAddr) -> bool {
        self.dns.contains(server)
    }

    fn has_option(&self, _text: &str) -> bool {
        false
    }

    fn malformed(&self) -> Option<&str> {
        None
    }
}

/// The gateway's address in the tunnel, which a file does not name: by convention the first of the client's network; of
/// a client with a single address, the first of the routed network that holds it.
fn gateway_inside(own: Prefix, allowed: &[IpNet]) -> Option<IpAddr> {
    let network = IpNet::new(own.address, own.length).ok()?.trunc();
    let around = |network: &IpNet| network.prefix_len() > 0 && network.prefix_len() + 1 < network.max_prefix_len();
    let network = if around(&network) {
        network
    } else {
        *allowed.iter().find(|network| around(network) && network.contains(&own.address))?
    };
    network.hosts().next().filter(|first| *first != own.address).map(|first| match (first, network.network()) {
        // IPv6 has no network address, and `hosts` begins with it; it is the address of all routers.
        (IpAddr::V6(first), IpAddr::V6(base)) if first == base => Ipv6Addr::from(u128::from(first) + 1).into(),
        (first, _) => first,
    })
}

fn as_v4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn as_v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}
