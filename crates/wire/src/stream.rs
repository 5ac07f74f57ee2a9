//! Byte streams over TCP: the options of a flow's socket, what it sends and how, and the kernel's figures of it.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// How both ends set up and use the sockets of a byte stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamOptions {
    /// The rate at which the sender's kernel paces each flow (SO_MAX_PACING_RATE), bit/s; its own choice if absent.
    pub pacing_bps: Option<u64>,
    /// Size of the send and of the receive buffer (SO_SNDBUF, SO_RCVBUF), bytes; the kernel sizes them if absent.
    pub window_bytes: Option<u32>,
    /// The largest segment's payload (TCP_MAXSEG), bytes; from the path's MTU if absent.
    pub mss_bytes: Option<u32>,
    /// Whether Nagle's algorithm may hold back small segments.
    pub nagle: bool,
    /// The differentiated services code point of both ends' packets, 0 to 63; the host's default if absent.
    pub dscp: Option<u8>,
    /// Whether the flows are MPTCP connections.
    pub mptcp: bool,
    /// The bytes that senders send.
    pub payload: StreamPayload,
    /// How senders pass bytes to the kernel.
    pub send: SendMethod,
    /// What receivers do with bytes that have arrived.
    pub receive: ReceiveMethod,
    /// The bytes of all flows of one direction together, after which the test ends; only its duration ends it if absent.
    pub total_bytes: Option<u64>,
}

impl StreamOptions {
    /// The host's defaults, zeros, and plain reads and writes.
    pub const DEFAULT: Self = Self {
        pacing_bps: None,
        window_bytes: None,
        mss_bytes: None,
        nagle: false,
        dscp: None,
        mptcp: false,
        payload: StreamPayload::Zeros,
        send: SendMethod::Write,
        receive: ReceiveMethod::Copy,
        total_bytes: None,
    };
}

/// The bytes that a sender sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamPayload {
    /// Zeros.
    #[default]
    Zeros,
    /// Bytes that cannot be compressed.
    Random,
    /// Of each 1024 bytes, this percentage is one repeated byte; the others are random.
    Repeated(u8),
}

/// How a sender passes bytes to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendMethod {
    /// The kernel copies them.
    #[default]
    Write,
    /// MSG_ZEROCOPY: the kernel sends the sender's memory, unless the path needs a copy.
    Zerocopy,
    /// The kernel sends a file's pages.
    Sendfile,
}

/// What a receiver does with bytes that have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveMethod {
    /// Copies them to its memory, as applications do.
    #[default]
    Copy,
    /// Lets the kernel discard them (MSG_TRUNC).
    Discard,
}

/// The kernel's figures of one end of a flow, from its TCP_INFO; unknown ones are absent. Means are of samples, at least
/// ten a second with up to 64 flows per thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpReport {
    /// Samples.
    pub samples: u64,
    /// The shortest round-trip time before the first byte of the test, µs: that of an idle path.
    pub rtt_idle_us: Option<f64>,
    /// The shortest round-trip time of the connection, µs.
    pub rtt_min_us: Option<f64>,
    /// Mean of the smoothed round-trip time, µs.
    pub rtt_mean_us: Option<f64>,
    /// Its longest sample, µs.
    pub rtt_max_us: Option<f64>,
    /// Mean of the round-trip time's variance, µs.
    pub rtt_variance_us: Option<f64>,
    /// Mean of the congestion window, bytes.
    pub congestion_window_bytes: Option<f64>,
    /// Mean of the pacing rate, bit/s.
    pub pacing_bps: Option<f64>,
    /// Mean of the delivery rate, bit/s.
    pub delivery_bps: Option<f64>,
    /// Time with data to send or under way, s.
    pub busy_s: Option<f64>,
    /// Part of it in which the peer's window was full, s.
    pub receiver_limited_s: Option<f64>,
    /// Part of it in which the send buffer was too small, s.
    pub send_buffer_limited_s: Option<f64>,
    /// Payload bytes sent during the test, retransmitted ones included.
    pub sent_bytes: Option<u64>,
    /// Payload bytes retransmitted during the test.
    pub retransmitted_bytes: Option<u64>,
    /// Payload of a full segment, bytes.
    pub mss_bytes: Option<u64>,
    /// Size of the send buffer at the end, bytes, as the kernel counts it.
    pub send_buffer_bytes: Option<u64>,
    /// Size of the receive buffer at the end, bytes, as the kernel counts it.
    pub receive_buffer_bytes: Option<u64>,
    /// Of a receiver: mean of its estimate of the round-trip time, µs.
    pub receive_rtt_us: Option<f64>,
    /// Of a receiver: mean of the window that it announced, bytes.
    pub receive_window_bytes: Option<f64>,
    /// Of a receiver: segments that arrived before one with a lower sequence number.
    pub out_of_order: Option<u64>,
    /// Sends by MSG_ZEROCOPY that are complete.
    pub zerocopy_sends: Option<u64>,
    /// Those that the kernel copied after all.
    pub zerocopy_copied: Option<u64>,
    /// Sends that went by sendfile instead, because the kernel had no room for another completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zerocopy_fallbacks: Option<u64>,
}
