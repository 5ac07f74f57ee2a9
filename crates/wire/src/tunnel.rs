//! A fleet of VPN clients: what it is told, and what it tells of each client.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{FailureCause, HttpRequest, RateStage};

/// OpenVPN clients by the thousand, without TUN devices: they connect, prove their tunnels, and carry load.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelSpec {
    /// The text of an `.ovpn` file; each file that it refers to is in it as an inline block.
    pub profile: String,
    /// Clients.
    pub clients: u32,
    /// Threads that drive them; the clients are dealt out evenly.
    pub threads: u32,
    /// Who the clients say they are to TLS.
    pub identities: TunnelIdentities,
    /// Users and passwords, dealt out in turn; the profile's own where empty.
    pub users: Vec<TunnelUser>,
    /// Local addresses that the clients' sockets are bound to in turn; the system's choice where empty.
    pub bind: Vec<String>,
    /// When the clients arrive: per-second rates in stages, which end when all have come; all at once where empty.
    pub arrivals: Vec<RateStage>,
    /// Clients, the first ones, that connect before the others. The arrivals begin when all of them are configured or have
    /// failed, and where there are pings once ten more of each, and a second, have passed: theirs show what arrivals do.
    pub settled: u32,
    /// How long the settled clients may take, ms: the fleet leaves where some are still on their way up then.
    pub settling_ms: u64,
    /// How long the fleet stays after the arrivals have begun, ms. It ends earlier once every client has ended its way up and
    /// nothing else is left to do.
    pub duration_ms: u64,
    /// How long one attempt to connect may take, from its first reset until its options are there, ms.
    pub attempt_ms: u32,
    /// How often a client that failed tries again, as the real one does: after 1 s, and twice as long each time up to 300 s.
    /// 0 leaves it failed.
    pub retries: u32,
    /// What every client must be given to count as configured.
    pub expect: TunnelExpectation,
    /// How long a client waits for the answer to its first data packet, ms, before it is `partial`. Where the attempt's time
    /// is not over then, an answer that comes within it still counts.
    pub first_data_ms: u32,
    /// Time between pings of each configured client, where some are settled of each of those, ms; none where absent.
    pub ping_ms: Option<u32>,
    /// How long pings go on after the last arrival has ended its way up, ms, where nothing else is left to do; until
    /// the duration is over where absent.
    pub pinged_ms: Option<u32>,
    /// What the connected fleet does later on.
    pub actions: Vec<TunnelAction>,
    /// Load through the tunnels, once all arrivals have ended their way up; none where absent.
    pub traffic: Option<TunnelTraffic>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
}

/// Certificates of the fleet's clients.
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
    /// Each client's own, made before the load begins; their keys are ECDSA P-256.
    #[schemars(title = "IssuedIdentities")]
    Issued {
        /// The authority's certificate, PEM.
        authority_pem: String,
        /// The authority's private key, PEM.
        authority_key_pem: String,
        /// Common names are this and the client's number.
        name_prefix: String,
    },
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

/// What a configured client has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelExpectation {
    /// Networks (CIDR) one of which holds each address that the client is given; any address where empty.
    pub pools: Vec<String>,
    /// Networks (CIDR) that must be pushed as routes.
    pub routes: Vec<String>,
    /// DNS servers that must be pushed.
    pub dns: Vec<String>,
    /// Options that must be pushed word for word.
    pub options: Vec<String>,
    /// Where the proving ICMP echo request goes inside of the tunnel; the server's end of it where absent.
    pub echo: Option<String>,
}

/// Something that clients do while they are connected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelAction {
    /// When, ms after the arrivals began.
    pub at_ms: u64,
    /// What.
    pub what: TunnelDeed,
    /// Over how long the clients do it one after another, ms; 0: all at once.
    pub over_ms: u64,
}

/// What connected clients can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelDeed {
    /// Leave without a word and connect anew from the same address, as the real client does: by a new socket.
    Reconnect,
    /// Negotiate new keys (soft reset).
    Renegotiate,
}

