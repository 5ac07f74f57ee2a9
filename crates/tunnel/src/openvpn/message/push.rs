//! The options that a server pushes: collected from the parts of a PUSH_REPLY, and changed by a PUSH_UPDATE. Owns
//! their meaning for a client without a TUN device, and keeps each one's text for the checks. Their number and length
//! are limited.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use super::compression::Compression;
use super::listed::{Listed, Text};
use super::net;
use super::MessageError;
use crate::openvpn::tokenizer::tokenize;
use crate::secret::Secret;

/// Maximum number of stored options.
pub const MAX_OPTIONS: usize = 4096;
/// Maximum length of all stored options, bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// Maximum number of stored name servers.
pub const MAX_NAME_SERVERS: usize = 256;
/// Minimum accepted MTU of a tunnel, bytes: the minimum of IPv4 (RFC 791).
pub const MIN_MTU: u16 = 68;
/// Maximum length of an option's text in an error, characters.
const MAX_ERROR_CHARS: usize = 100;
/// OpenVPN's longest message with options, bytes, with its NUL; and the part that it keeps free.
const BUNDLE: (usize, usize) = (1024, 84);
/// The options that an update may change (OpenVPN 2.7).
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

/// The stored text of an unreadable token line.
const UNREADABLE: &str = "[unreadable]";

/// How a server assigns addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A network of four addresses per client; `ifconfig` names the peer.
    Net30,
    /// One address per client; `ifconfig` names the peer.
    PointToPoint,
    /// One address per client in a shared network; `ifconfig` names the netmask.
    Subnet,
}

/// Whether a push is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// All parts have arrived.
    Complete,
    /// The server announced another part.
    More,
}

/// All pushed options.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pushed {
    /// The client's address, and the netmask (`Topology::Subnet`) or the peer's address.
    pub ifconfig: Option<(Ipv4Addr, Ipv4Addr)>,
    /// The client's IPv6 address, its prefix length, and the peer's address.
    pub ifconfig_ipv6: Option<(Ipv6Addr, u8, Option<Ipv6Addr>)>,
    /// The meaning of `ifconfig`; if absent, OpenVPN assumes `Net30`.
    pub topology: Option<Topology>,
    /// The gateway of the routes.
    pub route_gateway: Option<Ipv4Addr>,
    /// Networks behind the server.
    pub routes: Listed<IpNet>,
    /// DNS servers, of `dns` and of `dhcp-option`.
    pub dns: Listed<IpAddr>,
    /// The peer id, 24 bits.
    pub peer_id: Option<u32>,
    /// The data cipher, in the server's spelling.
    pub cipher: Option<String>,
    /// Whether data keys come from TLS's exporter.
    pub tls_ekm: bool,
    /// Whether the control channel's keys are renewed from TLS's exporter.
    pub dyn_tls_crypt: bool,
    /// Whether the exit notification uses the control channel.
    pub cc_exit: bool,
    /// Whether data packets have epochs.
    pub epoch: bool,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: Option<u16>,
    /// Idle time after which the client sends a ping, seconds.
    pub ping_s: Option<u32>,
    /// Silence after which the client reconnects, seconds.
    pub ping_restart_s: Option<u32>,
    /// Silence after which the client gives up, seconds. The last pushed one of both counts; the other is absent.
    pub ping_exit_s: Option<u32>,
    /// The token that replaces the password.
    pub auth_token: Option<Secret>,
    /// The token's user, base64.
    pub auth_token_user: Option<String>,
    /// Compression framing; if absent, the profile's.
    pub compression: Option<Compression>,
    /// The text of every option, in order, without the token of `auth-token`.
    pub texts: Listed<Text>,
    malformed: Option<String>,
    bytes: usize,
    /// Number of texts of each updatable option.
    updatable: [u16; UPDATABLE.len()],
    /// The options that the current update has replaced.
    renewed: [bool; UPDATABLE.len()],
    /// Whether the current update has changed texts: the fields are parsed again when it is complete.
    is_stale: bool,
}

