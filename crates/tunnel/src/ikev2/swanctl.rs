//! Connections of swanctl.conf(5) as clients' settings. What is not supported is refused with its line: a client with
//! other settings than its file's would measure something else. Owns names and meanings of settings; `swanctl/sections`
//! owns the syntax. Reads no files: the caller passes the contents of certificates and keys.

use std::sync::Arc;

use self::sections::{Section, Setting};
use super::config::{ClientConfig, Identity, Lifetime, LocalAuth, RemoteAuth};
use super::identification::Id;
use super::proposal::Offer;
use super::secret_bytes::SecretBytes;
use super::signature::{PeerVerifier, Signer};
use super::traffic_selector::TrafficSelector;
use crate::secret::Secret;

mod sections;

const SECOND_NS: u64 = 1_000_000_000;
/// What `default` stands for here: what this client supports of strongSwan's default proposals.
const DEFAULT_IKE: &str = "aes128-aes192-aes256-sha256-sha384-sha512-x25519-ecp256-ecp384";
const DEFAULT_IKE_AEAD: &str =
    "aes128gcm16-aes192gcm16-aes256gcm16-chacha20poly1305-prfsha256-prfsha384-prfsha512-x25519-ecp256-ecp384";
const DEFAULT_ESP: &str = "aes128gcm16-aes192gcm16-aes256gcm16";

/// Where the content of a file is looked for, as swanctl does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// `x509`: certificates.
    X509,
    /// `x509ca`: authorities.
    X509Ca,
    /// `private`: private keys.
    Private,
}

/// Returns the PEM of a file, or of each file of a directory if no name is given.
pub type ReadPem<'f> = dyn Fn(Directory, Option<&str>) -> Result<String, String> + 'f;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its name in the file.
    pub name: String,
    /// The settings that all clients share.
    pub config: ClientConfig,
    /// The client's identity; a fleet gives each client its own `id`.
    pub identity: Identity,
    /// The gateway's addresses or names.
    pub remote_addresses: Vec<String>,
    /// The gateway's port.
    pub remote_port: u16,
}

/// Reads a connection; the only one if no name is given.
///
/// # Errors
/// One line: where, what, and what would be right.
pub fn read_connection(text: &str, name: Option<&str>, read_pem: &ReadPem<'_>) -> Result<Connection, String> {
    let file = sections::parse(text)?;
    if let Some(setting) = file.settings.first() {
        return Err(setting.refuse("is outside of every section"));
    }
    let connections = file.section("connections").ok_or("swanctl.conf: the section connections is missing")?;
    let found = match name {
        Some(name) => connections.section(name).ok_or(format!("swanctl.conf: there is no connection {name:?}"))?,
        None => match connections.sections.as_slice() {
            [only] => only,
            [] => return Err("swanctl.conf: there is no connection".to_owned()),
            _ => return Err("swanctl.conf: there are several connections; name one".to_owned()),
        },
    };
    let mut reader = Reader { secrets: file.section("secrets"), read_pem, connection: found };
    reader.read()
}

