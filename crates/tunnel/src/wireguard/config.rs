//! The JSON configuration of one interface, parsed into validated types. An error is one line with the fault and its
//! place. The caller reads the file and checks its permissions.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use super::allowed::{AllowedAddresses, Conflict, Prefix};
use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// Maximum MTU: leaves room for the WireGuard, UDP and IPv6 headers in a 64 KiB datagram.
const MTU_MAX: u16 = u16::MAX - 80;
/// RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets or greater."
const MTU_MIN_V6: u16 = 1280;
/// RFC 791: every host must accept 576 octets.
const MTU_MIN_V4: u16 = 576;
/// `IFNAMSIZ` without its zero byte.
const NAME_MAX_BYTES: usize = 15;

/// One WireGuard interface.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the TUN device to create.
    pub interface: String,
    /// MTU of that device, in bytes of IP packet.
    pub mtu: u16,
    /// This side's private key.
    pub private_key: PrivateKey,
    /// UDP port to listen on; null lets the system choose.
    pub listen_port: Option<u16>,
    /// Local address to listen on; its family is the outer one.
    pub listen_address: IpAddr,
    /// Addresses of the TUN device.
    pub addresses: Vec<Prefix>,
    /// The peers that may communicate with this interface.
    pub peers: Vec<PeerConfig>,
    /// Whether packets pass through the kernel in batches (segmentation and receive offloads); on by default. When
    /// off, each datagram passes the outer network separately, and rules there count each one.
    #[serde(default = "yes")]
    pub offloads: bool,
}

/// One peer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// The peer's public key.
    pub public_key: PublicKey,
    /// The peer's address and port; null waits for the peer's first packet.
    pub endpoint: Option<SocketAddr>,
    /// Inner addresses that the peer may send from; packets to them are routed to the peer.
    pub allowed_ips: Vec<Prefix>,
    /// The key that this peer shares with this interface, if there is one.
    #[serde(default)]
    pub preshared_key: Option<PresharedKey>,
    /// Interval of keepalives, seconds; null sends none. With keepalives, the first handshake starts immediately.
    pub keepalive_s: Option<u16>,
}

/// Why a configuration is invalid; the message is one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid JSON, an unknown or missing key, or a value of the wrong type. The message has line and column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A value that is not allowed.
    #[error("{field}: {what}")]
    Value {
        /// The key in the file, such as `peers[2].endpoint`.
        field: String,
        /// The fault, and a correct value.
        what: String,
    },
    /// Two peers with the same prefix.
    #[error("{0}")]
    Conflict(#[from] Conflict),
}

impl Config {
    /// Parses the JSON text and validates all values.
    ///
    /// # Errors
    /// The first fault, in one line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_json::from_str(text)?;
        config.check_interface()?;
        config.check_peers()?;
        AllowedAddresses::new(config.peers.iter().map(|peer| peer.allowed_ips.as_slice()))?;
        Ok(config)
    }

    fn check_interface(&self) -> Result<(), ConfigError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let name = &self.interface;
        if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(plain) || name.starts_with('.') {
            let what = format!("`{name}` is not an interface name (1 to {NAME_MAX_BYTES} of a-z A-Z 0-9 - _ .)");
            return Err(value("interface", what));
        }
        let six = self.addresses.iter().any(|prefix| prefix.address.is_ipv6());
        let least = if six { MTU_MIN_V6 } else { MTU_MIN_V4 };
        if !(least..=MTU_MAX).contains(&self.mtu) {
            return Err(value("mtu", format!("{} is not within {least} to {MTU_MAX}", self.mtu)));
        }
        if self.addresses.is_empty() {
            return Err(value("addresses", "at least one address is required, such as 10.83.0.1/16".to_string()));
        }
        Ok(())
    }

    fn check_peers(&self) -> Result<(), ConfigError> {
        let own = self.private_key.public();
        let mut known_keys = HashMap::new();
        for (number, peer) in self.peers.iter().enumerate() {
            let field = |name: &str| format!("peers[{number}].{name}");
            if peer.public_key == own {
                return Err(value(field("public_key"), "is this interface's own key".to_string()));
            }
            if let Some(first) = known_keys.insert(peer.public_key, number) {
                return Err(value(field("public_key"), format!("is already the key of peers[{first}]")));
            }
            let Some(endpoint) = peer.endpoint else { continue };
            if endpoint.is_ipv4() != self.listen_address.is_ipv4() {
                let what =
                    format!("{endpoint} does not have the address family of listen_address {}", self.listen_address);
                return Err(value(field("endpoint"), what));
            }
            if endpoint.port() == 0 || endpoint.ip().is_unspecified() {
                return Err(value(field("endpoint"), format!("{endpoint} is not a valid destination")));
            }
        }
        Ok(())
    }
}

fn yes() -> bool {
    true
}

fn value(field: impl Into<String>, what: String) -> ConfigError {
    ConfigError::Value { field: field.into(), what }
}

/// Implements `Deserialize` for types that are parsed from a string.
macro_rules! deserialize_from_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::try_from(text).map_err(serde::de::Error::custom)
            }
        }
    )*};
}
deserialize_from_text!(PrivateKey, PublicKey, PresharedKey, Prefix);

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{
  "interface": "wg0", "mtu": 1420,
  "private_key": "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=",
  "listen_port": 51820, "listen_address": "0.0.0.0",
  "addresses": ["10.83.0.1/16", "fd83::1/64"],
  "peers": [
    {"public_key": "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "endpoint": null,
     "allowed_ips": ["10.83.0.2/32", "fd83::2/128"], "keepalive_s": null}
  ]
}"#;

    fn complaint(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        Config::parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn specified_config_is_parsed() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.addresses[1].to_string(), "fd83::1/64");
        assert_eq!((config.peers[0].endpoint, config.offloads), (None, true));
        assert!(!format!("{config:?}").contains("dwdtCnMY"));
    }

    #[test]
    fn config_error_is_one_line_with_its_place() {
        assert_eq!(
            complaint("\"mtu\"", "\"mtuu\""),
            "unknown field `mtuu`, expected one of `interface`, `mtu`, `private_key`, `listen_port`, `listen_address`, \
             `addresses`, `peers`, `offloads` at line 2 column 28"
        );
        for (from, to, expected) in [
            ("LCo=", "", "a key is 32 bytes in base64, and this is 30 bytes at line 3"),
            ("LCo=", "?", "and this is not base64 at line 3"),
            ("10.83.0.1/16", "10.83.0.1/40", "`10.83.0.1/40` is not ADDRESS/LENGTH"),
            ("1420", "1200", "mtu: 1200 is not within 1280 to 65455"),
            ("wg0", "wg/0", "interface: `wg/0` is not an interface name"),
            (
                "\"endpoint\": null",
                "\"endpoint\": \"[fd81::1]:5\"",
                "peers[0].endpoint: [fd81::1]:5 does not have the address family",
            ),
            (
                "\"endpoint\": null",
                "\"endpoint\": \"10.0.0.1:0\"",
                "peers[0].endpoint: 10.0.0.1:0 is not a valid destination",
            ),
            ("3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", "own key"),
        ] {
            let message = complaint(from, to);
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n') && !message.contains("dwdtCnMY"), "{message}");
        }
    }
}
