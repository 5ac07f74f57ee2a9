//! A client's file as `wg-quick` reads it: `[Interface]` and one `[Peer]`, the gateway. Owns which keys are supported:
//! one that has no meaning for clients without a host of their own is listed as ignored; any other is refused with its
//! line. Reads no file, and no error contains a key.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::allowed::Prefix;
use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// One client.
#[derive(Clone, Debug)]
pub struct ClientFile {
    /// The client's private key.
    pub private_key: PrivateKey,
    /// Addresses of the client inside the tunnel, with the length of their network's prefix.
    pub addresses: Vec<Prefix>,
    /// DNS servers inside the tunnel.
    pub dns: Vec<IpAddr>,
    /// MTU of the tunnel, bytes.
    pub mtu: Option<u16>,
    /// The key that both ends share, beside the gateway's own.
    pub preshared_key: Option<PresharedKey>,
    /// The gateway.
    pub gateway: GatewayEntry,
    /// Keys without meaning for a fleet, with their lines: `line 4: Table`.
    pub ignored: Vec<String>,
}

/// The gateway as the client's file describes it, without the shared key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayEntry {
    /// Its public key.
    pub public_key: PublicKey,
    /// Its host, a name or an address.
    pub host: String,
    /// Its UDP port.
    pub port: u16,
    /// The networks that are routed into the tunnel.
    pub allowed: Vec<IpNet>,
    /// Interval of keepalives, s.
    pub keepalive_s: Option<u16>,
}

/// What is wrong with a file; the message is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The line, from 1; 0 if something is missing.
    pub line: usize,
    /// The fault, and what would be right.
    pub what: String,
}

/// Keys of `[Interface]` that concern the host of a real client.
const IGNORED: [&str; 8] = ["listenport", "fwmark", "table", "preup", "postup", "predown", "postdown", "saveconfig"];

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => formatter.write_str(&self.what),
            line => write!(formatter, "line {line}: {}", self.what),
        }
    }
}

/// Whether a client's file is WireGuard's: it has an `[Interface]` section.
pub fn is_wireguard(text: &str) -> bool {
    text.lines().any(|line| section_of(without_comment(line)).is_some_and(|name| name == "interface"))
}

impl ClientFile {
    /// Parses a file.
    ///
    /// # Errors
    /// The first line that is wrong, or what is missing.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut parser = Parser::default();
        for (line, number) in text.lines().zip(1..) {
            let line = without_comment(line);
            if !line.is_empty() {
                parser.read(line, number).map_err(|what| FileError { line: number, what })?;
            }
        }
        parser.finish().map_err(|what| FileError { line: 0, what })
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Section {
    #[default]
    None,
    Interface,
    Peer,
}

#[derive(Default)]
struct Parser {
    section: Section,
    peers: usize,
    private_key: Option<PrivateKey>,
    addresses: Vec<Prefix>,
    dns: Vec<IpAddr>,
    mtu: Option<u16>,
    public_key: Option<PublicKey>,
    preshared_key: Option<PresharedKey>,
    endpoint: Option<(String, u16)>,
    allowed: Vec<IpNet>,
    keepalive_s: Option<u16>,
    ignored: Vec<String>,
}

impl Parser {
    fn read(&mut self, line: &str, number: usize) -> Result<(), String> {
        if let Some(section) = section_of(line) {
            self.section = match section.as_str() {
                "interface" => Section::Interface,
                "peer" => Section::Peer,
                _ => return Err("a section is [Interface] or [Peer]".to_owned()),
            };
            self.peers += usize::from(self.section == Section::Peer);
            if self.peers > 1 {
                return Err("a second [Peer]: a fleet's client has one gateway".to_owned());
            }
            return Ok(());
        }
        let (key, value) = line.split_once('=').ok_or("a line is `Key = value`, or a section")?;
        let (key, value) = (key.trim(), value.trim());
        match self.section {
            Section::None => Err(format!("{key} before a section: begin with [Interface]")),
            Section::Interface => self.read_interface(key, value, number),
            Section::Peer => self.read_peer(key, value),
        }
    }

