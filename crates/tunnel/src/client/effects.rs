//! What a client's machine wants done, as traits that its driver implements: the socket, the figures, the fleet. The agent's worker
//! carries the effects out at once; a test records them. Nothing here allocates: what is sealed goes straight into the driver's
//! buffer.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use super::assigned_config::AssignedConfig;
use super::phase::Phase;
use super::server::Server;

/// Where a client's figures go.
pub trait Figures {
    /// The counts of the driver's clients.
    fn counts(&mut self) -> &mut Counts;

    /// Record one duration of something that was due at `due_ns`.
    fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64);

    /// Which time of the fleet's arrivals an instant belongs to.
    fn arrival_time(&self, at_ns: u64) -> ArrivalTime;
}

/// Where packets go that come out of a tunnel.
pub trait Inbox: Figures {
    /// Take a packet of the client's traffic.
    fn deliver(&mut self, arrived_ns: u64, packet: &[u8]);

    /// Replies to packets of the batch that is being received, packet behind packet; sent when the batch is over.
    fn replies(&mut self) -> &mut Vec<u8>;
}

/// The client's socket.
pub trait Socket {
    /// Open a socket towards a server, unless one is open. UDP is usable at once; TCP is once `Input::Connected` says so.
    ///
    /// # Errors
    /// The system's.
    fn connect(&mut self, server: Server) -> Result<(), SocketError>;

    /// Close the socket.
    fn close(&mut self, manner: Close);

    /// The local address and port.
    fn local(&self) -> Option<SocketAddr>;

    /// Send one control packet, and return when the socket took it, ns. Without a socket nothing is sent.
    ///
    /// # Errors
    /// The socket's.
    fn send_control(&mut self, packet: &mut Vec<u8>) -> Result<u64, SocketError>;

    /// Put a data packet that `seal` appends to the outgoing buffer; returns whether it will be sent. `flush` tells of errors.
    fn send_data<E>(&mut self, seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> bool;

    /// Send what is in the outgoing buffer.
    fn flush(&mut self) -> Flushed;
}

/// Everything that a client's machine wants done.
pub trait Effects: Figures {
    /// The client's socket.
    fn socket(&mut self) -> &mut impl Socket;

    /// The driver's buffers. A method takes what it needs and puts it back.
    fn scratch(&mut self) -> &mut Scratch;

    /// The client went on to another phase.
    fn entered(&mut self, from: Phase, to: Phase);

    /// An attempt failed, or a check was missed: `name` is counted, and `detail` is kept as its example.
    fn failed(&mut self, name: &'static str, detail: &str);

    /// The client's arrival is over for the first time, configured or not.
    fn arrival_ended(&mut self, at_ns: u64);

    /// Claim addresses and number for this client; returns the check that is missed where another client holds one of them.
    fn claim(&mut self, assigned: &AssignedConfig, now_ns: u64) -> Option<&'static str>;

    /// Give back what was claimed. `heard_ns`: when the server was last heard.
    fn release(&mut self, assigned: &AssignedConfig, heard_ns: Option<u64>);

    /// The client's traffic cannot go on.
    fn break_traffic(&mut self, name: &'static str, detail: &'static str);

    /// The socket refused this many packets after it had taken them.
    fn packets_refused(&mut self, packets: u64);

    /// Since when configured clients ping, ns; `None` while they do not.
    fn pings_since_ns(&self) -> Option<u64>;
}

/// Buffers that one driver lends to all its clients.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A control packet.
    pub control: Vec<u8>,
    /// A packet that goes into a tunnel.
    pub packet: Vec<u8>,
    /// Replies to packets that came out of a tunnel, packet behind packet.
    pub replies: Vec<u8>,
}

/// How a socket is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// In the transport's own way.
    Orderly,
    /// Without a farewell: TCP sends a reset, so that its port is free at once.
    Silent,
}

/// What came of the outgoing buffer.
#[derive(Debug, Default)]
pub struct Flushed {
    /// Packets that the socket refused after `send_data` had said that they would be sent.
    pub refused: u64,
    /// The error of the socket.
    pub error: Option<SocketError>,
}

