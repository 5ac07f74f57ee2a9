//! IKEv2 with ESP as a protocol of a fleet: connections of swanctl.conf begin sessions. Owns which settings make one
//! fleet, and the translation of a client's events.
//!
//! A fleet's sockets each have one peer: its clients begin at port 4500 and force UDP encapsulation (RFC 7296, section
//! 2.23), so that IKE and ESP pass through one socket. Both ends then take the path for one with a NAT.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use super::client::{Cause, Client, Event as OwnEvent, Output as OwnOutput};
use super::config::{ClientConfig, Endpoints, Identity};
use super::message::ExchangeType;
use super::random::Random;
use super::route::{Path, MARKER_BYTES};
use super::swanctl::Connection;
use super::traffic_selector::TrafficSelector;
use crate::client::assigned_config::AssignedConfig;
use crate::client::server::Server;
use crate::protocol::{Counters, Event, Failure, Granted, NotUp, Output, Protocol, Received, Session, Step, Token};

/// The port at which a fleet begins (RFC 3948).
pub const PORT: u16 = 4500;
/// MTU of the tunnel, bytes: that of strongSwan's own device, below what any of its ciphers leaves of 1500.
const DEFAULT_MTU: u16 = 1400;
/// Where the exchange type is in a message behind its marker.
const EXCHANGE_AT: usize = MARKER_BYTES + 18;

/// IKEv2's settings of a fleet.
pub struct Ike {
    config: Arc<ClientConfig>,
    identities: Vec<Arc<Identity>>,
}

impl Ike {
    /// Creates the settings of one client for each connection; all but the identities are the first one's. `unix_base_s`
    /// is the wall clock at time 0, s: certificates have dates.
    ///
    /// # Errors
    /// One line: what a fleet's clients cannot do, or which clients have one identity.
    pub fn new(connections: Vec<Connection>, unix_base_s: u64) -> Result<Self, String> {
        let mut identities: Vec<Arc<Identity>> = Vec::new();
        let mut known = std::collections::HashMap::new();
        let mut shared = None;
        for (number, connection) in connections.into_iter().enumerate() {
            if let Some(other) = known.insert(connection.identity.id.body(), number) {
                return Err(format!(
                    "clients {other} and {number} have one identity, so that the gateway would end the first: write {{n}} \
                     in the file, which becomes each client's number"
                ));
            }
            identities.push(Arc::new(connection.identity));
            shared.get_or_insert(connection.config);
        }
        let mut config = shared.ok_or("there is no connection")?;
        if !config.requests_ipv4 && !config.requests_ipv6 {
            return Err("a fleet's clients need an address of the gateway: vips = 0.0.0.0".to_owned());
        }
        (config.starts_on_4500, config.forces_encapsulation, config.has_mobike) = (true, true, false);
        config.unix_base_s = unix_base_s;
        Ok(Self { config: Arc::new(config), identities })
    }

    /// Whether packets to this address enter the tunnel.
    pub fn routes(&self, address: IpAddr) -> bool {
        self.config.remote_ts.iter().any(|selector| selector.has_address(address))
    }

    /// Whether a client asks for an address of this family.
    pub fn asks_for(&self, is_v4: bool) -> bool {
        if is_v4 {
            self.config.requests_ipv4
        } else {
            self.config.requests_ipv6
        }
    }

    /// The ciphers that the clients offer for ESP.
    pub fn ciphers(&self) -> Vec<&'static str> {
        self.config.esp.iter().flat_map(|offer| &offer.encryptions).map(|encryption| encryption.name()).collect()
    }
}

impl Protocol for Ike {
    fn begin(&self, client: u32, _token: Option<Token>, now_ns: u64) -> Box<dyn Session> {
        let identity = &self.identities[client as usize % self.identities.len()];
        // Their hashes have to differ from the gateway's view anyway: that forces the encapsulation.
        let none = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let endpoints = Endpoints { local: none, peer: none };
        let client = Client::new(&self.config, identity, endpoints, Random::from_system(), now_ns);
        Box::new(Attempt {
            client,
            events: VecDeque::new(),
            cookies: 0,
            is_incomplete: false,
            granted: Agreed::default(),
        })
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Answered, Step::IkeUp, Step::IpAssigned, Step::ChildUp]
    }
}

/// One attempt of a client.
struct Attempt {
    client: Client,
    events: VecDeque<Event>,
    cookies: u32,
    /// It stays without an address or without a child SA, which is counted once.
    is_incomplete: bool,
    granted: Agreed,
}

/// What a client may reach, and its name servers.
#[derive(Default)]
struct Agreed {
    routes: Vec<TrafficSelector>,
    dns: Vec<IpAddr>,
}