/// Load inside of the tunnels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TunnelTraffic {
    /// ICMP echo requests that the far end answers.
    #[schemars(title = "TunnelEcho")]
    Echo {
        /// To whom; the server's end of the tunnel where absent.
        to: Option<String>,
        /// IP packets per second and client.
        rate_pps: f64,
        /// Bytes of each IP packet.
        packet_bytes: u32,
        /// How long, ms.
        duration_ms: u64,
    },
    /// Numbered datagrams to a `leadline serve` behind the gateway, or from it.
    #[schemars(title = "TunnelUdp")]
    Udp {
        /// The server's address inside.
        host: String,
        /// Its session port.
        port: u16,
        /// Which way, as the client sees it.
        direction: crate::Direction,
        /// Datagrams per second and client; as fast as it goes where absent.
        rate_pps: Option<f64>,
        /// UDP payload, bytes.
        datagram_bytes: u32,
        /// How long, ms.
        duration_ms: u64,
        /// The key that the server asks for; none where absent.
        key: Option<crate::SessionKey>,
    },
    /// A TCP stream per client to or from a `leadline serve` behind the gateway.
    #[schemars(title = "TunnelTcp")]
    Tcp {
        /// The server's address inside.
        host: String,
        /// Its session port.
        port: u16,
        /// Which way, as the client sees it.
        direction: crate::Direction,
        /// How long, ms.
        duration_ms: u64,
        /// The key that the server asks for; none where absent.
        key: Option<crate::SessionKey>,
    },
    /// HTTP requests over one connection per client, one after another.
    #[schemars(title = "TunnelHttp")]
    Http {
        /// The request, the URL's host being an address inside.
        request: HttpRequest,
        /// Requests per second and client; the next follows the answer at once where absent.
        rate_per_s: Option<f64>,
        /// How long, ms.
        duration_ms: u64,
    },
}

/// What became of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelReport {
    /// One row per client.
    pub clients: Vec<TunnelClientReport>,
    /// One row per attempt, by client and number; of a client with very many the first one and the latest.
    #[serde(default)]
    pub attempts: Vec<TunnelAttemptReport>,
    /// Which sizes of packets get through the tunnel of a client most of whose load was lost, where only the short ones do.
    #[serde(default)]
    pub packet_sizes: Option<TunnelPacketSizes>,
    /// Options of the profile that mean nothing to a fleet, with their lines: `line 12: persist-tun`.
    pub ignored_options: Vec<String>,
    /// Peak of the agent's resident memory less what it held before the fleet was made, bytes.
    pub memory_bytes: Option<u64>,
}

/// Echo requests inside of a tunnel, by the length of their IP packets: all up to one are answered, and none from the next one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelPacketSizes {
    /// The longest that was answered, bytes.
    pub answered_bytes: u32,
    /// The next longer one, which was not, bytes.
    pub unanswered_bytes: u32,
}

/// How far a client's last attempt got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TunnelState {
    /// Never tried.
    #[default]
    Waiting,
    /// Ended without a tunnel.
    Failed,
    /// A tunnel came up, and something is missing in it.
    Partial,
    /// Everything is there, and a packet came back through the tunnel.
    Configured,
}