/// A socket's error.
#[derive(Debug)]
pub struct SocketError {
    /// What it means to the client.
    pub kind: SocketErrorKind,
    /// The name that it is counted under.
    pub code: &'static str,
    /// The system's words.
    pub error: io::Error,
}

/// What a socket's error means to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketErrorKind {
    /// The server closed the connection.
    Closed,
    /// The stream cannot be told apart into packets.
    Malformed,
    /// The server's host has no socket at that port.
    Refused,
    /// Anything else.
    Other,
}

impl SocketError {
    /// The system's error, under the name that it is counted by.
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

/// The durations that clients record. All are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// From when an arrival's attempt was due until it was configured.
    Connect,
    /// From its first reset to the first answer.
    Answer,
    /// From there to the end of the TLS handshake.
    Tls,
    /// From there until both halves of the keys were there.
    Keys,
    /// From there until all pushed options were there.
    Push,
    /// From there until the first echo reply.
    FirstData,
    /// As `Connect`, of attempts that the action `reconnect` made.
    Reconnect,
    /// From a client's first failure until it was configured after all.
    Recovered,
    /// From when new keys were due to be negotiated until they were there.
    Renegotiate,
    /// From when an attempt was due until its first reset was sent.
    Late,
    /// Round trips of pings that were sent before the unsettled clients arrived.
    PingBefore,
    /// The same while they arrived.
    PingDuring,
    /// The same once they had.
    PingAfter,
    /// From when a ping was due until it was sent.
    PingLate,
}

/// The number of metrics.
pub const METRICS: usize = 14;

/// A time of the fleet's arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalTime {
    /// No unsettled client was due.
    Before,
    /// Some were due, and not all had ended their arrival.
    During,
    /// All had.
    After,
}

/// What is counted of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts that were begun.
    pub attempts: u64,
    /// First packets of attempts, repeated ones included.
    pub resets_sent: u64,
    /// Control packets that were sent again, of the attempts that are over.
    pub retransmits: u64,
    /// Clients that failed and were configured after all.
    pub recovered: u64,
    /// Clients that failed and came back `partial`.
    pub recovered_partial: u64,
    /// Clients that were configured and lost their tunnel without having been told to leave it.
    pub lost: u64,
    /// Attempts of clients that were told to connect again.
    pub reconnects_begun: u64,
    /// Keys that were renewed and not refused afterwards.
    pub renegotiated: u64,
    /// Renewals that clients were told to make.
    pub renewals_asked: u64,
    /// Of these, the ones that are not done and not given up.
    pub renewals_pending: u32,
    /// Renewals that clients were told to make and that were not done before their tunnel ended.
    pub renewals_unfinished: u64,
    /// Negotiations of new keys that came to nothing, begun by either side: the server refused the client, or the tunnel goes on with
    /// the former keys.
    pub renewals_failed: u64,
    /// `AUTH_PENDING` messages received.
    pub auth_pending: u64,
    /// Changes of pushed options in running tunnels.
    pub updated: u64,
    /// Of these, the ones that gave a client what another one has.
    pub shared_later: u64,
    /// Actions of clients that had no tunnel when the action was due, or were still renewing keys that they were to renew.
    pub actions_skipped: u64,
    /// Datagrams that the server's host refused although their client had been answered before.
    pub refused: u64,
    /// Other errors of sockets that ended nothing.
    pub socket_errors: u64,
    /// Packets that could not be opened: wrong keys, foreign packets, noise.
    pub rejected: u64,
    /// Packets that came twice.
    pub replayed: u64,
    /// Pings.
    pub pings: PingCounts,
}

/// What is counted of pings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingCounts {
    /// Pings that were sent.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
    /// Pings that were due and not sent: the one before went out later than this one was due, or the tunnel or its socket took none.
    pub unsent: u64,
    /// Sent and answered, by [`ArrivalTime`].
    pub by_time: [(u64, u64); 3],
    /// When the last ping was sent, ns.
    pub last_ns: Option<u64>,
}