impl Granted for Agreed {
    fn has_route(&self, route: &IpNet) -> bool {
        let wanted = TrafficSelector::network(*route);
        self.routes.iter().any(|selector| selector.contains(&wanted))
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

impl Attempt {
    fn translate(&mut self, event: OwnEvent) -> Option<Event> {
        Some(match event {
            OwnEvent::SaInitAnswered => Event::Step(Step::Answered),
            OwnEvent::IkeUp => Event::Step(Step::IkeUp),
            OwnEvent::AddressAssigned(assigned) => {
                self.granted.dns.clone_from(&assigned.name_servers);
                Event::Step(Step::IpAssigned)
            }
            OwnEvent::ChildUp => {
                // The gateway may have narrowed what was asked for.
                self.granted.routes = self.client.remote_selectors().to_vec();
                Event::Up(Step::ChildUp)
            }
            OwnEvent::AddressRefused(cause) | OwnEvent::ChildRefused(cause) => {
                if std::mem::replace(&mut self.is_incomplete, true) {
                    return None;
                }
                Event::Incomplete(Failure { name: cause.name(), detail: String::new() })
            }
            OwnEvent::ChildRekeyed { .. } | OwnEvent::IkeRekeyed { .. } => {
                self.events.push_back(Event::RenewalAccepted);
                Event::Renewed
            }
            OwnEvent::RekeyRefused(_) => Event::RenewalFailed,
            OwnEvent::ChildDeleted => {
                Event::Failed(Failure { name: "server_left", detail: "it deleted the child SA".to_owned() })
            }
            OwnEvent::Left { .. } => return None,
            OwnEvent::Failed(failure) => {
                let name = if failure.cause == Cause::DeletedByPeer { "server_left" } else { failure.cause.name() };
                Event::Failed(Failure { name, detail: failure.detail })
            }
        })
    }
}

impl Session for Attempt {
    #[inline]
    fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8], _space: &'p mut Vec<u8>) -> Received<'p> {
        let received = self.client.handle(now_ns, Path::Port4500, packet);
        let cookies = self.client.counters().cookies;
        if cookies > self.cookies {
            self.cookies = cookies;
            self.events.push_back(Event::CookieAsked);
        }
        received
    }

    fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output {
        loop {
            out.clear();
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            match self.client.poll(now_ns, out) {
                OwnOutput::Send(_) => return Output::Send,
                OwnOutput::Wait(until_ns) => return Output::Wait(until_ns),
                OwnOutput::Event(event) => {
                    if let Some(event) = self.translate(event) {
                        return Output::Event(event);
                    }
                }
            }
        }
    }

    #[inline]
    fn deadline_ns(&self) -> Option<u64> {
        if self.events.is_empty() {
            self.client.deadline_ns()
        } else {
            Some(0)
        }
    }

    #[inline]
    fn send(&mut self, now_ns: u64, packet: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp> {
        self.client.send(now_ns, packet, out)
    }

    fn renegotiate(&mut self, now_ns: u64) {
        self.client.rekey_child(now_ns);
    }

    fn leave(&mut self, now_ns: u64) {
        self.client.leave(now_ns);
    }

    fn assigned(&self, server: Server, mtu: Option<u16>) -> Option<AssignedConfig> {
        let assigned = self.client.assigned();
        let cipher = self.client.cipher()?;
        let v4 = assigned.addresses.iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        let v6 = assigned.addresses.iter().find_map(|address| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        });
        Some(AssignedConfig {
            ipv4: v4,
            ipv6: v6,
            server_ipv4: None,
            server_ipv6: None,
            peer_id: None,
            server,
            cipher: Some(cipher),
            mtu: mtu.unwrap_or(DEFAULT_MTU),
        })
    }

    fn granted(&self) -> Option<&dyn Granted> {
        self.client.has_child().then_some(&self.granted as &dyn Granted)
    }

    fn is_first_packet(&self, packet: &[u8]) -> bool {
        packet.get(EXCHANGE_AT) == Some(&(ExchangeType::SaInit as u8)) && packet.starts_with(&[0; MARKER_BYTES])
    }

    fn retransmits(&self) -> u32 {
        self.client.counters().retransmits
    }

    fn counters(&self) -> Counters {
        let own = self.client.counters();
        Counters { opened: own.opened, replayed: own.replayed, rejected: own.rejected, pings: 0 }
    }

    fn last_received_ns(&self) -> Option<u64> {
        self.client.last_received_ns()
    }

    fn stuck_at(&self) -> &'static str {
        let steps = self.client.steps();
        if steps.sa_init_answered_ns.is_none() {
            Cause::NoAnswer(ExchangeType::SaInit).name()
        } else if steps.ike_up_ns.is_none() {
            Cause::NoAnswer(ExchangeType::Auth).name()
        } else {
            Cause::NoAnswer(ExchangeType::CreateChildSa).name()
        }
    }
}