    fn read_interface(&mut self, key: &str, value: &str, number: usize) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "privatekey" => self.private_key = Some(named(key, PrivateKey::try_from(value.to_owned()))?),
            "address" => self.addresses.extend(listed(key, value, |text| text.parse::<Prefix>())?),
            // A search domain is for the host's resolver.
            "dns" => self.dns.extend(items(value).filter_map(|text| text.parse::<IpAddr>().ok())),
            "mtu" => self.mtu = Some(value.parse().map_err(|_| format!("MTU = {value}: from 1 to 65535 bytes"))?),
            other if IGNORED.contains(&other) => self.ignored.push(format!("line {number}: {key}")),
            _ => return Err(format!("{key} is no key of [Interface]")),
        }
        Ok(())
    }

    fn read_peer(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key.to_ascii_lowercase().as_str() {
            "publickey" => self.public_key = Some(named(key, PublicKey::try_from(value.to_owned()))?),
            "presharedkey" => self.preshared_key = Some(named(key, PresharedKey::try_from(value.to_owned()))?),
            "allowedips" => self.allowed.extend(listed(key, value, network)?),
            "endpoint" => self.endpoint = Some(endpoint(value)?),
            "persistentkeepalive" => self.keepalive_s = keepalive(value)?,
            _ => return Err(format!("{key} is no key of [Peer]")),
        }
        Ok(())
    }

    fn finish(self) -> Result<ClientFile, String> {
        let missing = |what: &str| format!("{what} is missing");
        if self.peers == 0 {
            return Err(missing("[Peer], the gateway,"));
        }
        if self.addresses.is_empty() {
            return Err(missing("Address of [Interface]"));
        }
        let (host, port) = self.endpoint.ok_or_else(|| missing("Endpoint of [Peer]"))?;
        Ok(ClientFile {
            private_key: self.private_key.ok_or_else(|| missing("PrivateKey of [Interface]"))?,
            addresses: self.addresses,
            dns: self.dns,
            mtu: self.mtu,
            preshared_key: self.preshared_key,
            gateway: GatewayEntry {
                public_key: self.public_key.ok_or_else(|| missing("PublicKey of [Peer]"))?,
                host,
                port,
                allowed: self.allowed,
                keepalive_s: self.keepalive_s,
            },
            ignored: self.ignored,
        })
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// The name of a section, in lower case, if the line begins one.
fn section_of(line: &str) -> Option<String> {
    Some(line.strip_prefix('[')?.strip_suffix(']')?.trim().to_ascii_lowercase())
}

fn items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|text| !text.is_empty())
}

/// The items of a list. An error names the key; the item is no secret.
fn listed<T, E: fmt::Display>(key: &str, value: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Vec<T>, String> {
    items(value).map(|text| named(key, parse(text))).collect()
}

fn named<T, E: fmt::Display>(key: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{key}: {error}"))
}

/// Parses a network; its host bits are ignored, as `wg` does.
fn network(text: &str) -> Result<IpNet, String> {
    let prefix: Prefix = text.parse().map_err(|error: super::allowed::BadPrefix| error.to_string())?;
    IpNet::new(prefix.address, prefix.length).map(|net| net.trunc()).map_err(|error| error.to_string())
}

fn endpoint(value: &str) -> Result<(String, u16), String> {
    let bad = || format!("Endpoint = {value}: write HOST:PORT, or [ADDRESS]:PORT for IPv6");
    let (host, port) = value.rsplit_once(':').ok_or_else(bad)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port: u16 = port.parse().map_err(|_| bad())?;
    if host.is_empty() || port == 0 {
        return Err(bad());
    }
    Ok((host.to_owned(), port))
}

fn keepalive(value: &str) -> Result<Option<u16>, String> {
    if value.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let seconds: u16 =
        value.parse().map_err(|_| format!("PersistentKeepalive = {value}: from 1 to 65535 seconds, or off"))?;
    Ok(Some(seconds).filter(|seconds| *seconds > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# a client\n[Interface]\nPrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n\
        Address = 10.83.0.2/16, fd83::2/64\nDNS = 10.83.0.1, example.net\nMTU = 1400\nTable = off\n\n[Peer]\n\
        PublicKey = 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=  # the gateway\nAllowedIPs = 10.83.0.0/16\n\
        AllowedIPs = fd83::/64\nEndpoint = vpn.example.net:51820\nPersistentKeepalive = 25\n";

    #[test]
    fn wg_quick_file_is_read() {
        assert!(is_wireguard(GOOD) && !is_wireguard("client\nremote vpn.example.net\n"));
        let file = ClientFile::parse(GOOD).unwrap();
        assert_eq!(file.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.83.0.2/16", "fd83::2/64"]);
        assert_eq!((file.dns.len(), file.mtu, file.gateway.keepalive_s), (1, Some(1400), Some(25)));
        assert_eq!((file.gateway.host.as_str(), file.gateway.port), ("vpn.example.net", 51820));
        assert_eq!(
            file.gateway.allowed.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.83.0.0/16", "fd83::/64"]
        );
        assert_eq!(file.ignored, ["line 7: Table"]);
        let six = GOOD.replace("vpn.example.net:51820", "[2001:db8::1]:51820").replace("= 25", "= off");
        let file = ClientFile::parse(&six).unwrap();
        assert_eq!((file.gateway.host.as_str(), file.gateway.keepalive_s), ("2001:db8::1", None));
    }

    #[test]
    fn faults_are_named_with_their_lines_and_without_keys() {
        let said = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            ClientFile::parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert_eq!(said("MTU = 1400", "Mtu = big"), "line 6: MTU = big: from 1 to 65535 bytes");
        assert_eq!(said("MTU", "Colour"), "line 6: Colour is no key of [Interface]");
        assert_eq!(said("Endpoint = vpn.example.net:51820\n", ""), "Endpoint of [Peer] is missing");
        assert_eq!(
            said("51820", "0"),
            "line 13: Endpoint = vpn.example.net:0: write HOST:PORT, or [ADDRESS]:PORT for IPv6"
        );
        assert!(said("[Peer]", "[Gateway]").starts_with("line 9: a section is"));
        assert!(said("[Interface]\n", "").starts_with("line 2: PrivateKey before a section"));
        let bad = said("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=", "SECRET");
        assert!(bad.starts_with("line 3: PrivateKey: a key is") && !bad.contains("SECRET"), "{bad}");
        assert!(said("PersistentKeepalive = 25", "[Peer]").contains("one gateway"));
    }
}
