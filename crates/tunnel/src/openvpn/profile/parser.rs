//! Parses one option after another into a profile. Owns each option's meaning and valid values; `option_table` has
//! the options that are not read, and `validate` the rules for all of them together.

use std::collections::BTreeSet;

use rustls::CipherSuite;
use zeroize::Zeroizing;

use super::error::ProfileError;
use super::lines::{directives, Directive};
use super::option_table::OptionSupport;
use super::settings::{Family, Ignored, Profile, Remote, VerifyName, WrapProfile, DEFAULT_CIPHERS};
use super::suites;
use crate::client::server::Transport;
use crate::openvpn::data::DataCipher;
use crate::openvpn::digest::Digest;
use crate::openvpn::message::compression::Compression;
use crate::openvpn::message::peer_info::CompressionOffer;
use crate::openvpn::message::push::MIN_MTU;
use crate::openvpn::wrap::{KeyDirection, StaticKey};
use crate::secret::Secret;

mod validate;

/// A profile during parsing.
#[derive(Default)]
pub(super) struct Parser {
    profile: Profile,
    is_client: bool,
    endpoint: Endpoint,
    /// `remote` lines of the whole profile, which `endpoint` completes at the end.
    remotes: Vec<(usize, RemoteLine)>,
    /// Remotes of `<connection>` blocks, which replace the others.
    connections: Vec<Remote>,
    only: Option<Transport>,
    tls_auth: Option<StaticKey>,
    key_direction: Option<KeyDirection>,
    /// The kind of wrapping and its line, to detect a second one.
    wrapped: Option<(usize, String)>,
    extra_certificates: String,
    /// Suites of TLS 1.2 and of TLS 1.3.
    suites: (Vec<CipherSuite>, Vec<CipherSuite>),
    /// `tls-cipher` without any supported suite: an error only if TLS 1.3, which has its own suites, is excluded.
    unsupported_suites: Option<(usize, String)>,
    /// `auth` with an unsupported digest: an error only if the digest is used.
    unsupported_auth: Option<(usize, String)>,
    auth_line: usize,
    cipher_line: usize,
    compatible_with: Option<[u32; 2]>,
    may_be_unknown: BTreeSet<String>,
    forward_compatible: bool,
}

/// `port` and `proto` of the profile or of one connection.
#[derive(Clone, Copy, Default)]
struct Endpoint {
    port: Option<u16>,
    protocol: Option<(Transport, Option<Family>)>,
}

struct RemoteLine {
    host: String,
    endpoint: Endpoint,
}

/// The error message of an option's line.
type OptionError = String;

impl Parser {
    /// Reads one option.
    pub fn read(&mut self, mut directive: Directive) -> Result<(), ProfileError> {
        let line = directive.line;
        let at = |message: OptionError| ProfileError::at(line, message);
        let mut tolerated = false;
        if directive.name() == "setenv" && directive.tokens.get(1).is_some_and(|token| token == "opt") {
            // `setenv opt NAME ..`: NAME may be unknown.
            directive.tokens.drain(..2);
            tolerated = true;
            if directive.tokens.is_empty() {
                return Err(at("an option must follow `setenv opt`".into()));
            }
        }
        if directive.name() == "connection" {
            return self.connection(directive);
        }
        let known = match &directive.block {
            Some(text) => self.block(&directive, text),
            None => self.option(&directive),
        };
        if known.map_err(at)? {
            return Ok(());
        }
        tolerated |= self.forward_compatible || self.may_be_unknown.contains(directive.name());
        match directive.support() {
            OptionSupport::Ignored => {}
            OptionSupport::Unknown(_) | OptionSupport::OfWindows | OptionSupport::Misused(_) if tolerated => {}
            OptionSupport::Misused(wrong) => return Err(at(wrong)),
            OptionSupport::OfWindows => return Err(at(of_windows(directive.name()))),
            OptionSupport::Refused(advice) => {
                return Err(at(format!("`{}` is not supported: {advice}", directive.name())))
            }
            OptionSupport::Unknown(Some(known)) => {
                return Err(at(format!("there is no such option; `{known}` is one")))
            }
            // The text is not repeated: it may be a line of a key whose opening tag is missing.
            OptionSupport::Unknown(None) => return Err(at("this does not begin with an option of OpenVPN".into())),
        }
        self.ignore(&directive);
        Ok(())
    }

