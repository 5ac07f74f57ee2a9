//! A fleet of VPN clients: its parameters, and its report on each client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;
use crate::{FailureCause, HttpRequest, RateStage};

/// Thousands of VPN clients without TUN devices: they connect, verify their tunnels, and carry load.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelSpec {
    /// The text of an `.ovpn` file, with each file that it refers to as an inline block, or of a swanctl.conf; empty if
    /// `identities` are WireGuard's files.
    pub profile: String,
    /// Clients.
    pub clients: u32,
    /// Threads that drive them; the clients are distributed evenly.
    pub threads: u32,
    /// The certificates of the clients, or their files; this selects the protocol.
    pub identities: TunnelIdentities,
    /// Users and passwords, assigned in turn; the profile's own if empty.
    pub users: Vec<TunnelUser>,
    /// Local addresses that the clients' sockets are bound to in turn; the system's choice if empty.
    pub bind: Vec<String>,
    /// Arrivals of the clients: per-second rates in stages, which end when all have arrived; all at once if empty.
    pub arrivals: Vec<RateStage>,
    /// Number of clients, the first ones, that connect before the others. The arrivals begin when all of them are
    /// configured or have failed and, with pings, after ten more pings of each and at least a second. Their pings
    /// show the effect of the arrivals.
    pub settled: u32,
    /// Time limit of the settled clients, ms: the fleet leaves if some of them are still connecting then.
    pub settling_ms: u64,
    /// Time that the fleet stays after the arrivals have begun, ms. It ends earlier once every client is connected or
    /// has failed and no other work is left.
    pub duration_ms: u64,
    /// Time limit of one attempt to connect, from its first reset until its options have arrived, ms.
    pub attempt_ms: u32,
    /// How often a client that failed tries again, like the real client: after 1 s, and after twice as long each
    /// time, up to 300 s. With 0 it stays failed.
    pub retries: u32,
    /// What the server has to push to every client for it to count as configured.
    pub expect: TunnelExpectation,
    /// Time that a client waits for the response to its first data packet, ms, before it is `partial`. While the
    /// attempt's time is not over, a later response still counts.
    pub first_data_ms: u32,
    /// Time between pings of each configured client, or of each settled one if there are any, ms; no pings if absent.
    pub ping_ms: Option<u32>,
    /// How long pings continue after the last arrival is connected or has failed, ms, if no other work is left; until
    /// the duration is over if absent.
    pub pinged_ms: Option<u32>,
    /// Scheduled actions of the connected fleet.
    pub actions: Vec<TunnelAction>,
    /// Load through the tunnels, once every arrival is connected or has failed; none if absent.
    pub traffic: Option<TunnelTraffic>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
}

/// Certificates of the fleet's OpenVPN clients, or the files of its WireGuard clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum TunnelIdentities {
    /// The profile's certificate, or none, for every client.
    #[schemars(title = "ProfileIdentity")]
    Profile {},
    /// One for each client, in turn.
    #[schemars(title = "GivenIdentities")]
    Given {
        /// Certificate chain and private key, PEM, one text for each client.
        identities: Vec<TunnelIdentity>,
    },
    /// A separate one for each client, created before the load begins; their keys are ECDSA P-256.
    #[schemars(title = "IssuedIdentities")]
    Issued {
        /// The authority's certificate, PEM.
        authority_pem: String,
        /// The authority's private key, PEM.
        authority_key_pem: String,
        /// The prefix of common names, before the client's number.
        name_prefix: String,
    },
    /// A WireGuard file for each client, all with one gateway.
    #[schemars(title = "WireguardFiles")]
    Wireguard {
        /// The files; client n has file n.
        files: Vec<TunnelFile>,
    },
    /// Connections of IKEv2: `profile` is the text of a swanctl.conf, in which `{n}` becomes each client's number.
    #[schemars(title = "Ikev2Connections")]
    Ikev2 {
        /// The connection's name; the only one if absent.
        connection: Option<String>,
        /// The certificates and keys beside it, by their paths: `x509/client0.pem`, `private/client0.pem`.
        files: Vec<TunnelFile>,
    },
}

/// One client's file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text, as `wg-quick` reads it.
    pub text: String,
}