struct Reader<'f> {
    secrets: Option<&'f Section>,
    read_pem: &'f ReadPem<'f>,
    connection: &'f Section,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<Connection, String> {
        let connection = self.connection;
        let offer = Offer::parse_ike(DEFAULT_IKE_AEAD)?;
        let mut config = ClientConfig::new(offer, Offer::parse_esp(DEFAULT_ESP)?, RemoteAuth::SharedKey);
        config.ike.push(Offer::parse_ike(DEFAULT_IKE)?);
        (config.requests_ipv4, config.has_mobike) = (false, true);
        let (mut remote_addresses, mut remote_port) = (Vec::new(), 500);
        let mut rand_ns = None;
        for setting in &connection.settings {
            match setting.key.as_str() {
                "remote_addrs" => remote_addresses = setting.list(),
                "remote_port" => remote_port = setting.number()?,
                "rand_time" => rand_ns = setting.time_ns()?,
                _ => apply_connection(setting, &mut config)?,
            }
        }
        config.starts_on_4500 = remote_port != 500;
        config.ike_lifetime.spread_ns = spread(config.ike_lifetime, rand_ns);
        if remote_addresses.is_empty() {
            return Err(connection.refuse("needs remote_addrs"));
        }
        let local = connection.section("local");
        let remote = connection.section("remote");
        let children = connection.section("children").ok_or(connection.refuse("needs a section children"))?;
        for section in &connection.sections {
            if !matches!(section.name.as_str(), "local" | "remote" | "children") {
                return Err(section.refuse("is not supported here; supported are local, remote, children"));
            }
        }
        let [child] = children.sections.as_slice() else {
            return Err(children.refuse("needs exactly one child: a client has one tunnel"));
        };
        read_child(child, &mut config)?;
        let (remote_id, remote_auth) = self.read_remote(remote)?;
        (config.remote_id, config.remote_auth) = (remote_id, remote_auth);
        let identity = self.read_local(local, &config)?;
        Ok(Connection { name: connection.name.clone(), config, identity, remote_addresses, remote_port })
    }

    fn read_remote(&self, section: Option<&Section>) -> Result<(Option<Id>, RemoteAuth), String> {
        let (mut id, mut auth, mut authorities) = (None, None, Vec::new());
        for setting in section.iter().flat_map(|section| &section.settings) {
            match setting.key.as_str() {
                "id" if setting.value == "%any" => id = None,
                "id" => id = Some(Id::parse(&setting.value)),
                "auth" => auth = Some(setting),
                "cacerts" => authorities = setting.list(),
                "revocation" if setting.value == "relaxed" => {}
                _ => return Err(setting.refuse("is not supported; supported in remote are id, auth, cacerts")),
            }
        }
        match auth.map_or("pubkey", |auth| auth.value.as_str()) {
            "psk" => Ok((id, RemoteAuth::SharedKey)),
            "pubkey" | "ecdsa" | "rsa" => {
                let mut pem = String::new();
                match authorities.is_empty() {
                    true => pem = (self.read_pem)(Directory::X509Ca, None)?,
                    false => {
                        for name in &authorities {
                            pem.push_str(&(self.read_pem)(Directory::X509Ca, Some(name))?);
                        }
                    }
                }
                Ok((id, RemoteAuth::Certificate(Arc::new(PeerVerifier::from_pem(&pem)?))))
            }
            _ => Err(auth.map_or(String::new(), |auth| auth.refuse("is not supported; supported are psk, pubkey"))),
        }
    }

    fn read_local(&self, section: Option<&Section>, config: &ClientConfig) -> Result<Identity, String> {
        let (mut id, mut auth, mut certificates, mut eap_id) = (None, None, Vec::new(), None);
        for setting in section.iter().flat_map(|section| &section.settings) {
            match setting.key.as_str() {
                "id" => id = Some(setting.value.as_str()),
                "auth" => auth = Some(setting),
                "certs" => certificates = setting.list(),
                "eap_id" => eap_id = Some(setting.value.as_str()),
                _ => return Err(setting.refuse("is not supported; supported in local are id, auth, certs, eap_id")),
            }
        }
        let needs_key = matches!(config.remote_auth, RemoteAuth::SharedKey);
        let kind = auth.map_or("pubkey", |auth| auth.value.as_str());
        let is_shared = kind == "psk" || needs_key;
        let shared_key = if is_shared { Some(self.shared_key(id, config.remote_id.as_ref())?) } else { None };
        let needs_id = || self.connection.refuse("needs an id in local");
        let (id, auth) = match kind {
            "psk" => (Id::parse(id.ok_or_else(needs_id)?), LocalAuth::SharedKey),
            "pubkey" | "ecdsa" | "rsa" => {
                let signer = self.read_signer(&certificates)?;
                let subject = signer.subject().ok_or("a certificate has no subject")?;
                (id.map_or(subject, Id::parse), LocalAuth::Certificate(Arc::new(signer)))
            }
            "eap" | "eap-mschapv2" => {
                let user = eap_id.or(id).ok_or_else(needs_id)?;
                let password = self.password(user)?;
                (Id::parse(id.unwrap_or(user)), LocalAuth::Eap { user: user.to_owned(), password })
            }
            _ => {
                let auth = auth.map_or(String::new(), |auth| {
                    auth.refuse("is not supported; supported are psk, pubkey, eap-mschapv2")
                });
                return Err(auth);
            }
        };
        Ok(Identity { id, auth, shared_key })
    }

    fn read_signer(&self, certificates: &[String]) -> Result<Signer, String> {
        let Some(first) = certificates.first() else {
            return Err(self.connection.refuse("needs certs in local"));
        };
        let mut chain = String::new();
        for name in certificates {
            chain.push_str(&(self.read_pem)(Directory::X509, Some(name))?);
        }
        // swanctl loads every key and finds a certificate's by itself; here the names agree.
        let stem = first.rsplit_once('.').map_or(first.as_str(), |(stem, _)| stem);
        let key = Secret::new((self.read_pem)(Directory::Private, Some(stem))?);
        Signer::from_pem(&chain, key.expose())
    }

    /// The key whose identities contain both ends', or that has none.
    fn shared_key(&self, id: Option<&str>, remote: Option<&Id>) -> Result<SecretBytes, String> {
        let mut best: Option<(usize, &Setting)> = None;
        for section in self.secrets.iter().flat_map(|secrets| &secrets.sections) {
            if !section.name.starts_with("ike") {
                continue;
            }
            let ids: Vec<Id> = section.settings_like("id").map(|setting| Id::parse(&setting.value)).collect();
            let is_named = |wanted: Option<&Id>| wanted.is_some_and(|wanted| ids.contains(wanted));
            let named = usize::from(is_named(id.map(Id::parse).as_ref())) + usize::from(is_named(remote));
            let Some(secret) = section.setting("secret") else { continue };
            if (ids.is_empty() || named > 0) && best.is_none_or(|(other, _)| named > other) {
                best = Some((named, secret));
            }
        }
        let (_, secret) = best.ok_or("swanctl.conf: secrets has no ike section for this connection")?;
        secret.secret_bytes()
    }

    fn password(&self, user: &str) -> Result<Secret, String> {
        let sections = self.secrets.iter().flat_map(|secrets| &secrets.sections);
        let mut of_eap = sections.filter(|section| section.name.starts_with("eap"));
        let found = of_eap.find(|section| section.settings_like("id").any(|setting| setting.value == user));
        let secret = found.and_then(|section| section.setting("secret"));
        let secret = secret.ok_or(format!("swanctl.conf: secrets has no eap section with the id {user:?}"))?;
        Ok(Secret::from(secret.value.as_str()))
    }
}

