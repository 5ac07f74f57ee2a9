//! The specification of a task. Every specification is complete: an agent adds no defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::iperf3_login::Iperf3Users;
use crate::schema::JsonSchema;
use crate::{
    CryptoSpec, Direction, EmulateSpec, HttpAnswer, HttpSpec, PacketGeneratorSpec, PacketReceiverSpec, ScenarioSpec,
    SessionKey, StreamOptions, Target, TunnelSpec,
};

/// The kind of a task and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workload {
    /// Answers `tcp`, `udp`, `rr` and `http` load until stopped.
    #[schemars(title = "ServeWorkload")]
    Serve(Box<ServeSpec>),
    /// Bulk TCP.
    #[schemars(title = "TcpWorkload")]
    Tcp(Box<TcpSpec>),
    /// Paced, numbered datagrams.
    #[schemars(title = "UdpWorkload")]
    Udp(UdpSpec),
    /// Request and response, one outstanding per flow.
    #[schemars(title = "RrWorkload")]
    Rr(RrSpec),
    /// HTTP/1.1 requests.
    #[schemars(title = "HttpWorkload")]
    Http(Box<HttpSpec>),
    /// Virtual users that execute a scenario over HTTP.
    #[schemars(title = "ScenarioWorkload")]
    Scenario(Box<ScenarioSpec>),
    /// A fleet of VPN clients.
    #[schemars(title = "TunnelWorkload")]
    Tunnel(Box<TunnelSpec>),
    /// The CPU cost of a VPN's protocol in memory.
    #[schemars(title = "CryptoWorkload")]
    Crypto(CryptoSpec),
    /// A child process: a daemon under test, or a VPN client.
    #[schemars(title = "ProcessWorkload")]
    Process(ProcessSpec),
    /// Call stacks of processes of the agent, or of the agent itself, until stopped.
    #[schemars(title = "ProfileWorkload")]
    Profile(ProfileSpec),
    /// A command that undoes a change to the host when the agent ends, unless it was taken back.
    #[schemars(title = "UndoWorkload")]
    Undo(UndoSpec),
    /// A link with a rate, a delay and faults, between two interfaces, until stopped.
    #[schemars(title = "EmulateWorkload")]
    Emulate(EmulateSpec),
    /// A generator of frames on an interface.
    #[schemars(title = "PacketGeneratorWorkload")]
    PacketGenerator(Box<PacketGeneratorSpec>),
    /// A receiver of frames on an interface.
    #[schemars(title = "PacketReceiverWorkload")]
    PacketReceiver(Box<PacketReceiverSpec>),
}

/// The resources that one peer of a server may use. A peer is an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerLimits {
    /// Sessions at once.
    pub sessions: u32,
    /// Flows at once, over all of its sessions; a bidirectional flow counts twice.
    pub flows: u32,
    /// HTTP connections at once.
    pub connections: u32,
    /// A connection to the session port is closed if it has not asked for a session after this time; so is a session
    /// that waits for its flows and receives nothing for this time, ms.
    pub idle_ms: u64,
    /// Payload rate that one session may ask for, over all of its flows, bit/s; unlimited if absent.
    pub rate_bps: Option<u64>,
}