    fn ignore(&mut self, directive: &Directive) {
        // The values of these options may be secret.
        let private = directive.block.is_some() || directive.name().starts_with("setenv");
        let shown = if private { directive.tokens.len().min(2) } else { directive.tokens.len() };
        self.profile.ignored.push(Ignored { line: directive.line, text: directive.tokens[..shown].join(" ") });
    }

    /// Reads an inline block; returns whether it is known.
    fn block(&mut self, directive: &Directive, text: &Zeroizing<String>) -> Result<bool, OptionError> {
        match directive.name() {
            "ca" => self.profile.ca = pem(text, "CERTIFICATE")?,
            "cert" => self.profile.cert = Some(pem(text, "CERTIFICATE")?),
            "extra-certs" => self.extra_certificates = pem(text, "CERTIFICATE")?,
            "key" => {
                if text.contains("ENCRYPTED") {
                    return Err("the key is under a passphrase: write it without one".into());
                }
                self.profile.key = Some(Secret::new(pem(text, "PRIVATE KEY")?));
            }
            "auth-user-pass" => {
                let mut lines = text.lines();
                let (Some(user), Some(password)) = (lines.next(), lines.next()) else {
                    return Err("the block has two lines: the user and the password".into());
                };
                self.profile.wants_user = true;
                self.profile.user = Some((user.to_owned(), Secret::from(password)));
            }
            "tls-auth" => {
                self.wraps(directive)?;
                self.tls_auth = Some(StaticKey::parse(text).map_err(|error| error.to_string())?);
            }
            "tls-crypt" => {
                self.wraps(directive)?;
                self.profile.wrap =
                    WrapProfile::Crypt { key: StaticKey::parse(text).map_err(|error| error.to_string())? };
            }
            "tls-crypt-v2" => {
                self.wraps(directive)?;
                let wrap = WrapProfile::CryptV2 { key: Secret::from(text.as_str()) };
                wrap.keys().map_err(|error| error.to_string())?;
                self.profile.wrap = wrap;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks that a profile has only one kind of wrapping.
    fn wraps(&mut self, directive: &Directive) -> Result<(), OptionError> {
        match &self.wrapped {
            Some((line, other)) if other != directive.name() => {
                return Err(format!("`{}` and `{other}` (line {line}) exclude each other: keep one", directive.name()));
            }
            _ => self.wrapped = Some((directive.line, directive.name().to_owned())),
        }
        Ok(())
    }

    /// Reads an option line; returns whether it is known.
    fn option(&mut self, directive: &Directive) -> Result<bool, OptionError> {
        let parameters = directive.parameters();
        Ok(self.file(directive, &parameters)?
            || self.server(directive, &parameters)?
            || self.security(directive, &parameters)?
            || self.data(directive, &parameters)?
            || self.session(directive, &parameters)?)
    }

    /// Reads options that name a file unless they are blocks.
    fn file(&mut self, directive: &Directive, parameters: &[&str]) -> Result<bool, OptionError> {
        let name = directive.name();
        if !matches!(
            name,
            "ca" | "cert" | "extra-certs" | "key" | "auth-user-pass" | "tls-auth" | "tls-crypt" | "tls-crypt-v2"
        ) {
            return Ok(false);
        }
        match parameters {
            [] if name == "auth-user-pass" => self.profile.wants_user = true,
            // An old way to announce that the block follows.
            ["[inline]"] => {}
            ["[inline]", direction] if name == "tls-auth" => self.key_direction = Some(key_direction(direction)?),
            [] => return Err(format!("`{name}` has no file: its text belongs between <{name}> and </{name}>")),
            _ => return Err(format!("`{name}` names a file: its text belongs here, between <{name}> and </{name}>")),
        }
        Ok(true)
    }

    /// Reads the server, transport and device options.
    fn server(&mut self, directive: &Directive, parameters: &[&str]) -> Result<bool, OptionError> {
        match (directive.name(), parameters) {
            ("client" | "tls-client", []) => self.is_client = true,
            ("pull", []) | ("mode", ["p2p"]) => {}
            ("mode", _) => return Err("a fleet consists of clients: write `client`".into()),
            ("remote", _) => self.remotes.push((directive.line, remote(parameters)?)),
            ("remote-random", []) => self.profile.remote_random = true,
            ("proto", [name]) => self.endpoint.protocol = Some(protocol(name)?),
            ("port" | "rport", [number]) => self.endpoint.port = Some(port(number)?),
            ("proto-force", ["udp"]) => self.only = Some(Transport::Udp),
            ("proto-force", ["tcp"]) => self.only = Some(Transport::Tcp),
            ("dev" | "dev-type", [device]) if !device.starts_with("tap") => {}
            ("dev" | "dev-type", [_]) => return Err("only `dev tun` is supported: packets inside are IP".into()),
            ("proto-force", _) => return Err("write proto-force udp or proto-force tcp".into()),
            ("client" | "tls-client" | "pull" | "remote-random", _) => {
                return Err(format!("`{}` takes no parameter", directive.name()))
            }
            ("proto" | "port" | "rport" | "dev" | "dev-type", _) => {
                return Err(format!("`{}` takes one parameter", directive.name()))
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the options of the control channel: TLS, wrapping and authentication.
    fn security(&mut self, directive: &Directive, parameters: &[&str]) -> Result<bool, OptionError> {
        let profile = &mut self.profile;
        match (directive.name(), parameters) {
            ("key-direction", [direction]) => self.key_direction = Some(key_direction(direction)?),
            ("key-method", ["2"]) => {}
            ("key-method", _) => return Err("only key method 2 is supported: remove this".into()),
            ("auth", [name]) => {
                self.unsupported_auth = None;
                self.auth_line = directive.line;
                match Digest::from_name(name) {
                    None if *name != "none" => self.unsupported_auth = Some((directive.line, (*name).to_owned())),
                    digest => profile.auth = digest,
                }
            }
            ("tls-version-min", _) => profile.tls_min = suites::lowest(parameters)?,
            ("tls-version-max", _) => profile.tls_max = suites::highest(parameters)?,
            ("tls-cipher", [list]) => {
                (self.suites.0, self.unsupported_suites) = match suites::suites(list) {
                    Ok(suites) => (suites, None),
                    Err(why) => (Vec::new(), Some((directive.line, why))),
                };
            }
            ("tls-ciphersuites", [list]) => self.suites.1 = suites::suites(list)?,
            ("tls-groups", [list]) => profile.tls_groups = suites::groups(list)?,
            // "--remote-cert-ku (any) and --remote-cert-eku" for servers, according to OpenVPN's manual.
            ("remote-cert-tls", ["server"]) => {
                (profile.server_usage, profile.key_usage) = (true, Some(Vec::new()));
            }
            ("remote-cert-tls", _) => return Err("clients connect to servers: write remote-cert-tls server".into()),
            ("remote-cert-eku", ["TLS Web Server Authentication" | "serverAuth" | "1.3.6.1.5.5.7.3.1"]) => {
                profile.server_usage = true;
            }
            ("remote-cert-eku", _) => {
                return Err("only servers' certificates are supported: write remote-cert-tls server".into())
            }
            ("remote-cert-ku", usages) => {
                profile.key_usage = Some(usages.iter().map(|usage| key_usage(usage)).collect::<Result<_, _>>()?);
            }
            // Every server's certificate is checked for this.
            ("ns-cert-type", ["server"]) => {}
            ("ns-cert-type", _) => return Err("clients connect to servers: write ns-cert-type server".into()),
            ("verify-x509-name", [name, "name"]) => {
                profile.verify_name = Some(VerifyName::CommonName((*name).to_owned()));
            }
            ("verify-x509-name", [name, "name-prefix"]) => {
                profile.verify_name = Some(VerifyName::CommonNamePrefix((*name).to_owned()));
            }
            ("verify-x509-name", [subject] | [subject, "subject"]) => {
                profile.verify_name = Some(VerifyName::Subject((*subject).to_owned()));
            }
            ("verify-x509-name", _) => {
                return Err(
                    "write verify-x509-name NAME name, NAME name-prefix, or \"C=.., O=.., CN=..\" subject".into()
                );
            }
            ("push-peer-info", []) => profile.push_peer_info = true,
            ("setenv", [name, value @ ..]) => {
                return self.environment(name, value.first().copied().unwrap_or_default())
            }
            ("ignore-unknown-option", names) => self.may_be_unknown.extend(names.iter().map(ToString::to_string)),
            ("key-direction" | "auth" | "tls-cipher" | "tls-ciphersuites" | "tls-groups", _) => {
                return Err(format!("`{}` takes one parameter", directive.name()));
            }
            ("push-peer-info", _) => return Err("`push-peer-info` takes no parameter".into()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn environment(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        let pair = || (name.to_owned(), value.to_owned());
        match name {
            "FORWARD_COMPATIBLE" => self.forward_compatible = value == "1",
            "PUSH_PEER_INFO" => self.profile.push_peer_info = true,
            "GENERIC_CONFIG" => return Err("this profile is a template: GENERIC_CONFIG marks it as unusable".into()),
            "IV_GUI_VER" | "IV_SSO" => self.profile.peer_info_always.push(pair()),
            "IV_PLAT_VER" => self.profile.peer_info_more.push(pair()),
            _ if name.starts_with("UV_") => self.profile.peer_info_more.push(pair()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the options of the data channel.
    fn data(&mut self, directive: &Directive, parameters: &[&str]) -> Result<bool, OptionError> {
        let profile = &mut self.profile;
        match (directive.name(), parameters) {
            ("data-ciphers" | "ncp-ciphers", [list]) => profile.data_ciphers = data_ciphers(list)?,
            ("data-ciphers-fallback", [name]) => profile.fallback_cipher = Some(data_cipher(name)?),
            ("cipher", [name]) => {
                profile.cipher = Some((*name).to_owned());
                self.cipher_line = directive.line;
            }
            ("compat-mode", [version]) => {
                let mut numbers = version.split('.').map(str::parse);
                let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
                    return Err("write a version of OpenVPN, like compat-mode 2.4.0".into());
                };
                self.compatible_with = Some([major, minor]);
            }
            ("compress", ["migrate"]) => return Err("this is a server's setting: write compress stub-v2".into()),
            ("compress" | "comp-lzo", _) => {
                let tokens: Vec<&str> = directive.tokens.iter().map(String::as_str).collect();
                let compression = Compression::from_option(&tokens).ok_or_else(|| {
                    "write compress stub, stub-v2, lzo, lz4 or lz4-v2, or comp-lzo yes, no or adaptive".to_owned()
                })?;
                if matches!(compression, Compression::StubSwapped | Compression::StubV2) {
                    profile.compression_offer = CompressionOffer::Stubs;
                }
                profile.compression = Some(compression);
            }
            ("allow-compression", ["no"]) => profile.compression_offer = CompressionOffer::Stubs,
            ("allow-compression", ["asym" | "yes"]) => {}
            ("allow-compression", _) => return Err("write allow-compression no, asym or yes".into()),
            ("replay-window", [window, ..]) => profile.replay_window = number(window, 0, 65_536)?,
            ("tun-mtu", [mtu, ..]) => profile.tun_mtu = Some(mtu_of(mtu)?),
            ("tun-mtu-max", [mtu]) => profile.max_mtu = mtu_of(mtu)?,
            (
                "data-ciphers" | "ncp-ciphers" | "data-ciphers-fallback" | "cipher" | "compat-mode" | "replay-window",
                _,
            )
            | ("tun-mtu" | "tun-mtu-max", _) => return Err(format!("`{}` takes one parameter", directive.name())),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads the options of timers and renewals.
    fn session(&mut self, directive: &Directive, parameters: &[&str]) -> Result<bool, OptionError> {
        let profile = &mut self.profile;
        let most = i32::MAX.unsigned_abs();
        let seconds = |text: &str| number(text, 0, most);
        let positive = |value: u32| (value > 0).then_some(value);
        match (directive.name(), parameters) {
            ("reneg-sec", [age] | [age, _]) => profile.reneg_s = positive(seconds(age)?),
            ("reneg-bytes", [bytes]) => profile.reneg_bytes = positive(seconds(bytes)?).map(u64::from),
            ("reneg-pkts", [packets]) => profile.reneg_packets = positive(seconds(packets)?).map(u64::from),
            ("hand-window", [window]) => profile.hand_window_s = number(window, 1, most)?,
            ("tls-timeout", [timeout]) => profile.tls_timeout_s = number(timeout, 1, most)?,
            ("ping", [silence]) => profile.ping_s = positive(seconds(silence)?),
            // The last one counts, and 0 means never, not the default.
            ("ping-restart", [silence]) => {
                (profile.ping_restart_s, profile.ping_exit_s) = (Some(seconds(silence)?), None);
            }
            ("ping-exit", [silence]) => {
                (profile.ping_exit_s, profile.ping_restart_s) = (Some(seconds(silence)?), None);
            }
            ("keepalive", [ping, restart]) => {
                profile.ping_s = positive(seconds(ping)?);
                (profile.ping_restart_s, profile.ping_exit_s) = (Some(seconds(restart)?), None);
            }
            ("keepalive", _) => return Err("write keepalive PING RESTART, both in seconds".into()),
            // Clients of a fleet send one exit notification with or without this option.
            ("explicit-exit-notify", []) => {}
            ("explicit-exit-notify", [times]) => drop(number(times, 0, 100)?),
            (
                "reneg-sec" | "reneg-bytes" | "reneg-pkts" | "hand-window" | "tls-timeout" | "ping" | "ping-restart",
                _,
            )
            | ("ping-exit" | "explicit-exit-notify", _) => {
                return Err(format!("`{}` takes one number", directive.name()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a `<connection>` block: one remote with its own settings.
    fn connection(&mut self, directive: Directive) -> Result<(), ProfileError> {
        let at = |line: usize| move |message: OptionError| ProfileError::at(line, message);
        let Some(text) = directive.block else {
            return Err(at(directive.line)("a connection is a block: <connection>, options, </connection>".into()));
        };
        let mut endpoint = self.endpoint;
        let mut parsed = None;
        for inner in directives(&text, directive.line + 1)? {
            let wrong = at(inner.line);
            let parameters = inner.parameters();
            match (inner.name(), &parameters[..]) {
                ("remote", parameters) => parsed = Some(remote(parameters).map_err(wrong)?),
                ("proto", [name]) => endpoint.protocol = Some(protocol(name).map_err(wrong)?),
                ("port" | "rport", [number]) => endpoint.port = Some(port(number).map_err(wrong)?),
                ("explicit-exit-notify", _) => {
                    self.session(&inner, &parameters).map_err(wrong)?;
                }
                ("tls-auth" | "tls-crypt" | "tls-crypt-v2" | "key-direction" | "tun-mtu", _) => {
                    let advice = "all connections share this option: move it out of the block";
                    return Err(wrong(format!("`{}`: {advice}", inner.name())));
                }
                (name, _) => match inner.support() {
                    OptionSupport::Ignored => self.ignore(&inner),
                    OptionSupport::Misused(problem) => return Err(wrong(problem)),
                    OptionSupport::OfWindows => return Err(wrong(of_windows(name))),
                    OptionSupport::Refused(advice) => {
                        return Err(wrong(format!("`{name}` is not supported: {advice}")))
                    }
                    OptionSupport::Unknown(_) => return Err(wrong("a connection may not have this option".into())),
                },
            }
        }
        let Some(parsed) = parsed else {
            return Err(at(directive.line)("the connection has no `remote`".into()));
        };
        self.connections.push(parsed.complete(endpoint));
        Ok(())
    }
}

fn of_windows(name: &str) -> OptionError {
    format!(
        "`{name}` is only for OpenVPN on Windows, which refuses it elsewhere: remove it, or write `setenv opt {name}`"
    )
}

fn remote(parameters: &[&str]) -> Result<RemoteLine, OptionError> {
    let mut endpoint = Endpoint::default();
    let host = match *parameters {
        [host] => host,
        [host, number] => {
            endpoint.port = Some(port(number)?);
            host
        }
        [host, number, name] => {
            (endpoint.port, endpoint.protocol) = (Some(port(number)?), Some(protocol(name)?));
            host
        }
        _ => "",
    };
    if host.is_empty() {
        return Err("write remote HOST, followed by a port and a protocol if needed".into());
    }
    Ok(RemoteLine { host: host.to_owned(), endpoint })
}

fn protocol(name: &str) -> Result<(Transport, Option<Family>), OptionError> {
    Ok(match name {
        "udp" => (Transport::Udp, None),
        "udp4" => (Transport::Udp, Some(Family::V4)),
        "udp6" => (Transport::Udp, Some(Family::V6)),
        "tcp" | "tcp-client" => (Transport::Tcp, None),
        "tcp4" | "tcp4-client" => (Transport::Tcp, Some(Family::V4)),
        "tcp6" | "tcp6-client" => (Transport::Tcp, Some(Family::V6)),
        "tcp-server" | "tcp4-server" | "tcp6-server" => {
            return Err("this protocol is a server's: write tcp-client".into());
        }
        _ => return Err("no such protocol: write udp, udp4, udp6, tcp, tcp4 or tcp6".into()),
    })
}

/// Parses usages as OpenVPN writes them: bits, the first usage being the highest of the (first) byte.
fn key_usage(text: &str) -> Result<u16, OptionError> {
    let read = u16::from_str_radix(text, 16).ok().filter(|usage| *usage > 0);
    read.ok_or_else(|| "write key usages in hexadecimal, like remote-cert-ku a0 88".into())
}

fn port(text: &str) -> Result<u16, OptionError> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "a port is a number from 1 to 65535".into())
}

fn number(text: &str, least: u32, most: u32) -> Result<u32, OptionError> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("write a number from {least} to {most}"))
}

/// OpenVPN's limits: the minimum of IP, and the longest packet.
fn mtu_of(text: &str) -> Result<u16, OptionError> {
    let read = text.parse().ok().filter(|mtu| *mtu >= MIN_MTU);
    read.ok_or_else(|| format!("write bytes, from {MIN_MTU} to {}", u16::MAX))
}

fn key_direction(text: &str) -> Result<KeyDirection, OptionError> {
    KeyDirection::from_name(text).ok_or_else(|| "write 0 or 1 (clients usually have 1)".into())
}

fn data_cipher(name: &str) -> Result<DataCipher, OptionError> {
    DataCipher::from_name(name).ok_or_else(|| {
        let known: Vec<_> = DataCipher::ALL.iter().map(|cipher| cipher.name()).collect();
        // A long word is not a mistyped name and may contain anything.
        let name = if name.len() < 40 { name } else { "this" };
        format!("`{name}` is not a supported data cipher; supported are: {}", known.join(", "))
    })
}

/// Parses `A:B:?C:DEFAULT`; a name after a question mark may be unknown.
fn data_ciphers(list: &str) -> Result<Vec<DataCipher>, OptionError> {
    let mut parsed = Vec::new();
    for token in list.split(':').filter(|token| !token.is_empty()) {
        if token == "DEFAULT" {
            parsed.extend(DEFAULT_CIPHERS);
            continue;
        }
        match token.strip_prefix('?') {
            Some(optional) => parsed.extend(DataCipher::from_name(optional)),
            None => parsed.push(data_cipher(token)?),
        }
    }
    if parsed.is_empty() {
        return Err("the list has no supported cipher: add one such as AES-256-GCM".into());
    }
    let mut listed = Vec::new();
    parsed.retain(|cipher| {
        !listed.contains(cipher) && {
            listed.push(*cipher);
            true
        }
    });
    Ok(parsed)
}

/// Checks that a text has a PEM section of this kind.
fn pem(text: &str, section: &str) -> Result<String, OptionError> {
    let has = text
        .lines()
        .any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{section}-----")));
    if !has {
        return Err(format!("the block has no PEM section: -----BEGIN {section}-----"));
    }
    Ok(text.to_owned())
}
