//! What the life of a VPN client (`client`) has to know of its protocol: a `Protocol` begins sessions, and a `Session`
//! is one attempt with its tunnel, as a machine without I/O and without a clock. Owns the interface and its values;
//! OpenVPN implements it in `openvpn::fleet`, WireGuard in `wireguard::client`, IKEv2 in `ikev2::fleet`.
//!
//! The driver passes each datagram to `handle` and calls `poll` until it returns `Wait`; it calls `poll` again at
//! `deadline_ns`. Data passes through `send` and `handle` without `poll`.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::client::assigned_config::AssignedConfig;
use crate::client::server::Server;
use crate::secret::Secret;

/// A protocol with its settings, which all clients of a fleet share.
pub trait Protocol: Send + Sync {
    /// Begins an attempt of a client; `poll` returns its first packet. `token` is what the server of an earlier
    /// attempt issued.
    fn begin(&self, client: u32, token: Option<Token>, now_ns: u64) -> Box<dyn Session>;

    /// The steps of an attempt, in order.
    fn steps(&self) -> &'static [Step];
}

/// One attempt of a client, and its tunnel.
pub trait Session: Send {
    /// Handles one packet from the socket, over a stream without its length. Data is opened in place, or into `space`,
    /// which all clients of a thread share.
    fn handle<'p>(&'p mut self, now_ns: u64, packet: &'p mut [u8], space: &'p mut Vec<u8>) -> Received<'p>;

    /// Returns the next action. `out` is cleared, and filled if it returns `Send`.
    fn poll(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Output;

    /// When `poll` has work, ns: immediately if in the past; `None` if it only waits for packets. It changes with every
    /// call; reading it costs little.
    fn deadline_ns(&self) -> Option<u64>;

    /// Seals an IP packet for the tunnel and appends it to `out`.
    ///
    /// # Errors
    /// The tunnel is not up, or its keys are used up.
    fn send(&mut self, now_ns: u64, packet: &[u8], out: &mut Vec<u8>) -> Result<(), NotUp>;

    /// Negotiates new keys, if the tunnel is up and no negotiation is in progress.
    fn renegotiate(&mut self, now_ns: u64);

    /// Ends the tunnel; the protocol's exit notification, if it has one, follows from `poll`.
    fn leave(&mut self, now_ns: u64);

    /// The configuration that the server, or the client's file, has assigned; `None` before the tunnel is up.
    /// `mtu` is the MTU of the fleet's settings.
    fn assigned(&self, server: Server, mtu: Option<u16>) -> Option<AssignedConfig>;

    /// What came with it; `None` before the tunnel is up.
    fn granted(&self) -> Option<&dyn Granted>;

    /// What the server issued in place of the password, for the next attempt.
    fn token(&self) -> Option<Token> {
        None
    }

    /// Whether a packet of `poll` is the first one of an attempt, or its repetition.
    fn is_first_packet(&self, packet: &[u8]) -> bool;

    /// Number of retransmitted control packets.
    fn retransmits(&self) -> u32;

    /// The counters of received packets.
    fn counters(&self) -> Counters;

    /// When the last authenticated packet of the server arrived, ns; `None` if there was none.
    fn last_received_ns(&self) -> Option<u64>;

    /// The name of the failure if the attempt ended now: the step that it waits for.
    fn stuck_at(&self) -> &'static str;
}

/// What a client got besides its addresses.
pub trait Granted {
    /// Whether the network is routed into the tunnel.
    fn has_route(&self, route: &IpNet) -> bool;

    /// Whether the address is a DNS server of the tunnel.
    fn has_dns(&self, server: &IpAddr) -> bool;

    /// Whether the option was assigned with exactly this text.
    fn has_option(&self, text: &str) -> bool;

    /// An option that cannot be read.
    fn malformed(&self) -> Option<&str>;
}

/// The caller's next action.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the packet in the buffer.
    Send,
    /// An event.
    Event(Event),
    /// Wait for a packet, or until this time, ns.
    Wait(Option<u64>),
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A step of the attempt is done.
    Step(Step),
    /// The configuration is complete with this step; data can be sent.
    Up(Step),
    /// This end uses new keys. The server may still refuse them: `RenewalAccepted` or `RenewalRefused` follows unless
    /// the server stays silent.
    Renewed,
    /// The server has accepted the newest keys.
    RenewalAccepted,
    /// The server refused the client in a renewal; `Failed` follows.
    RenewalRefused,
    /// A renewal failed; the tunnel continues with its keys.
    RenewalFailed,
    /// The server changed the configuration of a running tunnel.
    Updated,
    /// The server asks for more time.
    Pending {
        /// How long the client waits, ns.
        until_ns: u64,
    },
    /// The server asked the client to prove its address by a cookie before it does more.
    CookieAsked,
    /// The tunnel is up in part and stays so: data cannot pass, for this reason.
    Incomplete(Failure),
    /// The session is over.
    Failed(Failure),
}

/// A step of an attempt. Each protocol has some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server answered the first packet.
    Answered,
    /// The TLS handshake ended.
    Tls,
    /// Both halves of the keys are known.
    Keys,
    /// All pushed options are known.
    Pushed,
    /// The two ends have authenticated each other: the IKE SA is up.
    IkeUp,
    /// The server assigned an address.
    IpAssigned,
    /// The keys of the data channel are in use: a child SA, or WireGuard's session.
    ChildUp,
}

/// Why a client could not connect or lost its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stable name of the counter.
    pub name: &'static str,
    /// Further details; may be empty.
    pub detail: String,
}

/// The content of a received packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'p> {
    /// An IP packet from the tunnel.
    Payload(&'p mut [u8]),
    /// A control packet: `poll` may have output.
    Control,
    /// Nothing to do: a keepalive, a duplicate, or an invalid packet. It is counted.
    Nothing,
}

/// The error of sending data before the tunnel is up, or after its keys are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tunnel is not up")]
pub struct NotUp;

/// Counters of received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Opened data packets, including keepalives.
    pub opened: u64,
    /// Data packets that are repeated, or too late to be checked for that.
    pub replayed: u64,
    /// Packets that could not be authenticated, or that belong to no session here.
    pub rejected: u64,
    /// Received keepalives.
    pub pings: u64,
}

/// A server's token, which replaces user and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Sent as the user.
    pub user: String,
    /// Sent as the password.
    pub secret: Secret,
}