impl Default for PeerLimits {
    /// Returns limits that allow a fleet of 4096 clients in its sessions of 64, and half of the responder's
    /// connections.
    fn default() -> Self {
        Self { sessions: 64, flows: 4096, connections: 32_768, idle_ms: 10_000, rate_bps: None }
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Bulk TCP: `flows` connections, each as fast as possible or at `rate_bps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TcpSpec {
    /// The server.
    pub target: Target,
    /// Connections.
    pub flows: u32,
    /// Threads that drive them; the flows are distributed evenly.
    pub threads: u32,
    /// The direction.
    pub direction: Direction,
    /// Duration, ms, including the warm-up.
    pub duration_ms: u64,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Bytes per write and per read call.
    pub block_bytes: u32,
    /// Payload rate per flow, bits per second; unlimited if absent.
    pub rate_bps: Option<u64>,
    /// Congestion control by the kernel's name; the host's default if absent.
    pub congestion: Option<String>,
    /// Local address.
    pub bind: Option<String>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
    /// The server's program.
    #[serde(default)]
    pub peer: PeerProgram,
    /// How both ends set up and use their sockets; with their hosts' defaults if absent.
    #[serde(default)]
    pub options: Option<StreamOptions>,
    /// A file whose bytes this end sends again and again, instead of the payload of the options; upward only.
    #[serde(default)]
    pub payload_file: Option<String>,
}

/// The server's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeerProgram {
    /// Leadline's own server.
    #[default]
    Leadline,
    /// A real `iperf3 -s`.
    Iperf3,
}

/// Paced, sequence-numbered datagrams; loss, reordering, duplicates and jitter are counted on arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UdpSpec {
    /// The server.
    pub target: Target,
    /// Flows, each with its own socket.
    pub flows: u32,
    /// Threads that drive them.
    pub threads: u32,
    /// The direction.
    pub direction: Direction,
    /// Duration, ms, including the warm-up.
    pub duration_ms: u64,
    /// Datagrams per flow, after which it ends before `duration_ms`.
    pub number: Option<u64>,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// UDP payload, bytes, at least the measurement header.
    pub datagram_bytes: u32,
    /// Datagrams per second and flow; as fast as the socket accepts them if absent.
    pub rate_pps: Option<f64>,
    /// Local address.
    pub bind: Option<String>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
    /// The server's program.
    #[serde(default)]
    pub peer: PeerProgram,
    /// Whether datagrams pass the kernel in batches (UDP_SEGMENT and UDP_GRO) on both ends; if absent, those of flows
    /// without a rate do.
    pub gso: Option<bool>,
    /// UDP payloads in turn, instead of `datagram_bytes`, which is then the largest of them; one size if absent.
    pub sizes: Option<Vec<SizeShare>>,
    /// The differentiated services code point of all datagrams of the flows, 0 to 63; the host's default if absent.
    pub dscp: Option<u8>,
    /// The send and the receive buffers of both ends, bytes (SO_SNDBUF, SO_RCVBUF), as far as the host allows; large ones if
    /// absent.
    pub window_bytes: Option<u32>,
}

/// One of the sizes of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// UDP payload, bytes.
    pub bytes: u32,
    /// How many of each round of the mix have this size.
    pub count: u32,
}

/// Request-response: each flow keeps one transaction outstanding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RrSpec {
    /// The server.
    pub target: Target,
    /// Over TCP or UDP.
    pub protocol: Protocol,
    /// Connections, or UDP sockets.
    pub flows: u32,
    /// Threads that drive them.
    pub threads: u32,
    /// Duration, ms, including the warm-up.
    pub duration_ms: u64,
    /// Transactions over all flows, after which the task ends before `duration_ms`.
    pub number: Option<u64>,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Request payload, bytes.
    pub request_bytes: u32,
    /// Response payload, bytes.
    pub response_bytes: u32,
    /// Time after which a transaction counts as the error `timeout`, ms.
    pub timeout_ms: u32,
    /// Local address.
    pub bind: Option<String>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
    /// Whether each transaction has a new connection, or over UDP a new source port.
    #[serde(default)]
    pub connect: bool,
    /// Transactions that each flow may have outstanding.
    #[serde(default = "one_at_a_time")]
    pub outstanding: u32,
    /// Transactions per second and flow, due by schedule; if absent, each follows an answer.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// Whether the client's threads poll without sleeping.
    #[serde(default)]
    pub busy_poll: bool,
    /// The differentiated services code point of requests and responses, 0 to 63; the host's default if absent.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// Time between the histograms of `progress` events, ms; a second if absent.
    #[serde(default)]
    pub histogram_interval_ms: Option<u32>,
}

fn one_at_a_time() -> u32 {
    1
}

/// Listeners that answer every workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSpec {
    /// Addresses to bind to; each gets every listener.
    pub bind: Vec<String>,
    /// Port of the session protocol, TCP and UDP; 0 selects a free one; none if absent.
    pub port: Option<u16>,
    /// Port of the HTTP responder; 0 selects a free one; none if absent.
    pub http_port: Option<u16>,
    /// Port of the responder over TLS; 0 selects a free one; none if absent.
    pub https_port: Option<u16>,
    /// The default response, unless a request's query changes it.
    pub answer: HttpAnswer,
    /// Threads of the responder; one per CPU if absent.
    pub threads: Option<u32>,
    /// The longest test that a client may ask for, ms.
    pub longest_ms: u64,
    /// The maximum number of flows per direction that one session may ask for.
    pub most_flows: u32,
    /// The key that sessions have to prove; none if absent. HTTP has no key.
    pub key: Option<SessionKey>,
    /// Limits per peer; the defaults if absent.
    pub per_peer: Option<PeerLimits>,
    /// The users that it lets measure with iperf3; all clients if absent, and with a key none.
    #[serde(default)]
    pub iperf3_users: Option<Iperf3Users>,
}

/// A child process of the agent. It dies with the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// The label of its samples.
    pub name: String,
    /// Program (looked up in PATH) and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: Option<String>,
    /// Variables added to the agent's environment.
    pub env: BTreeMap<String, String>,
    /// File that its stdout and stderr are appended to; discarded if absent.
    pub log: Option<String>,
    /// Lines of its output that contain one of these become `output` events.
    pub report: Vec<String>,
    /// Time that a stopped process may take after SIGTERM before it is killed, ms.
    pub grace_ms: u32,
}

/// A command that undoes a change to the host: it runs when the agent ends, for whatever reason, after everything else
/// that the agent started has ended. Several run one after another, the newest first. The agent answers `prepared` once
/// nothing but the end of the host can keep it from running. A `stop` that names the task takes it back; one for all
/// tasks of a trial does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoSpec {
    /// Program (looked up in PATH) and arguments. It is run even if the change was never made.
    pub argv: Vec<String>,
    /// Time after which it is killed, ms; at most 60,000.
    pub within_ms: u32,
}

/// Samples of call stacks, taken by perf(1) on a software clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// The names of process tasks of this agent, or `agent` for the agent itself. At least one of them has to run.
    pub processes: Vec<String>,
    /// Samples per second of CPU time.
    pub frequency_hz: u32,
}
