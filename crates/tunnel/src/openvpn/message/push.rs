//! The options that a server pushes: taken together from the parts of a PUSH_REPLY, changed by a PUSH_UPDATE. Owns what they mean
//! to a client without a TUN device and keeps each one's text for the checks. Their number and length are bounded.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::compression::Compression;
use super::net::Net;
use super::MessageError;
use crate::openvpn::secret::Secret;
use crate::openvpn::words::words;

/// The most options that are kept.
pub const MOST_OPTIONS: usize = 4096;
/// The most bytes of options that are kept.
pub const MOST_BYTES: usize = 256 * 1024;
/// OpenVPN's longest message with options, bytes, with its NUL; and what it keeps free in it.
const BUNDLE: (usize, usize) = (1024, 84);
/// What an update may change (OpenVPN 2.7).
const UPDATABLE: [&str; 16] = [
    "block-ipv6",
    "block-outside-dns",
    "dhcp-option",
    "dns",
    "ifconfig",
    "ifconfig-ipv6",
    "keepalive",
    "push-continuation",
    "redirect-gateway",
    "redirect-private",
    "route",
    "route-gateway",
    "route-ipv6",
    "route-metric",
    "topology",
    "tun-mtu",
];

/// How addresses are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A network of four addresses per client; `ifconfig` names the peer.
    Net30,
    /// One address per client; `ifconfig` names the peer.
    PointToPoint,
    /// One address per client in a shared network; `ifconfig` names the netmask.
    Subnet,
}

/// Whether a push is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Everything is there.
    Complete,
    /// The server has said that more follows.
    More,
}

/// What has been pushed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The client's address, and the netmask (`Topology::Subnet`) or the peer's address.
    pub ifconfig: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The client's IPv6 address, the bits of its network that count, and the peer's address.
    pub ifconfig_ipv6: Option<(Ipv6Addr, u8, Option<Ipv6Addr>)>,
    /// What `ifconfig` means; OpenVPN takes `Net30` where it is absent.
    pub topology: Option<Topology>,
    /// Where routes go.
    pub route_gateway: Option<Ipv4Addr>,
    /// Networks behind the server.
    pub routes: Vec<Net>,
    /// DNS servers, of `dns` and of `dhcp-option`.
    pub dns: Vec<IpAddr>,
    /// The client's number, 24 bits.
    pub peer_id: Option<u32>,
    /// The data cipher, as the server writes it.
    pub cipher: Option<String>,
    /// Data keys come from TLS's exporter.
    pub tls_ekm: bool,
    /// The control channel's keys are renewed from TLS's exporter.
    pub dyn_tls_crypt: bool,
    /// Leaving is said in the control channel.
    pub cc_exit: bool,
    /// Data packets in epochs.
    pub epoch: bool,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: Option<u16>,
    /// Silence after which the client sends a ping, seconds.
    pub ping_s: Option<u32>,
    /// Silence after which the client gives the server up, seconds.
    pub ping_restart_s: Option<u32>,
    /// How often the client says that it leaves, where it has to say so in data packets.
    pub explicit_exit_notify: Option<u32>,
    /// What takes the password's place from now on.
    pub auth_token: Option<Secret>,
    /// And the user's, base64.
    pub auth_token_user: Option<String>,
    /// Framing for compression; the profile's counts where none is pushed.
    pub compression: Option<Compression>,
    /// Options that say nothing, among those above: a broken address, a number out of its range.
    pub malformed: Vec<String>,
    /// Every option word for word, in order, but for `auth-token`'s token.
    pub texts: Vec<String>,
    bytes: usize,
    /// Names of the running update that have begun anew.
    renewed: Vec<String>,
}

impl fmt::Debug for Pushed {
    /// The texts say it all, without the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pushed").field("texts", &self.texts).finish_non_exhaustive()
    }
}

impl Pushed {
    /// Take one PUSH_REPLY's options. A later one (a new token at a renegotiation, a repetition) adds to what is there.
    ///
    /// # Errors
    /// More than a client keeps.
    pub fn absorb(&mut self, options: &str) -> Result<Completeness, MessageError> {
        let mut completeness = Completeness::Complete;
        for option in split(options) {
            // OpenVPN passes over lines that it cannot split.
            let found = words(option).unwrap_or_default();
            match found.first().map(String::as_str) {
                Some("push-continuation") => completeness = continuation(&found),
                _ => self.add(option, &found)?,
            }
        }
        Ok(completeness)
    }

