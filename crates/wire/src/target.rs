//! Where a load goes: the destination with its address family and key, and the direction of the payload.

use serde::{Deserialize, Serialize};

use crate::iperf3_login::Iperf3Login;
use crate::iperf3_options::Iperf3Options;
use crate::schema::JsonSchema;

/// The destination of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// A name or an address (IPv6 without brackets).
    pub host: String,
    /// The port of the session protocol (tcp, udp, rr).
    pub port: u16,
    /// Only this family if the name has several addresses; the resolver's first if absent.
    pub ip_version: Option<IpVersion>,
    /// The key that the server asks for; none if absent.
    pub key: Option<SessionKey>,
    /// The login at an iperf3 server; none if absent.
    #[serde(default)]
    pub iperf3_login: Option<Box<Iperf3Login>>,
    /// What the test asks of an iperf3 server; nothing special if absent.
    #[serde(default)]
    pub iperf3_options: Option<Iperf3Options>,
}

/// A key that a server shares with its clients, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct SessionKey {
    /// The key's bytes in base64 (RFC 4648, section 4).
    pub base64: String,
}

impl std::fmt::Debug for SessionKey {
    /// Omits the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SessionKey(..)")
    }
}

/// A required address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IpVersion {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// The direction of the payload, as seen by the load's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
    /// Both at once: each of the `flows` exists once up and once down.
    Both,
}
