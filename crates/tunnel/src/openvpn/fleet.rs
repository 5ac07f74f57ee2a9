//! OpenVPN as a protocol of a fleet: its profile and identities begin sessions, and the life of a client sees its
//! events and pushed options through `crate::protocol`. Owns the translation, and what a server's options assign.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::client::{Client, Event as OwnEvent, Output as OwnOutput};
use super::config::{ClientConfig, Identity};
use super::data::DataCipher;
use super::message::net;
use super::message::push::{Pushed, Topology};
use super::packet::{Header, Opcode};
use crate::client::assigned_config::AssignedConfig;
use crate::client::server::Server;
use crate::protocol::{Counters, Event, Failure, Granted, NotUp, Output, Protocol, Received, Session, Step, Token};

/// Default MTU of the tunnel if neither server nor profile sets one (OpenVPN's `tun-mtu`), bytes.
const DEFAULT_MTU: u16 = 1500;

/// OpenVPN's settings of a fleet.
pub struct OpenVpn {
    /// The profile as a configuration.
    pub config: Arc<ClientConfig>,
    /// The identities; client n uses identity n modulo their number.
    pub identities: Vec<Identity>,
}

impl Protocol for OpenVpn {
    fn begin(&self, client: u32, token: Option<Token>, now_ns: u64) -> Box<dyn Session> {
        let identity = &self.identities[client as usize % self.identities.len()];
        Box::new(match token {
            None => Client::new(&self.config, identity, now_ns),
            token => Client::new(&self.config, &identity.with_token(token), now_ns),
        })
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Answered, Step::Tls, Step::Keys, Step::Pushed]
    }
}

impl Session for Client {
    #[inline]
    fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8], _space: &'p mut Vec<u8>) -> Received<'p> {
        self.handle(now_ns, packet)
    }

    fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        match self.poll(now_ns, out) {
            OwnOutput::Send => Output::Send,
            OwnOutput::Event(event) => Output::Event(event.into()),
            OwnOutput::Wait(due_ns) => Output::Wait(due_ns),
        }
    }

    #[inline]
    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns()
    }

    #[inline]
    fn send(&mut self, now_ns: u64, packet: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        self.send(now_ns, packet, out)
    }

    fn renegotiate(&mut self, now_ns: u64) {
        self.renegotiate(now_ns);
    }

    fn leave(&mut self, now_ns: u64) {
        self.leave(now_ns);
    }

    fn assigned(&self, server: Server, mtu: Option<u16>) -> Option<AssignedConfig> {
        Some(assigned(server, self.pushed()?, self.cipher(), mtu))
    }

    fn granted(&self) -> Option<&dyn Granted> {
        self.pushed().map(|pushed| pushed as &dyn Granted)
    }

    fn token(&self) -> Option<Token> {
        // `None` after a refusal: user and password may still be valid.
        self.token().cloned()
    }

    fn is_first_packet(&self, packet: &[u8]) -> bool {
        let header = packet.first().and_then(|byte| Header::parse(*byte));
        let is_reset = |header: Header| matches!(header.opcode, Opcode::HardResetClientV2 | Opcode::HardResetClientV3);
        header.is_some_and(is_reset)
    }

    fn retransmits(&self) -> u32 {
        self.retransmits()
    }

    fn counters(&self) -> Counters {
        *self.counters()
    }

    fn last_received_ns(&self) -> Option<u64> {
        self.last_received_ns()
    }

    fn stuck_at(&self) -> &'static str {
        self.stuck_at()
    }
}

impl From<OwnEvent> for Event {
    fn from(event: OwnEvent) -> Self {
        let failed = |name, detail| Self::Failed(Failure { name, detail });
        match event {
            OwnEvent::Answered => Self::Step(Step::Answered),
            OwnEvent::TlsDone => Self::Step(Step::Tls),
            OwnEvent::KeysDone => Self::Step(Step::Keys),
            OwnEvent::Up => Self::Up(Step::Pushed),
            OwnEvent::Renegotiated => Self::Renewed,
            OwnEvent::RenegotiationAccepted => Self::RenewalAccepted,
            OwnEvent::RenegotiationRefused => Self::RenewalRefused,
            OwnEvent::RenegotiationFailed => Self::RenewalFailed,
            OwnEvent::Updated => Self::Updated,
            OwnEvent::Pending { until_ns } => Self::Pending { until_ns },
            OwnEvent::UpdateRejected(why) => failed("push_update_rejected", why),
            OwnEvent::Restart(why) => failed("restarted_by_server", why),
            OwnEvent::PeerLeft => failed("server_left", String::new()),
            OwnEvent::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl Granted for Pushed {
    fn has_route(&self, route: &IpNet) -> bool {
        self.routes.contains(route)
    }

    fn has_dns(&self, server: &IpAddr) -> bool {
        self.dns.contains(server)
    }

    fn has_option(&self, text: &str) -> bool {
        self.texts.contains(text)
    }

    fn malformed(&self) -> Option<&str> {
        self.malformed()
    }
}

/// Extracts the configuration from the options that this server pushed; `profile_mtu` is the profile's MTU.
pub fn assigned(
    server: Server,
    pushed: &Pushed,
    cipher: Option<DataCipher>,
    profile_mtu: Option<u16>,
) -> AssignedConfig {
    AssignedConfig {
        ipv4: pushed.ifconfig.map(|(own, _)| own),
        ipv6: pushed.ifconfig_ipv6.map(|(own, ..)| own),
        server_ipv4: server_ipv4(pushed),
        server_ipv6: pushed.ifconfig_ipv6.and_then(|(.., peer)| peer),
        peer_id: pushed.peer_id,
        server,
        cipher: cipher.map(DataCipher::name),
        mtu: pushed.tun_mtu.or(profile_mtu).unwrap_or(DEFAULT_MTU),
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
    use crate::client::server::Transport;

    fn assigned_by(options: &str) -> AssignedConfig {
        let mut pushed = Pushed::default();
        pushed.absorb(options).unwrap();
        let server = Server { address: "192.0.2.1:1194".parse().unwrap(), transport: Transport::Udp };
        assigned(server, &pushed, None, None)
    }

    fn address(text: &str) -> Option<Ipv4Addr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn server_address_is_known_in_every_topology() {
        let subnet = "topology subnet,ifconfig 10.8.0.5 255.255.255.0";
        assert_eq!(assigned_by(subnet).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned_by(&format!("{subnet},route-gateway 10.8.0.9")).server_ipv4, address("10.8.0.9"));
        let net30 = "topology net30,ifconfig 10.8.0.6 10.8.0.5";
        assert_eq!(assigned_by(&format!("route 10.8.0.1,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned_by(&format!("route 10.8.0.0 255.255.255.0,{net30}")).server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned_by("topology p2p,ifconfig 10.8.0.6 10.8.0.1").server_ipv4, address("10.8.0.1"));
        assert_eq!(assigned_by("route 192.168.0.0 255.255.0.0").server_ipv4, None);
    }
}