fn apply_connection(setting: &Setting, config: &mut ClientConfig) -> Result<(), String> {
    match setting.key.as_str() {
        "version" if setting.value == "2" || setting.value == "0" => {}
        "proposals" => config.ike = offers(setting, Offer::parse_ike, &[DEFAULT_IKE_AEAD, DEFAULT_IKE])?,
        "vips" => {
            for address in setting.list() {
                match address.as_str() {
                    "0.0.0.0" => config.requests_ipv4 = true,
                    "::" => config.requests_ipv6 = true,
                    _ => return Err(setting.refuse("is not supported; supported are 0.0.0.0 and ::")),
                }
            }
        }
        "encap" => config.forces_encapsulation = setting.switch()?,
        "mobike" => config.has_mobike = setting.switch()?,
        "dpd_delay" => config.dpd_ns = setting.time_ns()?,
        "fragmentation" => match setting.value.as_str() {
            "yes" | "accept" => {}
            "no" => config.fragment_bytes = None,
            _ => return Err(setting.refuse("is not supported; supported are yes and no")),
        },
        "rekey_time" => config.ike_lifetime.rekey_ns = setting.time_ns()?,
        "unique" => config.has_initial_contact = setting.value != "never",
        // They say what this end does anyway, or what a fleet says by options of its own.
        "local_addrs" | "over_time" | "keyingtries" | "send_cert" | "send_certreq" | "dpd_timeout" => {}
        "reauth_time" if setting.time_ns()?.is_none() => {}
        _ => return Err(setting.refuse("is not supported in a connection")),
    }
    Ok(())
}