/// One client's certificate.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelIdentity {
    /// The chain, its own first, PEM.
    pub certificate_pem: String,
    /// Its private key, PEM.
    pub key_pem: String,
}

/// A user of `auth-user-pass`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelUser {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// What the server has to push to a configured client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelExpectation {
    /// Networks (CIDR) that hold each address assigned to the client; any address if empty.
    pub pools: Vec<String>,
    /// Networks (CIDR) that must be pushed as routes.
    pub routes: Vec<String>,
    /// DNS servers that must be pushed.
    pub dns: Vec<String>,
    /// Options that must be pushed literally.
    pub options: Vec<String>,
    /// Destination of the verifying ICMP echo request inside the tunnel; the server's end of it if absent.
    pub echo: Option<String>,
}

/// A scheduled action of connected clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelAction {
    /// When, ms after the arrivals began.
    pub at_ms: u64,
    /// The action.
    pub what: TunnelActionKind,
    /// Time over which the clients perform it one after another, ms; 0: all at once.
    pub over_ms: u64,
}

/// An action of a connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelActionKind {
    /// Leaves without notice and reconnects from the same address by a new socket, like the real client.
    Reconnect,
    /// Negotiates new keys (soft reset).
    Renegotiate,
}

/// Load through the tunnels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TunnelTraffic {
    /// ICMP echo requests that the far end answers.
    #[schemars(title = "TunnelEcho")]
    Echo {
        /// Destination; the server's end of the tunnel if absent.
        to: Option<String>,
        /// IP packets per second and client.
        rate_pps: f64,
        /// Bytes of each IP packet.
        packet_bytes: u32,
        /// Duration, ms.
        duration_ms: u64,
    },
    /// Numbered datagrams to a `leadline serve` behind the gateway, or from it.
    #[schemars(title = "TunnelUdp")]
    Udp {
        /// The server's address inside.
        host: String,
        /// Its session port.
        port: u16,
        /// Direction, as the client sees it.
        direction: crate::Direction,
        /// Datagrams per second and client; as fast as possible if absent.
        rate_pps: Option<f64>,
        /// UDP payload, bytes.
        datagram_bytes: u32,
        /// Duration, ms.
        duration_ms: u64,
        /// The key that the server asks for; none if absent.
        key: Option<crate::SessionKey>,
    },
    /// A TCP stream per client to or from a `leadline serve` behind the gateway.
    #[schemars(title = "TunnelTcp")]
    Tcp {
        /// The server's address inside.
        host: String,
        /// Its session port.
        port: u16,
        /// Direction, as the client sees it.
        direction: crate::Direction,
        /// Duration, ms.
        duration_ms: u64,
        /// The key that the server asks for; none if absent.
        key: Option<crate::SessionKey>,
    },
    /// HTTP requests over one connection per client, one after another.
    #[schemars(title = "TunnelHttp")]
    Http {
        /// The request; the URL's host is an address inside the tunnel.
        request: HttpRequest,
        /// Requests per second and client; each follows the previous response at once if absent.
        rate_per_s: Option<f64>,
        /// Duration, ms.
        duration_ms: u64,
    },
}

/// The report of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelReport {
    /// One row per client.
    pub clients: Vec<TunnelClientReport>,
    /// One row per attempt, by client and number; for a client with very many, the first one and the latest.
    #[serde(default)]
    pub attempts: Vec<TunnelAttemptReport>,
    /// Packet sizes that pass the tunnel of a client that lost most of its load, if only short ones pass.
    #[serde(default)]
    pub packet_sizes: Option<TunnelPacketSizes>,
    /// Options of the profile that have no meaning for a fleet, with their lines: `line 12: persist-tun`.
    pub ignored_options: Vec<String>,
    /// Peak of the agent's resident memory minus its memory before the fleet was created, bytes.
    pub memory_bytes: Option<u64>,
}

/// Echo requests inside a tunnel, by the length of their IP packets: all up to one length are answered, and none from
/// the next one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelPacketSizes {
    /// The longest answered length, bytes.
    pub answered_bytes: u32,
    /// The next longer length, which was not answered, bytes.
    pub unanswered_bytes: u32,
}

/// The result of a client's last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelState {
    /// Never tried.
    #[default]
    Waiting,
    /// Ended without a tunnel.
    Failed,
    /// A tunnel was established, and a check failed.
    Partial,
    /// All checks passed, and a packet came back through the tunnel.
    Configured,
}