    /// Take one PUSH_UPDATE's changes: an option takes the place of all of its name, `-name` removes those, and `?` before a name
    /// makes it harmless where it is not known.
    ///
    /// # Errors
    /// A change of something that cannot be updated, or more than a client keeps.
    pub fn update(&mut self, changes: &str) -> Result<Completeness, MessageError> {
        let mut completeness = Completeness::Complete;
        let mut changed = false;
        for change in split(changes) {
            let (removes, rest) = change.strip_prefix('-').map_or((false, change), |rest| (true, rest));
            let (optional, option) = rest.strip_prefix('?').map_or((false, rest), |rest| (true, rest));
            let found = words(option).unwrap_or_default();
            let name = found.first().map(String::as_str).unwrap_or_default();
            if !UPDATABLE.contains(&name) {
                if optional && !option.is_empty() && !option.starts_with('-') {
                    continue;
                }
                return Err(MessageError::NotUpdatable(change.chars().take(100).collect()));
            }
            if name == "push-continuation" {
                completeness = continuation(&found);
                continue;
            }
            changed = true;
            // The parts of one update add to each other.
            if removes || !self.renewed.iter().any(|renewed| renewed == name) {
                self.forget(name);
            }
            if !removes {
                if !self.renewed.iter().any(|renewed| renewed == name) {
                    self.renewed.push(name.to_owned());
                }
                self.keep(option)?;
            }
        }
        if completeness == Completeness::Complete {
            self.renewed = Vec::new();
        }
        if changed {
            self.read_again();
        }
        Ok(completeness)
    }

    fn add(&mut self, option: &str, found: &[String]) -> Result<(), MessageError> {
        if found.first().is_some_and(|name| name == "auth-token") {
            self.auth_token = found.get(1).map(|token| Secret::from(token.as_str()));
            return self.keep("auth-token [hidden]");
        }
        self.keep(option)?;
        self.apply(option, found);
        Ok(())
    }

    /// Keep an option's text, once.
    fn keep(&mut self, option: &str) -> Result<(), MessageError> {
        if self.texts.iter().any(|known| known == option) {
            return Ok(());
        }
        if self.texts.len() == MOST_OPTIONS {
            return Err(MessageError::TooMany { most: MOST_OPTIONS });
        }
        self.bytes += option.len();
        if self.bytes > MOST_BYTES {
            return Err(MessageError::TooLong { what: "pushed options", bytes: self.bytes, most: MOST_BYTES });
        }
        self.texts.push(option.to_owned());
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        self.texts.retain(|text| text.split_ascii_whitespace().next() != Some(name));
        self.bytes = self.texts.iter().map(String::len).sum();
    }

    /// Make the fields anew from the texts.
    fn read_again(&mut self) {
        let old = std::mem::take(self);
        self.auth_token = old.auth_token;
        for text in &old.texts {
            self.apply(text, &words(text).unwrap_or_default());
        }
        (self.texts, self.bytes, self.renewed) = (old.texts, old.bytes, old.renewed);
    }

    fn apply(&mut self, option: &str, found: &[String]) {
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        if self.apply_words(&found).is_none() && self.malformed.len() < MOST_OPTIONS {
            self.malformed.push(option.to_owned());
        }
    }

    /// None where the option is known and says nothing.
    fn apply_words(&mut self, found: &[&str]) -> Option<()> {
        match *found {
            ["ifconfig", local, other] => self.ifconfig = Some((local.parse().ok()?, other.parse().ok()?)),
            ["ifconfig-ipv6", local, ref peer @ ..] => self.ifconfig_ipv6 = Some(ifconfig_ipv6(local, peer)?),
            ["topology", topology] => self.topology = Some(topology_of(topology)?),
            ["route-gateway", "dhcp"] => {}
            ["route-gateway", gateway] => self.route_gateway = Some(gateway.parse().ok()?),
            ["route", network, ref rest @ ..] => {
                // A name instead of an address (`vpn_gateway`, a host) is good, but no network that could be checked.
                if let Ok(address) = network.parse() {
                    self.route(route_ipv4(address, rest)?);
                }
            }
            ["route-ipv6", network, ..] => {
                self.route(network.parse().ok().filter(|net: &Net| net.address().is_ipv6())?)
            }
            ["dhcp-option", "DNS" | "DNS6", server] => self.name_server(server.parse().ok()?),
            ["dns", "server", _, "address", ref servers @ ..] => {
                for server in servers {
                    self.name_server(address_of_dns(server)?);
                }
            }
            ["peer-id", id] => self.peer_id = Some(id.parse().ok().filter(|id| *id < 1 << 24)?),
            ["cipher", name] => self.cipher = Some(name.to_owned()),
            ["key-derivation", "tls-ekm"] => self.tls_ekm = true,
            ["protocol-flags", ref flags @ ..] => return self.protocol_flags(flags),
            ["tun-mtu", mtu, ..] => self.tun_mtu = Some(mtu.parse().ok()?),
            ["ping", seconds] => self.ping_s = Some(seconds.parse().ok()?),
            ["ping-restart", seconds] => self.ping_restart_s = Some(seconds.parse().ok()?),
            ["keepalive", ping, restart] => {
                (self.ping_s, self.ping_restart_s) = (Some(ping.parse().ok()?), Some(restart.parse().ok()?));
            }
            ["explicit-exit-notify"] => self.explicit_exit_notify = Some(1),
            ["explicit-exit-notify", times] => self.explicit_exit_notify = Some(times.parse().ok()?),
            ["auth-token-user", user] => self.auth_token_user = Some(user.to_owned()),
            ["compress" | "comp-lzo", ..] => self.compression = Some(Compression::from_option(found)?),
            ["ifconfig" | "ifconfig-ipv6" | "topology" | "route-gateway" | "route" | "route-ipv6" | "peer-id"
            | "cipher" | "key-derivation" | "tun-mtu" | "ping" | "ping-restart" | "keepalive", ..]
            | [] => return None,
            _ => {}
        }
        Some(())
    }