impl fmt::Debug for Pushed {
    /// Prints the texts, without the token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pushed").field("texts", &self.texts).finish_non_exhaustive()
    }
}

impl Pushed {
    /// Adds the options of one PUSH_REPLY to the present ones. A server sends a later one to renew a token, or as a
    /// repetition.
    ///
    /// # Errors
    /// More options than a client stores.
    pub fn absorb(&mut self, options: &str) -> Result<Completeness, MessageError> {
        let mut completeness = Completeness::Complete;
        for option in split(options) {
            if is_token(option) {
                self.take_token(option)?;
                continue;
            }
            // OpenVPN ignores lines that it cannot split.
            let tokens = tokenize(option).unwrap_or_default();
            let name = tokens.first().map(String::as_str).unwrap_or_default();
            if name == "push-continuation" {
                completeness = continuation(&tokens);
                continue;
            }
            self.keep(option, kind_of(name))?;
            self.apply(option, &tokens);
        }
        Ok(completeness)
    }

    /// Applies one PUSH_UPDATE: an option replaces all of its name, `-name` removes them, and `?` before a name makes
    /// an unknown name harmless. The changes take effect when the update is complete.
    ///
    /// # Errors
    /// A change of an option that cannot be updated, or more options than a client stores.
    pub fn update(&mut self, changes: &str) -> Result<Completeness, MessageError> {
        let mut completeness = Completeness::Complete;
        for change in split(changes) {
            let (removes, rest) = change.strip_prefix('-').map_or((false, change), |rest| (true, rest));
            let (optional, option) = rest.strip_prefix('?').map_or((false, rest), |rest| (true, rest));
            // OpenVPN compares the line up to its first space, without splitting it.
            let name = option.split(' ').next().unwrap_or_default();
            let Some(kind) = kind_of(name) else {
                if optional && !option.is_empty() && !option.starts_with('-') {
                    continue;
                }
                return Err(MessageError::NotUpdatable(name_for_error(option)));
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

    /// The first supported option with an invalid value, such as a malformed address or a number out of range.
    /// OpenVPN's client ignores such an option and continues.
    #[must_use]
    pub fn malformed(&self) -> Option<&str> {
        self.malformed.as_deref()
    }

    /// Takes a token from its line, which is secret even if it cannot be split.
    fn take_token(&mut self, option: &str) -> Result<(), MessageError> {
        let kept = match tokenize(option).as_deref() {
            Ok([name, token]) if name == "auth-token" => {
                self.auth_token = Some(Secret::from(token.as_str()));
                "[hidden]"
            }
            _ => UNREADABLE,
        };
        let tokens = ["auth-token", kept].map(str::to_owned);
        let text = tokens.join(" ");
        self.keep(&text, None)?;
        self.apply(&text, &tokens);
        Ok(())
    }

    /// Stores an option's text unless it is stored already; returns whether it is new.
    fn keep(&mut self, option: &str, kind: Option<u8>) -> Result<bool, MessageError> {
        if self.texts.contains(option) {
            return Ok(false);
        }
        if self.texts.len() == MAX_OPTIONS {
            return Err(MessageError::TooMany { most: MAX_OPTIONS });
        }
        self.bytes += option.len();
        if self.bytes > MAX_BYTES {
            return Err(MessageError::TooLong { what: "pushed options", bytes: self.bytes, most: MAX_BYTES });
        }
        if let Some(kind) = kind {
            self.updatable[usize::from(kind)] += 1;
        }
        Ok(self.texts.push(Text::new(option, kind)))
    }

    /// Removes the texts of an updatable option.
    fn forget(&mut self, kind: u8) {
        if std::mem::take(&mut self.updatable[usize::from(kind)]) > 0 {
            self.texts.remove(|text| text.kind == Some(kind));
            self.bytes = self.texts.iter().map(|text| text.len()).sum();
            self.is_stale = true;
        }
    }

    /// Parses all fields again from the texts.
    fn read_again(&mut self) {
        let old = std::mem::take(self);
        self.auth_token = old.auth_token;
        for text in old.texts.iter() {
            self.apply(text, &tokenize(text).unwrap_or_default());
        }
        (self.texts, self.bytes, self.updatable) = (old.texts, old.bytes, old.updatable);
    }

    fn apply(&mut self, option: &str, tokens: &[String]) {
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        if self.apply_tokens(&tokens).is_none() && self.malformed.is_none() {
            // A line that cannot be split may contain anything.
            let text = if tokens.is_empty() { "an option that cannot be split into words" } else { option };
            self.malformed = Some(text.chars().take(MAX_ERROR_CHARS).collect());
        }
    }

    /// Applies one option; `None` if it is known and invalid.
    fn apply_tokens(&mut self, tokens: &[&str]) -> Option<()> {
        match *tokens {
            ["ifconfig", local, other] => {
                let local = local.parse().ok().filter(|own| is_host_address(IpAddr::V4(*own)))?;
                self.ifconfig = Some((local, other.parse().ok()?));
            }
            ["ifconfig-ipv6", local, ref peer @ ..] => self.ifconfig_ipv6 = Some(ifconfig_ipv6(local, peer)?),
            ["topology", topology] => self.topology = Some(topology_of(topology)?),
            ["route-gateway", "dhcp"] => {}
            ["route-gateway", gateway] => self.route_gateway = Some(gateway.parse().ok()?),
            ["route", network, ref rest @ ..] => {
                // A name instead of an address (`vpn_gateway`, a host) is valid, but not a network that a check can
                // compare.
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
            ["tun-mtu", mtu, ..] => self.tun_mtu = Some(mtu.parse().ok().filter(|mtu| *mtu >= MIN_MTU)?),
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
            ["compress" | "comp-lzo", ..] => self.compression = Some(Compression::from_option(tokens)?),
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

    /// Adds a name server; `None` if there are too many.
    fn name_server(&mut self, server: IpAddr) -> Option<()> {
        if self.dns.len() == MAX_NAME_SERVERS && !self.dns.contains(&server) {
            return None;
        }
        self.dns.push(server);
        Some(())
    }
}

/// Splits a server's options into PUSH_REPLY messages that OpenVPN accepts.
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

/// The index of an option among the updatable ones.
fn kind_of(name: &str) -> Option<u8> {
    (0..).zip(UPDATABLE).find(|(_, known)| *known == name).map(|(kind, _)| kind)
}

/// Whether a line has a token. Checked before splitting, because a token line may be unsplittable.
fn is_token(option: &str) -> bool {
    let name = option.trim_start_matches(['"', '\'', '\\']);
    name.strip_prefix("auth-token").is_some_and(|rest| !rest.starts_with("-user"))
}

/// The name of an option for an error; the rest may be secret.
fn name_for_error(option: &str) -> String {
    option.chars().take_while(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '-')).take(MAX_ERROR_CHARS).collect()
}

/// Whether a host can have the address: not multicast, broadcast or unspecified.
fn is_host_address(address: IpAddr) -> bool {
    let is_all = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_multicast() || address.is_unspecified() || is_all)
}

fn continuation(tokens: &[String]) -> Completeness {
    match tokens.get(1).map(String::as_str) {
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
    let address = address.parse().ok().filter(|own| is_host_address(IpAddr::V6(*own)))?;
    let peer = match peer {
        [] => None,
        [peer] => Some(peer.parse().ok()?),
        _ => return None,
    };
    Some((address, bits, peer))
}

/// Parses `ADDRESS [NETMASK [GATEWAY [METRIC]]]`; the netmask may be absent or `default`.
fn route_ipv4(address: Ipv4Addr, rest: &[&str]) -> Option<IpNet> {
    match rest.first() {
        None | Some(&"default") => Some(Ipv4Net::from(address).into()),
        Some(mask) => net::from_netmask(address, mask.parse().ok()?),
    }
}

/// Parses `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
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