/// One client: its state, and the time of each step of its first successful attempt, else of its last one. Every
/// `*_ns` is a time since `due_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelClientReport {
    /// Its number, from 0.
    pub client: u32,
    /// Its end state.
    pub state: TunnelState,
    /// Why it failed, or the first check that it missed, by name.
    pub cause: Option<FailureCause>,
    /// When the attempt was due, ns.
    pub due_ns: u64,
    /// When its first attempt was due, ns.
    pub first_due_ns: u64,
    /// Its first packet was sent.
    pub sent_ns: Option<u64>,
    /// The first response to it arrived.
    pub answered_ns: Option<u64>,
    /// The TLS handshake was done.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys had arrived.
    pub keys_ns: Option<u64>,
    /// All pushed options had arrived.
    pub pushed_ns: Option<u64>,
    /// The two ends had authenticated each other: the IKE SA was up.
    #[serde(default)]
    pub ike_up_ns: Option<u64>,
    /// The gateway had assigned an address by IKE.
    #[serde(default)]
    pub ip_assigned_ns: Option<u64>,
    /// The data channel had keys: a child SA, or WireGuard's session.
    #[serde(default)]
    pub child_up_ns: Option<u64>,
    /// The first data packet came back.
    pub configured_ns: Option<u64>,
    /// Its last attempt failed, or the tunnel of that attempt was lost; absent if the tunnel lasted until the fleet
    /// left.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// The last packet of its server arrived.
    #[serde(default)]
    pub heard_ns: Option<u64>,
    /// Attempts, the first included.
    pub attempts: u32,
    /// Control packets that were retransmitted.
    pub retransmits: u32,
    /// Addresses assigned to it.
    pub addresses: Vec<String>,
    /// The peer id that the server assigned.
    pub peer_id: Option<u32>,
    /// Its data cipher.
    pub cipher: Option<String>,
    /// Local address and port.
    pub local: Option<String>,
    /// Pings or datagrams sent and received through the tunnel.
    pub inside: BTreeMap<String, u64>,
}

/// Why an attempt was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelOccasion {
    /// The client arrived.
    #[default]
    Arrival,
    /// It had failed, or lost its tunnel.
    Retry,
    /// A scheduled action made it reconnect.
    Reconnect,
}

/// One attempt of one client. Every `*_ns` except `due_ns` is a time since `due_ns`, absent if the attempt did not
/// complete the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelAttemptReport {
    /// The client's number, from 0.
    pub client: u32,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// Why it was made.
    pub occasion: TunnelOccasion,
    /// When it was due, ns.
    pub due_ns: u64,
    /// Its first packet was sent.
    pub sent_ns: Option<u64>,
    /// The first response to it arrived.
    pub answered_ns: Option<u64>,
    /// The TLS handshake was done.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys had arrived.
    pub keys_ns: Option<u64>,
    /// All pushed options had arrived.
    pub pushed_ns: Option<u64>,
    /// The two ends had authenticated each other: the IKE SA was up.
    #[serde(default)]
    pub ike_up_ns: Option<u64>,
    /// The gateway had assigned an address by IKE.
    #[serde(default)]
    pub ip_assigned_ns: Option<u64>,
    /// The data channel had keys: a child SA, or WireGuard's session.
    #[serde(default)]
    pub child_up_ns: Option<u64>,
    /// The first data packet came back.
    pub configured_ns: Option<u64>,
    /// It failed, or its tunnel was lost or left; absent if the tunnel lasted until the fleet left.
    pub ended_ns: Option<u64>,
    /// Why it ended, or the first check that it missed, by name.
    pub cause: Option<FailureCause>,
    /// The server's address and port.
    pub server: String,
    /// Local address and port.
    pub local: Option<String>,
    /// Addresses assigned to it.
    pub addresses: Vec<String>,
    /// The peer id that the server assigned.
    pub peer_id: Option<u32>,
}

