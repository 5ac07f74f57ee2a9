//! Parameters of an HTTP load and of the HTTP responder. Every specification is complete: an agent adds no defaults.
//! Keys, certificates, passwords and scripts are part of it; they travel over a pipe and are written to no file.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;
use crate::IpVersion;

/// HTTP/1.1 requests: each as soon as the previous response has arrived (closed loop), or at a rate (open loop) if
/// `rate` has stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSpec {
    /// The requests, at least one; all of one scheme, host and port. They are sent in turn, in proportion to their
    /// weights.
    pub requests: Vec<HttpRequest>,
    /// A wrk script that makes the requests instead; the only entry of `requests` is then its URL, method, header
    /// fields and body as given on the command line.
    pub script: Option<HttpScript>,
    /// Only this family if the name has several addresses.
    pub ip_version: Option<IpVersion>,
    /// Connections; with a rate the maximum.
    pub connections: u32,
    /// Threads that drive them; the connections are distributed evenly.
    pub threads: u32,
    /// CPUs that the threads are pinned to, in turn; no pinning if empty.
    pub cpus: Vec<u32>,
    /// Duration, ms, including the warm-up.
    pub duration_ms: u64,
    /// Requests, after which the task ends before `duration_ms`.
    pub number: Option<u64>,
    /// Leading time whose figures are kept but flagged, ms.
    pub warmup_ms: u64,
    /// Requests per second over all connections, in consecutive stages; each request is timed from when it was due. A
    /// closed loop if empty.
    pub rate: Vec<RateStage>,
    /// Requests after which a connection is closed and reopened; unlimited if absent. With 1, each request has
    /// `Connection: close`.
    pub requests_per_connection: Option<u64>,
    /// How many redirects to the same origin are followed; with 0 the redirect is the response.
    pub redirects: u32,
    /// Time limits of each phase.
    pub timeouts: HttpTimeouts,
    /// The way to the server.
    pub route: HttpRoute,
    /// Socket options.
    pub socket: SocketOptions,
    /// TLS, for `https` URLs.
    pub tls: Option<TlsSpec>,
    /// Time between `progress` events, ms.
    pub interval_ms: u32,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// `http://host[:port]/path` or `https://...`.
    pub url: String,
    /// Request method.
    pub method: String,
    /// Extra header fields, in order.
    pub headers: Vec<Header>,
    /// Request body, base64.
    pub body_base64: Option<String>,
    /// Its share of the turns, in proportion to all weights; at least 1.
    pub weight: u32,
}

/// One header field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A script for wrk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpScript {
    /// Its name in messages.
    pub name: String,
    /// Its text.
    pub source: String,
    /// The arguments after `--`.
    pub args: Vec<String>,
}

/// A stage of a load, during which its rate changes linearly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateStage {
    /// Requests per second at its beginning.
    pub from_per_s: f64,
    /// Requests per second at its end.
    pub to_per_s: f64,
    /// Duration, ms.
    pub duration_ms: u64,
}

/// Time limits of each phase of a connection or request; exceeding one is an error with the phase's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTimeouts {
    /// For TCP's, the proxy's and TLS's handshakes, each, ms.
    pub connect_ms: u32,
    /// From sending a request to its response's last byte, ms; then the connection is reopened.
    pub response_ms: u32,
}

/// The way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpRoute {
    /// Local addresses that connections use in turn; the system's choice if empty.
    pub bind: Vec<String>,
    /// Names with fixed addresses, which are not resolved.
    pub resolve: Vec<Resolution>,
    /// How often names are resolved.
    pub dns: DnsPolicy,
    /// Path of a Unix socket to connect to instead of the URL's host.
    pub unix_socket: Option<String>,
    /// `http://[user:password@]host:port` of a proxy: used by CONNECT for `https` URLs, by absolute targets for
    /// others.
    pub proxy: Option<String>,
}