    fn protocol_flags(&mut self, flags: &[&str]) -> Option<()> {
        let mut known = Some(());
        for flag in flags {
            match *flag {
                "cc-exit" => self.cc_exit = true,
                "tls-ekm" => self.tls_ekm = true,
                "dyn-tls-crypt" => self.dyn_tls_crypt = true,
                "aead-epoch" => self.epoch = true,
                _ => known = None,
            }
        }
        known
    }

    fn route(&mut self, net: Net) {
        if !self.routes.contains(&net) {
            self.routes.push(net);
        }
    }

    fn name_server(&mut self, server: IpAddr) {
        if !self.dns.contains(&server) {
            self.dns.push(server);
        }
    }
}

/// The texts of as many PUSH_REPLYs as a server needs for its options, none of which OpenVPN would find too long.
///
/// # Errors
/// An option that does not fit one message.
pub fn bundles(options: &[impl AsRef<str>]) -> Result<Vec<String>, MessageError> {
    let most = BUNDLE.0 - BUNDLE.1 - "PUSH_REPLY".len();
    let mut bundles = Vec::new();
    let mut bundle = String::new();
    for option in options.iter().map(AsRef::as_ref) {
        if option.len() + 1 >= most {
            return Err(MessageError::TooLong { what: "pushed option", bytes: option.len(), most: most - 2 });
        }
        if bundle.len() + 1 + option.len() >= most {
            bundle.push_str(",push-continuation 2");
            bundles.push(std::mem::take(&mut bundle));
        }
        if !bundle.is_empty() {
            bundle.push(',');
        }
        bundle.push_str(option);
    }
    if !bundles.is_empty() {
        bundle.push_str(",push-continuation 1");
    }
    bundles.push(bundle);
    Ok(bundles)
}

fn split(options: &str) -> impl Iterator<Item = &str> {
    options.split(',').map(str::trim).filter(|option| !option.is_empty())
}

fn continuation(found: &[String]) -> Completeness {
    match found.get(1).map(String::as_str) {
        Some("2") => Completeness::More,
        _ => Completeness::Complete,
    }
}

fn topology_of(name: &str) -> Option<Topology> {
    match name {
        "net30" => Some(Topology::Net30),
        "p2p" => Some(Topology::PointToPoint),
        "subnet" => Some(Topology::Subnet),
        _ => None,
    }
}

fn ifconfig_ipv6(local: &str, peer: &[&str]) -> Option<(Ipv6Addr, u8, Option<Ipv6Addr>)> {
    let (address, bits) = local.split_once('/').unwrap_or((local, "64"));
    let bits = bits.parse().ok().filter(|bits| *bits <= 128)?;
    let peer = match peer {
        [] => None,
        [peer] => Some(peer.parse().ok()?),
        _ => return None,
    };
    Some((address.parse().ok()?, bits, peer))
}

/// `ADDRESS [NETMASK [GATEWAY [METRIC]]]`; the netmask may be left out or said to be the `default`.
fn route_ipv4(address: Ipv4Addr, rest: &[&str]) -> Option<Net> {
    match rest.first() {
        None | Some(&"default") => Net::new(address.into(), 32),
        Some(mask) => Net::from_netmask(address, mask.parse().ok()?),
    }
}

/// `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
fn address_of_dns(server: &str) -> Option<IpAddr> {
    if let Ok(address) = server.parse() {
        return Some(address);
    }
    server
        .parse::<std::net::SocketAddr>()
        .ok()
        .map(|socket| socket.ip())
        .or_else(|| server.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}