impl std::fmt::Debug for TunnelSpec {
    /// Omits the profile, which holds keys and a password inline.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Destructured, so that the compiler reports a new field that is missing here.
        let Self {
            profile,
            clients,
            threads,
            identities,
            users,
            bind,
            arrivals,
            settled,
            settling_ms,
            duration_ms,
            attempt_ms,
            retries,
            expect,
            first_data_ms,
            ping_ms,
            pinged_ms,
            actions,
            traffic,
            interval_ms,
        } = self;
        formatter
            .debug_struct("TunnelSpec")
            .field("profile", &format_args!("({} bytes)", profile.len()))
            .field("clients", clients)
            .field("threads", threads)
            .field("identities", identities)
            .field("users", users)
            .field("bind", bind)
            .field("arrivals", arrivals)
            .field("settled", settled)
            .field("settling_ms", settling_ms)
            .field("duration_ms", duration_ms)
            .field("attempt_ms", attempt_ms)
            .field("retries", retries)
            .field("expect", expect)
            .field("first_data_ms", first_data_ms)
            .field("ping_ms", ping_ms)
            .field("pinged_ms", pinged_ms)
            .field("actions", actions)
            .field("traffic", traffic)
            .field("interval_ms", interval_ms)
            .finish()
    }
}

impl std::fmt::Debug for TunnelIdentities {
    /// Prints the kind; keys stay out of logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Profile {} => "Profile",
            Self::Given { .. } => "Given(..)",
            Self::Issued { .. } => "Issued(..)",
            Self::Wireguard { .. } => "Wireguard(..)",
            Self::Ikev2 { .. } => "Ikev2(..)",
        })
    }
}

impl std::fmt::Debug for TunnelIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TunnelIdentity(..)")
    }
}

impl std::fmt::Debug for TunnelFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TunnelFile({:?}, ..)", self.name)
    }
}

impl std::fmt::Debug for TunnelUser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TunnelUser({:?}, ..)", self.user)
    }
}

/// OpenVPN's client and server machines back to back, without sockets: the CPU cost of the protocol itself on this
/// host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CryptoSpec {
    /// Data ciphers by OpenVPN's names; CBC ciphers with each of `digests`. `DES-EDE3-CBC` is measured bare only.
    pub ciphers: Vec<String>,
    /// HMACs by OpenVPN's names.
    pub digests: Vec<String>,
    /// Payload sizes, bytes.
    pub sizes: Vec<u32>,
    /// Measuring time of each figure, ms.
    pub duration_ms: u64,
    /// Whether handshakes are measured too.
    pub handshakes: bool,
    /// Memory over which consecutive packets are spread, bytes, so that the cache is not always warm.
    pub spread_bytes: u64,
}

/// One figure of the protocol's cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CryptoReport {
    /// The measured operation: `seal`, `open`, `cipher` (bare), `hmac` (bare), `handshake` (both ends), and its parts
    /// `handshake_client` and `handshake_server`.
    pub what: String,
    /// The cipher, with the digest if there is one: `AES-256-CBC+SHA256`; for a handshake, its settings.
    pub algorithm: String,
    /// Payload, bytes; absent for a handshake.
    pub bytes: Option<u32>,
    /// Number of operations.
    pub operations: u64,
    /// Their total CPU time in the thread, ns.
    pub cpu_ns: u64,
    /// Their total wall-clock time, ns.
    pub wall_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_in_debug_output() {
        let spec = TunnelSpec {
            profile: "<key>\nSECRET-KEY\n</key>".into(),
            clients: 3,
            threads: 1,
            identities: TunnelIdentities::Issued {
                authority_pem: "certificate".into(),
                authority_key_pem: "SECRET-AUTHORITY".into(),
                name_prefix: "client".into(),
            },
            users: vec![TunnelUser { user: "eve".into(), password: "SECRET-WORD".into() }],
            bind: Vec::new(),
            arrivals: Vec::new(),
            settled: 0,
            settling_ms: 0,
            duration_ms: 1000,
            attempt_ms: 60_000,
            retries: 0,
            expect: TunnelExpectation::default(),
            first_data_ms: 1000,
            ping_ms: None,
            pinged_ms: None,
            actions: Vec::new(),
            traffic: None,
            interval_ms: 100,
        };
        let text = format!("{:?}", crate::Workload::Tunnel(Box::new(spec)));
        assert!(!text.contains("SECRET"), "{text}");
        assert!(text.contains("profile: (23 bytes)") && text.contains("clients: 3") && text.contains("eve"), "{text}");
    }
}
