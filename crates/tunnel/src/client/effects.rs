//! The actions of a client's machine, as traits that its driver implements: socket, figures, fleet. The agent's
//! worker performs them immediately; a test records them. Nothing here allocates: packets are sealed directly into
//! the driver's buffer.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::assigned_config::AssignedConfig;
use super::phase::Phase;
use super::server::Server;

/// The receiver of a client's figures.
pub trait Figures {
    /// The counts of the driver's clients.
    fn counts(&mut self) -> &mut Counts;

    /// Records one duration of an operation that was due at `due_ns`.
    fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64);

    /// The time of the fleet's arrivals to which an instant belongs.
    fn arrival_time(&self, at_ns: u64) -> ArrivalTime;
}

/// The receiver of packets from a tunnel.
pub trait Inbox: Figures {
    /// Delivers a packet of the client's traffic.
    fn deliver(&mut self, arrived_ns: u64, packet: &[u8]);

    /// Replies to packets of the current batch, concatenated; they are sent at the end of the batch.
    fn replies(&mut self) -> &mut Vec<u8>;

    /// Space for one opened packet. Its user takes it and puts it back.
    fn space(&mut self) -> &mut Vec<u8>;
}

/// The client's socket.
pub trait Socket {
    /// Opens a socket to a server, unless one is open. UDP is usable immediately, TCP after `Input::Connected`.
    ///
    /// # Errors
    /// The system's error.
    fn connect(&mut self, server: Server) -> Result<(), SocketError>;

    /// Closes the socket.
    fn close(&mut self, manner: Close);

    /// The local address and port.
    fn local(&self) -> Option<SocketAddr>;

    /// Sends one control packet; returns when the socket took it, ns. Without a socket nothing is sent.
    ///
    /// # Errors
    /// The socket's error.
    fn send_control(&mut self, packet: &mut Vec<u8>) -> Result<u64, SocketError>;

    /// Appends a data packet, which `seal` writes, to the outgoing buffer; returns whether it will be sent. `flush`
    /// reports errors.
    fn send_data<E>(&mut self, seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> bool;

    /// Sends the outgoing buffer.
    fn flush(&mut self) -> Flushed;
}

/// All actions of a client's machine.
pub trait Effects: Figures {
    /// The client's socket.
    fn socket(&mut self) -> &mut impl Socket;

    /// The driver's buffers. A method takes a buffer and puts it back.
    fn scratch(&mut self) -> &mut Scratch;

    /// The client entered another phase.
    fn entered(&mut self, from: Phase, to: Phase);

    /// An attempt or a check failed: `name` is counted, and `detail` is stored as its example.
    fn failed(&mut self, name: &'static str, detail: &str);

    /// The client's arrival has ended for the first time, configured or not.
    fn arrival_ended(&mut self, at_ns: u64);

    /// Claims addresses and peer id for this client; returns the name of the failed check if another client holds one
    /// of them.
    fn claim(&mut self, assigned: &AssignedConfig, now_ns: u64) -> Option<&'static str>;

    /// Releases the claim. `heard_ns` is when the server was last heard.
    fn release(&mut self, assigned: &AssignedConfig, heard_ns: Option<u64>);

    /// Stops the client's traffic, which cannot continue.
    fn break_traffic(&mut self, name: &'static str, detail: &'static str);

    /// Reports that the socket refused this many packets after it had taken them.
    fn packets_refused(&mut self, packets: u64);

    /// Since when configured clients ping, ns; `None` while they do not.
    fn pings_since_ns(&self) -> Option<u64>;
}

/// Buffers that a driver shares between all its clients.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A control packet.
    pub control: Vec<u8>,
    /// A packet for a tunnel.
    pub packet: Vec<u8>,
    /// Replies to packets from a tunnel, concatenated.
    pub replies: Vec<u8>,
    /// An opened packet.
    pub space: Vec<u8>,
}

/// How to close a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// With the transport's normal close.
    Orderly,
    /// Without notification: TCP sends a reset, so that the port is free immediately.
    Silent,
}

/// The result of sending the outgoing buffer.
#[derive(Debug, Default)]
pub struct Flushed {
    /// Packets that the socket refused although `send_data` had returned that they would be sent.
    pub refused: u64,
    /// The socket's error.
    pub error: Option<SocketError>,
}

/// An error of a socket.
#[derive(Debug)]
pub struct SocketError {
    /// The effect on the client.
    pub kind: SocketErrorKind,
    /// The name of the error's counter.
    pub code: &'static str,
    /// The system's error.
    pub error: io::Error,
}