/// An address for a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// The URL's host.
    pub host: String,
    /// The URL's port.
    pub port: u16,
    /// The address to connect to.
    pub address: String,
}

/// How often a name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DnsPolicy {
    /// Once, before the start.
    Run,
    /// For each connection.
    Connection,
}

/// Options of each TCP socket; absent ones are the system's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// Whether Nagle's algorithm holds small segments back (TCP_NODELAY unset).
    pub delay: bool,
    /// Congestion control by the kernel's name (TCP_CONGESTION).
    pub congestion: Option<String>,
    /// Send buffer, bytes (SO_SNDBUF).
    pub send_buffer_bytes: Option<u32>,
    /// Receive buffer, bytes (SO_RCVBUF).
    pub receive_buffer_bytes: Option<u32>,
    /// Largest segment, bytes (TCP_MAXSEG).
    pub segment_bytes: Option<u32>,
    /// Differentiated services code point, 0 to 63 (IP_TOS, IPV6_TCLASS).
    pub dscp: Option<u8>,
    /// How long sent bytes may stay unacknowledged, ms (TCP_USER_TIMEOUT).
    pub user_timeout_ms: Option<u32>,
    /// Whether the first request may travel with the SYN (TCP_FASTOPEN_CONNECT).
    pub fast_open: bool,
}

/// TLS as a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// Certificates to trust, PEM; the host's own if absent.
    pub ca_pem: Option<String>,
    /// The client's certificate.
    pub identity: Option<TlsIdentity>,
    /// The oldest version that is offered.
    pub oldest: TlsVersion,
    /// The newest version that is offered.
    pub newest: TlsVersion,
    /// Cipher suites by their IANA names; all that are considered safe if empty.
    pub cipher_suites: Vec<String>,
    /// Protocols that are offered (ALPN), in order.
    pub alpn: Vec<String>,
    /// The name that is sent (SNI) and verified; the URL's host if absent.
    pub server_name: Option<String>,
    /// Whether connections after the first resume its session.
    pub resumption: bool,
    /// Whether the first request of a resumed connection may be sent before the end of the handshake (0-RTT).
    pub early_data: bool,
}

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsIdentity {
    /// The certificate and its intermediate certificates, PEM.
    pub certificate_pem: String,
    /// The private key, PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for TlsIdentity {
    /// Omits the key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V1_3,
}

/// The responder's default response. The query of a request can set each field
/// (`?status=&size=&delay=&shape=&errors=&chunked=&close=`) except those that concern the whole server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Body, bytes.
    pub body_bytes: u64,
    /// Whether the body is sent in chunks.
    pub chunked: bool,
    /// Mean time before the response, µs.
    pub delay_us: u64,
    /// Distribution of that time.
    pub delay_shape: DelayShape,
    /// Share of the requests that are answered with 500 instead, evenly spread.
    pub error_ratio: f64,
    /// Responses after which a connection is closed; unlimited if absent.
    pub close_after: Option<u64>,
    /// Time between the beginnings of stalls of the whole server, ms; no stalls if absent.
    pub stall_every_ms: Option<u64>,
    /// Duration of a stall, ms.
    pub stall_ms: u64,
    /// The certificate for `https_port`; a self-signed one if absent.
    pub identity: Option<TlsIdentity>,
}

impl Default for HttpAnswer {
    /// Returns a response of 200 without delay, with a body of 12 bytes.
    fn default() -> Self {
        Self {
            status: 200,
            body_bytes: 12,
            chunked: false,
            delay_us: 0,
            delay_shape: DelayShape::Constant,
            error_ratio: 0.0,
            close_after: None,
            stall_every_ms: None,
            stall_ms: 0,
            identity: None,
        }
    }
}

/// The distribution of delays around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelayShape {
    /// Always the mean.
    Constant,
    /// Uniform from 0 to twice the mean.
    Uniform,
    /// Exponential.
    Exponential,
}