/// One client: its state, and when each step of its first successful attempt, else of its last one, was done.
/// Every `*_ns` is a time since `due_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelClientReport {
    /// Its number, from 0.
    pub client: u32,
    /// How it ended.
    pub state: TunnelState,
    /// Why it failed, or the first check that it missed, by name.
    pub cause: Option<FailureCause>,
    /// When the attempt was due, ns.
    pub due_ns: u64,
    /// When its first attempt was due, ns.
    pub first_due_ns: u64,
    /// Its first reset was sent.
    pub sent_ns: Option<u64>,
    /// The first answer to it came.
    pub answered_ns: Option<u64>,
    /// TLS's handshake was done.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys were there.
    pub keys_ns: Option<u64>,
    /// All pushed options were there.
    pub pushed_ns: Option<u64>,
    /// The first data packet came back.
    pub configured_ns: Option<u64>,
    /// Its last attempt failed, or that one's tunnel was lost; absent where the tunnel lasted until the fleet left.
    #[serde(default)]
    pub ended_ns: Option<u64>,
    /// The last packet of its server came.
    #[serde(default)]
    pub heard_ns: Option<u64>,
    /// Attempts, the first included.
    pub attempts: u32,
    /// Control packets that had to be sent again.
    pub retransmits: u32,
    /// Addresses that it was given.
    pub addresses: Vec<String>,
    /// The number that the server gave it.
    pub peer_id: Option<u32>,
    /// Its data cipher.
    pub cipher: Option<String>,
    /// Local address and port.
    pub local: Option<String>,
    /// Pings or datagrams sent and come back inside of the tunnel.
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
    /// An action told it to.
    Reconnect,
}

/// One attempt of one client. Every `*_ns` but `due_ns` is a time since `due_ns`, absent where the attempt did not get that far.
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
    /// Its first reset was sent.
    pub sent_ns: Option<u64>,
    /// The first answer to it came.
    pub answered_ns: Option<u64>,
    /// TLS's handshake was done.
    pub tls_ns: Option<u64>,
    /// Both halves of the keys were there.
    pub keys_ns: Option<u64>,
    /// All pushed options were there.
    pub pushed_ns: Option<u64>,
    /// The first data packet came back.
    pub configured_ns: Option<u64>,
    /// It failed, or its tunnel was lost or left; absent where the tunnel lasted until the fleet left.
    pub ended_ns: Option<u64>,
    /// Why it ended, or the first check that it missed, by name.
    pub cause: Option<FailureCause>,
    /// The server's address and port.
    pub server: String,
    /// Local address and port.
    pub local: Option<String>,
    /// Addresses that it was given.
    pub addresses: Vec<String>,
    /// The number that the server gave it.
    pub peer_id: Option<u32>,
}

impl std::fmt::Debug for TunnelSpec {
    /// All but the profile, which holds keys and a password inline.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Taken apart, so that no field that is new is forgotten.
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
    /// Names the kind; keys stay out of logs.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Profile {} => "Profile",
            Self::Given { .. } => "Given(..)",
            Self::Issued { .. } => "Issued(..)",
        })
    }
}

impl std::fmt::Debug for TunnelIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TunnelIdentity(..)")
    }
}

impl std::fmt::Debug for TunnelUser {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TunnelUser({:?}, ..)", self.user)
    }
}

/// OpenVPN's client and server machines back to back, without sockets: what the protocol itself costs here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CryptoSpec {
    /// Data ciphers by OpenVPN's names; with CBC ones, each of `digests`. `DES-EDE3-CBC` is measured bare only.
    pub ciphers: Vec<String>,
    /// HMACs by OpenVPN's names.
    pub digests: Vec<String>,
    /// Payload sizes, bytes.
    pub sizes: Vec<u32>,
    /// How long each figure is measured, ms.
    pub duration_ms: u64,
    /// Whether handshakes are measured too.
    pub handshakes: bool,
    /// Bytes that consecutive packets are spread over, so that the cache is not always hot.
    pub spread_bytes: u64,
}

/// One figure of the protocol's cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CryptoReport {
    /// What was measured: `seal`, `open`, `cipher` (bare), `hmac` (bare), `handshake` (both ends), and of it what
    /// `handshake_client` and `handshake_server` take.
    pub what: String,
    /// The cipher, with the digest where there is one: `AES-256-CBC+SHA256`; of a handshake, its settings.
    pub algorithm: String,
    /// Payload, bytes; absent for a handshake.
    pub bytes: Option<u32>,
    /// Operations that were measured.
    pub operations: u64,
    /// Time that they took together, ns of the thread's CPU.
    pub cpu_ns: u64,
    /// Time that they took together, ns.
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