/// The effect of a socket's error on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketErrorKind {
    /// The server closed the connection.
    Closed,
    /// The stream contains an invalid packet length.
    Malformed,
    /// The server's host has no socket at that port.
    Refused,
    /// Anything else.
    Other,
}

impl SocketError {
    /// Creates an error with the name of its counter.
    pub fn new(code: &'static str, error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                SocketErrorKind::Closed
            }
            io::ErrorKind::InvalidData => SocketErrorKind::Malformed,
            io::ErrorKind::ConnectionRefused => SocketErrorKind::Refused,
            _ => SocketErrorKind::Other,
        };
        Self { kind, code, error }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

/// The durations that clients record, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// From the time when an arrival's attempt was due until it was configured.
    Connect,
    /// From the first reset to the first response.
    Answer,
    /// From the first response to the end of the TLS handshake.
    Tls,
    /// From the end of the TLS handshake until both halves of the keys were known.
    Keys,
    /// From the keys until all pushed options were known.
    Push,
    /// From the first answer until both ends had authenticated each other (the IKE SA).
    IkeUp,
    /// From the IKE SA until the server assigned an address.
    IpAssigned,
    /// From the step before, in WireGuard from the first initiation, until the data channel's keys were in use.
    ChildUp,
    /// From the complete configuration until the first echo reply.
    FirstData,
    /// As `Connect`, for attempts of the action `reconnect`.
    Reconnect,
    /// From a client's first failure until it was configured.
    Recovered,
    /// From the time when a renegotiation was due until the new keys were known.
    Renegotiate,
    /// From the time when an attempt was due until its first reset was sent.
    Late,
    /// Round trips of pings that were sent before the unsettled clients arrived.
    PingBefore,
    /// Round trips of pings while they arrived.
    PingDuring,
    /// Round trips of pings after all had arrived.
    PingAfter,
    /// From the time when a ping was due until it was sent.
    PingLate,
}

/// The number of metrics.
pub const METRICS: usize = 17;

/// A part of the fleet's arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalTime {
    /// No unsettled client was due.
    Before,
    /// Some were due, and not all had ended their arrival.
    During,
    /// All had ended their arrival.
    After,
}

/// The counts of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts begun.
    pub attempts: u64,
    /// First packets of attempts, including repetitions.
    pub resets_sent: u64,
    /// Retransmitted control packets of ended attempts.
    pub retransmits: u64,
    /// Clients that failed and were configured later.
    pub recovered: u64,
    /// Clients that failed and were `partial` later.
    pub recovered_partial: u64,
    /// Configured clients that lost their tunnel without an order to drop it.
    pub lost: u64,
    /// Attempts after an order to reconnect.
    pub reconnects_begun: u64,
    /// Renewed keys that the server did not refuse.
    pub renegotiated: u64,
    /// Renewals ordered by an action.
    pub renewals_asked: u64,
    /// Ordered renewals that are neither done nor abandoned.
    pub renewals_pending: u32,
    /// Ordered renewals that were not done before their tunnel ended.
    pub renewals_unfinished: u64,
    /// Failed negotiations of new keys, begun by either side: the server refused the client, or the tunnel continues
    /// with the former keys.
    pub renewals_failed: u64,
    /// `AUTH_PENDING` messages received.
    pub auth_pending: u64,
    /// Cookies received: the server asked clients to prove their addresses.
    pub cookies_received: u64,
    /// Changes of pushed options in running tunnels.
    pub updated: u64,
    /// Option changes that gave a client what another one has.
    pub shared_later: u64,
    /// Actions of clients that had no tunnel when the action was due, or were still renewing keys.
    pub actions_skipped: u64,
    /// Datagrams that the server's host refused although it had answered their client before.
    pub refused: u64,
    /// Other socket errors that ended nothing.
    pub socket_errors: u64,
    /// Packets that could not be opened: wrong keys, foreign packets, noise.
    pub rejected: u64,
    /// Packets that arrived twice.
    pub replayed: u64,
    /// The counts of pings.
    pub pings: PingCounts,
}

/// The counts of pings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingCounts {
    /// Pings sent.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
    /// Pings that were due and not sent: the previous one was sent after this one was due, or the tunnel or its
    /// socket took none.
    pub unsent: u64,
    /// Pings sent and answered, by [`ArrivalTime`].
    pub by_time: [(u64, u64); 3],
    /// When the last ping was sent, ns.
    pub last_ns: Option<u64>,
}
