//! The options that a server pushes: taken together from the parts of a PUSH_REPLY, changed by a PUSH_UPDATE. Owns what they mean
//! to a client without a TUN device and keeps each one's text for the checks. Their number and length are bounded.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::compression::Compression;
use super::listed::{Listed, Text};
use super::net;
use super::MessageError;
use crate::openvpn::secret::Secret;
use crate::openvpn::tokenizer::tokenize;

/// The most options that are kept.
pub const MOST_OPTIONS: usize = 4096;
/// The most bytes of options that are kept.
pub const MOST_BYTES: usize = 256 * 1024;
/// The most name servers that are kept.
pub const MOST_NAME_SERVERS: usize = 256;
/// The smallest MTU of a tunnel that is taken, bytes: a network of IPv4 has no smaller one (RFC 791).
pub const LEAST_MTU: u16 = 68;
/// The most of an option that is told of it where it goes wrong, characters.
const MOST_TOLD: usize = 100;
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

/// What is kept of a token's line that cannot be read.
const UNREADABLE: &str = "[unreadable]";

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
    pub routes: Listed<IpNet>,
    /// DNS servers, of `dns` and of `dhcp-option`.
    pub dns: Listed<IpAddr>,
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
    /// The same, for good. The one that was pushed last counts, and the other is absent.
    pub ping_exit_s: Option<u32>,
    /// What takes the password's place from now on.
    pub auth_token: Option<Secret>,
    /// And the user's, base64.
    pub auth_token_user: Option<String>,
    /// Framing for compression; the profile's counts where none is pushed.
    pub compression: Option<Compression>,
    /// Every option word for word, in order, but for `auth-token`'s token.
    pub texts: Listed<Text>,
    malformed: Option<String>,
    bytes: usize,
    /// How many texts there are of each option that can be updated.
    updatable: [u16; UPDATABLE.len()],
    /// Which of them have begun anew in the running update.
    renewed: [bool; UPDATABLE.len()],
    /// The running update has changed the texts: the fields are read from them once it is whole.
    is_stale: bool,
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
            if is_token(option) {
                self.take_token(option)?;
                continue;
            }
            // OpenVPN passes over lines that it cannot split.
            let found = tokenize(option).unwrap_or_default();
            let name = found.first().map(String::as_str).unwrap_or_default();
            if name == "push-continuation" {
                completeness = continuation(&found);
                continue;
            }
            self.keep(option, kind_of(name))?;
            self.apply(option, &found);
        }
        Ok(completeness)
    }

    /// Take one PUSH_UPDATE's changes: an option takes the place of all of its name, `-name` removes those, and `?` before a name
    /// makes it harmless where it is not known. What they change is seen once the update is complete.
    ///
    /// # Errors
    /// A change of something that cannot be updated, or more than a client keeps.
    pub fn update(&mut self, changes: &str) -> Result<Completeness, MessageError> {
        let mut completeness = Completeness::Complete;
        for change in split(changes) {
            let (removes, rest) = change.strip_prefix('-').map_or((false, change), |rest| (true, rest));
            let (optional, option) = rest.strip_prefix('?').map_or((false, rest), |rest| (true, rest));
            // OpenVPN looks at the line as it is, up to its first space.
            let name = option.split(' ').next().unwrap_or_default();
            let Some(kind) = kind_of(name) else {
                if optional && !option.is_empty() && !option.starts_with('-') {
                    continue;
                }
                return Err(MessageError::NotUpdatable(name_to_tell(option)));
            };
            if name == "push-continuation" {
                completeness = continuation(&tokenize(option).unwrap_or_default());
                continue;
            }
            let renewed = &mut self.renewed[usize::from(kind)];
            // The parts of one update add to each other.
            let begins = !std::mem::replace(renewed, *renewed || !removes);
            if removes || begins {
                self.forget(kind);
            }
            if !removes && self.keep(option, Some(kind))? {
                self.is_stale = true;
            }
        }
        if completeness == Completeness::Complete {
            self.renewed = Default::default();
            if std::mem::take(&mut self.is_stale) {
                self.read_again();
            }
        }
        Ok(completeness)
    }

    /// The first option, among those that mean something here, that says nothing: a broken address, a number out of its range.
    /// The real client passes over it, and goes on without it.
    #[must_use]
    pub fn malformed(&self) -> Option<&str> {
        self.malformed.as_deref()
    }

    /// The line holds a secret, whether or not it can be split.
    fn take_token(&mut self, option: &str) -> Result<(), MessageError> {
        let kept = match tokenize(option).as_deref() {
            Ok([name, token]) if name == "auth-token" => {
                self.auth_token = Some(Secret::from(token.as_str()));
                "[hidden]"
            }
            _ => UNREADABLE,
        };
        let found = ["auth-token", kept].map(str::to_owned);
        let text = found.join(" ");
        self.keep(&text, None)?;
        self.apply(&text, &found);
        Ok(())
    }

    /// Keep an option's text, once; says whether it is new.
    fn keep(&mut self, option: &str, kind: Option<u8>) -> Result<bool, MessageError> {
        if self.texts.contains(option) {
            return Ok(false);
        }
        if self.texts.len() == MOST_OPTIONS {
            return Err(MessageError::TooMany { most: MOST_OPTIONS });
        }
        self.bytes += option.len();
        if self.bytes > MOST_BYTES {
            return Err(MessageError::TooLong { what: "pushed options", bytes: self.bytes, most: MOST_BYTES });
        }
        if let Some(kind) = kind {
            self.updatable[usize::from(kind)] += 1;
        }
        Ok(self.texts.push(Text::new(option, kind)))
    }

    /// Take away the texts of a kind, where there are any.
    fn forget(&mut self, kind: u8) {
        if std::mem::take(&mut self.updatable[usize::from(kind)]) > 0 {
            self.texts.remove(|text| text.kind == Some(kind));
            self.bytes = self.texts.iter().map(|text| text.len()).sum();
            self.is_stale = true;
        }
    }

    /// Make the fields anew from the texts.
    fn read_again(&mut self) {
        let old = std::mem::take(self);
        self.auth_token = old.auth_token;
        for text in old.texts.iter() {
            self.apply(text, &tokenize(text).unwrap_or_default());
        }
        (self.texts, self.bytes, self.updatable) = (old.texts, old.bytes, old.updatable);
    }

    fn apply(&mut self, option: &str, found: &[String]) {
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        if self.apply_tokens(&found).is_none() && self.malformed.is_none() {
            // What cannot be split may be anything.
            let text = if found.is_empty() { "an option that cannot be split into words" } else { option };
            self.malformed = Some(text.chars().take(MOST_TOLD).collect());
        }
    }

    /// None where the option is known and says nothing.
    fn apply_tokens(&mut self, found: &[&str]) -> Option<()> {
        match *found {
            ["ifconfig", local, other] => {
                let local = local.parse().ok().filter(|own| is_one_hosts(IpAddr::V4(*own)))?;
                self.ifconfig = Some((local, other.parse().ok()?));
            }
            ["ifconfig-ipv6", local, ref peer @ ..] => self.ifconfig_ipv6 = Some(ifconfig_ipv6(local, peer)?),
            ["topology", topology] => self.topology = Some(topology_of(topology)?),
            ["route-gateway", "dhcp"] => {}
            ["route-gateway", gateway] => self.route_gateway = Some(gateway.parse().ok()?),
            ["route", network, ref rest @ ..] => {
                // A name instead of an address (`vpn_gateway`, a host) is good, but no network that could be checked.
                if let Ok(address) = network.parse() {
                    self.routes.push(route_ipv4(address, rest)?);
                }
            }
            ["route-ipv6", network, ..] => {
                self.routes.push(net::parse(network).ok().filter(|net| net.addr().is_ipv6())?);
            }
            ["dhcp-option", "DNS" | "DNS6", server] => self.name_server(server.parse().ok()?)?,
            ["dns", "server", _, "address", ref servers @ ..] => {
                for server in servers {
                    self.name_server(address_of_dns(server)?)?;
                }
            }
            ["peer-id", id] => self.peer_id = Some(id.parse().ok().filter(|id| *id < 1 << 24)?),
            ["cipher", name] => self.cipher = Some(name.to_owned()),
            ["key-derivation", "tls-ekm"] => self.tls_ekm = true,
            ["protocol-flags", ref flags @ ..] => return self.protocol_flags(flags),
            ["tun-mtu", mtu, ..] => self.tun_mtu = Some(mtu.parse().ok().filter(|mtu| *mtu >= LEAST_MTU)?),
            ["ping", seconds] => self.ping_s = Some(seconds.parse().ok()?),
            ["ping-restart", seconds] => {
                (self.ping_restart_s, self.ping_exit_s) = (Some(seconds.parse().ok()?), None);
            }
            ["ping-exit", seconds] => {
                (self.ping_exit_s, self.ping_restart_s) = (Some(seconds.parse().ok()?), None);
            }
            ["keepalive", ping, restart] => {
                (self.ping_s, self.ping_restart_s) = (Some(ping.parse().ok()?), Some(restart.parse().ok()?));
                self.ping_exit_s = None;
            }
            ["auth-token-user", user] => self.auth_token_user = Some(user.to_owned()),
            ["compress" | "comp-lzo", ..] => self.compression = Some(Compression::from_option(found)?),
            ["ifconfig" | "ifconfig-ipv6" | "topology" | "route-gateway" | "route" | "route-ipv6" | "peer-id"
            | "cipher" | "key-derivation" | "tun-mtu" | "ping" | "ping-restart" | "ping-exit" | "keepalive", ..]
            | ["auth-token", UNREADABLE]
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

    /// None where there are too many.
    fn name_server(&mut self, server: IpAddr) -> Option<()> {
        if self.dns.len() == MOST_NAME_SERVERS && !self.dns.contains(&server) {
            return None;
        }
        self.dns.push(server);
        Some(())
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

/// The place of an option among those that can be updated.
fn kind_of(name: &str) -> Option<u8> {
    (0..).zip(UPDATABLE).find(|(_, known)| *known == name).map(|(kind, _)| kind)
}

/// Told before the line is split: it may not be one that can be.
fn is_token(option: &str) -> bool {
    let name = option.trim_start_matches(['"', '\'', '\\']);
    name.strip_prefix("auth-token").is_some_and(|rest| !rest.starts_with("-user"))
}

/// No more of an option than its name: the rest may be a secret.
fn name_to_tell(option: &str) -> String {
    option.chars().take_while(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '-')).take(MOST_TOLD).collect()
}

/// Whether a host can have it: no group's address, nor that of all hosts or of none.
fn is_one_hosts(address: IpAddr) -> bool {
    let is_all = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_multicast() || address.is_unspecified() || is_all)
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
    let address = address.parse().ok().filter(|own| is_one_hosts(IpAddr::V6(*own)))?;
    let peer = match peer {
        [] => None,
        [peer] => Some(peer.parse().ok()?),
        _ => return None,
    };
    Some((address, bits, peer))
}

/// `ADDRESS [NETMASK [GATEWAY [METRIC]]]`; the netmask may be left out or said to be the `default`.
fn route_ipv4(address: Ipv4Addr, rest: &[&str]) -> Option<IpNet> {
    match rest.first() {
        None | Some(&"default") => Some(Ipv4Net::from(address).into()),
        Some(mask) => net::from_netmask(address, mask.parse().ok()?),
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