fn read_child(child: &Section, config: &mut ClientConfig) -> Result<(), String> {
    config.esp = vec![Offer::parse_esp(DEFAULT_ESP)?];
    let mut rand_ns = None;
    for setting in &child.settings {
        match setting.key.as_str() {
            "local_ts" => config.local_ts = selectors(setting)?,
            "remote_ts" => config.remote_ts = selectors(setting)?,
            "esp_proposals" => config.esp = offers(setting, Offer::parse_esp, &[DEFAULT_ESP])?,
            "rekey_time" => config.child_lifetime.rekey_ns = setting.time_ns()?,
            "rand_time" => rand_ns = setting.time_ns()?,
            "replay_window" => config.replay_window = setting.number()?,
            "mode" if setting.value == "tunnel" => {}
            "ipcomp" if !setting.switch()? => {}
            "life_time" | "start_action" | "close_action" | "dpd_action" => {}
            _ => return Err(setting.refuse("is not supported in a child")),
        }
    }
    config.child_lifetime.spread_ns = spread(config.child_lifetime, rand_ns);
    if config.remote_ts.is_empty() {
        return Err(child.refuse("needs a remote_ts other than dynamic"));
    }
    Ok(())
}

/// swanctl.conf(5): without rand_time, a tenth of rekey_time.
fn spread(lifetime: Lifetime, rand_ns: Option<u64>) -> u64 {
    rand_ns.unwrap_or(lifetime.rekey_ns.unwrap_or(0) / 10)
}

fn offers(
    setting: &Setting,
    parse: impl Fn(&str) -> Result<Offer, String>,
    defaults: &[&str],
) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    for text in setting.list() {
        let texts = if text == "default" { defaults.to_vec() } else { vec![text.as_str()] };
        for text in texts {
            offers.push(parse(text).map_err(|error| format!("swanctl.conf:{}: {error}", setting.line))?);
        }
    }
    if offers.is_empty() {
        return Err(setting.refuse("is empty"));
    }
    Ok(offers)
}

fn selectors(setting: &Setting) -> Result<Vec<TrafficSelector>, String> {
    let mut selectors = Vec::new();
    for text in setting.list() {
        if text == "dynamic" {
            continue;
        }
        let network = text.parse().or_else(|_| text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from));
        let network = network.map_err(|_| setting.refuse("is not a list of networks such as 10.1.0.0/16"))?;
        selectors.push(TrafficSelector::network(network));
    }
    Ok(selectors)
}

impl Setting {
    fn list(&self) -> Vec<String> {
        self.value.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    }

    fn number<N: std::str::FromStr>(&self) -> Result<N, String> {
        self.value.parse().map_err(|_| self.refuse("is not a number in its range"))
    }

    fn switch(&self) -> Result<bool, String> {
        match self.value.as_str() {
            "yes" | "true" | "1" | "enabled" => Ok(true),
            "no" | "false" | "0" | "disabled" => Ok(false),
            _ => Err(self.refuse("is neither yes nor no")),
        }
    }

    /// A time; 0 is none.
    fn time_ns(&self) -> Result<Option<u64>, String> {
        let digits = self.value.trim_end_matches(['s', 'm', 'h', 'd']);
        let unit_s = match &self.value[digits.len()..] {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(self.refuse("is not a time such as 30s, 5m, 4h or 1d")),
        };
        let number: u64 = digits.parse().map_err(|_| self.refuse("is not a time such as 30s, 5m, 4h or 1d"))?;
        let time_ns = number.checked_mul(unit_s * SECOND_NS).ok_or(self.refuse("is too long"))?;
        Ok((time_ns > 0).then_some(time_ns))
    }

    /// A secret: text, `0x` with digits, or `0s` with Base64.
    fn secret_bytes(&self) -> Result<SecretBytes, String> {
        use base64::Engine;
        let hide = |what: &str| format!("swanctl.conf:{}: {} {what}", self.line, self.key);
        if let Some(digits) = self.value.strip_prefix("0x") {
            let digits: Option<Vec<u8>> =
                digits.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
            let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or(hide("is not hexadecimal after 0x"))?;
            return Ok(SecretBytes::new(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()));
        }
        if let Some(text) = self.value.strip_prefix("0s") {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            return bytes.map(SecretBytes::new).map_err(|_| hide("is not Base64 after 0s"));
        }
        Ok(SecretBytes::from(self.value.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
