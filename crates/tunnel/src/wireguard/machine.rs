//! Many peers behind one UDP port. Owns which peer a datagram or packet belongs to, each peer's endpoint, and when
//! timers are due.
//!
//! Each call takes one input and the space for one output, and allocates nothing within a session (boringtun copies a
//! packet that waits for a handshake). Call `poll` after every other call until it returns `Wait`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use boringtun::x25519;

use super::allowed::{AllowedAddresses, Conflict};
use super::config::PeerConfig;
use super::counters::Counters;
use super::keys::{PrivateKey, PublicKey};
use super::message;
use super::peer::{Peer, Step, QUEUE_MAX_PACKETS};

/// Overhead of a data message, bytes: type, receiver, counter and authentication tag.
pub const OVERHEAD_BYTES: usize = 32;
/// Minimum output space, bytes: the size of a handshake initiation.
pub const SPACE_MIN_BYTES: usize = 148;

/// Interval of the peers' timer checks, ns. The timers count in seconds, and each check wakes the process.
const TICK_NS: u64 = 250_000_000;
/// Handshake messages per second above which initiators must prove their address with a cookie. A handshake takes
/// about 0.25 ms, so this limit is a quarter of a core; a thousand clients of a load test can arrive at the same
/// time.
const HANDSHAKES_PER_S: u64 = 1000;
/// The paper, section 6.5: Reject-After-Messages, 2^64 - 2^13 - 1.
pub const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// boringtun uses the lower eight bits of an index for sessions, and the bits above for the peer's number.
const INDEX_SESSION_BITS: u32 = 8;
/// The rest of 32 bits is for peers.
const PEERS_MAX: usize = 1 << (32 - INDEX_SESSION_BITS);

/// The caller's next action. The bytes are at the start of the caller's space.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<'a> {
    /// No action for this input.
    Nothing,
    /// Send a datagram to a peer.
    Send {
        /// The peer's endpoint.
        to: SocketAddr,
        /// UDP payload.
        datagram: &'a mut [u8],
    },
    /// Deliver an IP packet to the host.
    Deliver {
        /// The packet, from its IP header on.
        packet: &'a mut [u8],
    },
    /// Returned by `poll` only: nothing to do before this time (monotonic ns) unless there is input.
    Wait {
        /// When to call `poll` again.
        until_ns: u64,
    },
}

/// Why a machine cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Two peers with the same prefix.
    #[error("{0}")]
    Conflict(#[from] Conflict),
    /// Two peers with the same key.
    #[error("public key {0} is assigned to two peers")]
    SameKey(PublicKey),
    /// More peers than receiver indices.
    #[error("{0} peers are more than {PEERS_MAX}")]
    TooManyPeers(usize),
}

/// One WireGuard interface: a private key, its peers, and their sessions.
pub struct Machine {
    private: x25519::StaticSecret,
    public: x25519::PublicKey,
    limiter: RateLimiter,
    peers: Vec<Peer>,
    by_key: HashMap<PublicKey, usize>,
    allowed: AllowedAddresses,
    counters: Counters,
    /// The peer whose waiting packets can be sent now.
    flushing: Option<usize>,
    /// The next peer of this round of timer checks; the number of peers at the end of a round.
    ticking: usize,
    /// When the peers' timers are checked next, ns; at the beginning at once. Always set.
    next_tick_ns: u64,
}

impl Machine {
    /// Creates the interface; nothing is sent before the first `poll`.
    ///
    /// # Errors
    /// Peers with the same key or prefix, or too many peers.
    pub fn new(private_key: &PrivateKey, peers: &[PeerConfig]) -> Result<Self, SetupError> {
        if peers.len() > PEERS_MAX {
            return Err(SetupError::TooManyPeers(peers.len()));
        }
        let private = private_key.0.clone();
        let public = x25519::PublicKey::from(&private);
        // boringtun checks each datagram against its tunnel's limiter, but the peer is only known after a costly
        // Diffie-Hellman. So the real limit is applied before the lookup, and all tunnels share a limiter without a
        // limit.
        let unlimited = Arc::new(RateLimiter::new(&public, u64::MAX));
        let mut by_key = HashMap::with_capacity(peers.len());
        let mut made = Vec::with_capacity(peers.len());
        for (number, peer) in peers.iter().enumerate() {
            if by_key.insert(peer.public_key, number).is_some() {
                return Err(SetupError::SameKey(peer.public_key));
            }
            made.push(Peer::new(&private, peer, number as u32, &unlimited));
        }
        Ok(Self {
            limiter: RateLimiter::new(&public, HANDSHAKES_PER_S),
            allowed: AllowedAddresses::new(peers.iter().map(|peer| peer.allowed_ips.as_slice()))?,
            ticking: made.len(),
            peers: made,
            private,
            public,
            by_key,
            counters: Counters::default(),
            flushing: None,
            next_tick_ns: 0,
        })
    }

    /// Changes the limit of handshake messages per second above which initiators must prove their address with a
    /// cookie.
    pub fn with_handshake_limit(mut self, per_s: u64) -> Self {
        self.limiter = RateLimiter::new(&self.public, per_s);
        self
    }

    /// The sums since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A peer's last known or configured endpoint.
    pub fn endpoint(&self, peer: usize) -> Option<SocketAddr> {
        self.peers.get(peer).and_then(|peer| peer.endpoint)
    }

    /// Handles a datagram from the network. `space` must hold `datagram.len()` and `SPACE_MIN_BYTES`.
    pub fn handle_datagram<'a>(&mut self, from: SocketAddr, datagram: &[u8], space: &'a mut [u8]) -> Output<'a> {
        if space.len() < datagram.len().max(SPACE_MIN_BYTES) {
            self.counters.dropped.no_space += 1;
            return Output::Nothing;
        }
        let number = match self.peer_of(from, datagram, space) {
            Ok(number) => number,
            Err(Step::Send(length)) => return Output::Send { to: from, datagram: &mut space[..length] },
            Err(_) => return Output::Nothing,
        };
        let kind = datagram[0];
        match Step::from(self.peers[number].tunnel.decapsulate(None, datagram, space)) {
            Step::Done if kind == message::DATA => {
                self.counters.keepalives_received += 1;
                self.authenticated(number, from, kind);
                Output::Nothing
            }
            Step::Done => {
                self.counters.cookies_received += 1;
                Output::Nothing
            }
            Step::Send(length) => {
                // A response answers an initiation, and a keepalive answers a response: in both cases keys exist now.
                self.counters.handshakes += 1;
                self.counters.keepalives_sent += u64::from(kind == message::RESPONSE);
                self.authenticated(number, from, kind);
                Output::Send { to: from, datagram: &mut space[..length] }
            }
            Step::Deliver(length, source) => {
                self.authenticated(number, from, kind);
                // The paper, section 2: the source must "resolve to the peer" by the same table, or the packet is dropped.
                if self.allowed.peer(source) != Some(number) {
                    self.counters.dropped.forbidden_source += 1;
                    return Output::Nothing;
                }
                self.counters.received.add(length);
                Output::Deliver { packet: &mut space[..length] }
            }
            Step::Failed(error) => {
                *self.counters.dropped.cause(&error) += 1;
                Output::Nothing
            }
        }
    }

    /// Handles an IP packet from the host. `space` must hold `packet.len() + OVERHEAD_BYTES` and `SPACE_MIN_BYTES`.
    pub fn handle_packet<'a>(&mut self, packet: &[u8], space: &'a mut [u8]) -> Output<'a> {
        let dropped = &mut self.counters.dropped;
        if space.len() < (packet.len() + OVERHEAD_BYTES).max(SPACE_MIN_BYTES) {
            dropped.no_space += 1;
            return Output::Nothing;
        }
        let Some(destination) = Tunn::dst_address(packet) else {
            dropped.not_ip += 1;
            return Output::Nothing;
        };
        let Some(number) = self.allowed.peer(destination) else {
            dropped.no_peer += 1;
            return Output::Nothing;
        };
        let peer = &mut self.peers[number];
        let Some(to) = peer.endpoint else {
            dropped.no_endpoint += 1;
            return Output::Nothing;
        };
        match Step::from(peer.tunnel.encapsulate(packet, space)) {
            Step::Send(length) if space[0] == message::DATA => {
                self.counters.sent.add(packet.len());
                Output::Send { to, datagram: &mut space[..length] }
            }
            step => {
                // Without keys, boringtun has stored a copy, and perhaps written an initiation.
                if peer.waiting < QUEUE_MAX_PACKETS {
                    peer.waiting += 1;
                    self.counters.queued += 1;
                } else {
                    dropped.queue_full += 1;
                }
                match step {
                    Step::Send(length) => {
                        self.counters.initiations_sent += 1;
                        peer.greeted = true;
                        Output::Send { to, datagram: &mut space[..length] }
                    }
                    _ => Output::Nothing,
                }
            }
        }
    }

    /// Returns output that is due without input: packets that waited for keys, keepalives, handshakes. `space` must
    /// hold the largest packet that was passed in plus `OVERHEAD_BYTES`. Call until it returns `Wait`.
    pub fn poll<'a>(&mut self, now_ns: u64, space: &'a mut [u8]) -> Output<'a> {
        if space.len() < SPACE_MIN_BYTES {
            return Output::Wait { until_ns: self.next_tick_ns };
        }
        let sending = match self.poll_waiting(space) {
            None => self.poll_timers(now_ns, space),
            waiting => waiting,
        };
        match sending {
            Some((to, length)) => Output::Send { to, datagram: &mut space[..length] },
            None => Output::Wait { until_ns: self.next_tick_ns },
        }
    }

    fn poll_waiting(&mut self, space: &mut [u8]) -> Option<(SocketAddr, usize)> {
        let peer = &mut self.peers[self.flushing?];
        match (peer.endpoint, Step::from(peer.tunnel.decapsulate(None, &[], space))) {
            (Some(to), Step::Send(length)) if space[0] == message::DATA => {
                if length > OVERHEAD_BYTES {
                    self.counters.sent.add(length - OVERHEAD_BYTES);
                    peer.waiting = peer.waiting.saturating_sub(1);
                } else {
                    self.counters.keepalives_sent += 1;
                }
                Some((to, length))
            }
            _ => {
                self.flushing = None;
                None
            }
        }
    }

    fn poll_timers(&mut self, now_ns: u64, space: &mut [u8]) -> Option<(SocketAddr, usize)> {
        if now_ns >= self.next_tick_ns {
            self.next_tick_ns = now_ns + TICK_NS;
            self.ticking = 0;
            self.limiter.reset_count();
        }
        while let Some(peer) = self.peers.get_mut(self.ticking) {
            self.ticking += 1;
            let (length, abandoned) = peer.tick(space);
            self.counters.dropped.no_answer += u64::from(abandoned);
            let (Some(to), Some(length)) = (peer.endpoint, length) else { continue };
            match space[0] {
                message::INITIATION => self.counters.initiations_sent += 1,
                _ => self.counters.keepalives_sent += 1,
            }
            return Some((to, length));
        }
        None
    }

    /// Finds the sender of a datagram. `Err(Step::Send)` is a cookie reply to send; any other `Err` has been counted.
    fn peer_of(&mut self, from: SocketAddr, datagram: &[u8], space: &mut [u8]) -> Result<usize, Step> {
        let verified = match self.limiter.verify_packet(Some(from.ip()), datagram, space) {
            Ok(Packet::HandshakeInit(initiation)) => parse_handshake_anon(&self.private, &self.public, &initiation)
                .map(|half| self.by_key.get(&PublicKey(half.peer_static_public)).copied()),
            Ok(Packet::HandshakeResponse(response)) => Ok(self.peer_at(response.receiver_idx)),
            Ok(Packet::PacketCookieReply(reply)) => Ok(self.peer_at(reply.receiver_idx)),
            // An authentic message with this counter would overflow boringtun's replay window.
            Ok(Packet::PacketData(_)) if counter_of(datagram) >= REJECT_AFTER_MESSAGES => {
                Err(WireGuardError::InvalidCounter)
            }
            Ok(Packet::PacketData(data)) => Ok(self.peer_at(data.receiver_idx)),
            Err(TunnResult::WriteToNetwork(cookie)) => {
                self.counters.cookies_sent += 1;
                return Err(Step::Send(cookie.len()));
            }
            Err(TunnResult::Err(error)) => Err(error),
            Err(_) => Err(WireGuardError::InvalidPacket),
        };
        match verified {
            Ok(Some(number)) => Ok(number),
            Ok(None) => {
                self.counters.dropped.unknown_peer += 1;
                Err(Step::Done)
            }
            Err(error) => {
                *self.counters.dropped.cause(&error) += 1;
                Err(Step::Done)
            }
        }
    }

    fn peer_at(&self, receiver_index: u32) -> Option<usize> {
        let number = (receiver_index >> INDEX_SESSION_BITS) as usize;
        (number < self.peers.len()).then_some(number)
    }

    /// Handles an authenticated datagram: updates the peer's endpoint, and releases packets that waited for keys.
    fn authenticated(&mut self, number: usize, from: SocketAddr, kind: u8) {
        let peer = &mut self.peers[number];
        peer.greeted = true;
        if peer.endpoint != Some(from) {
            self.counters.roamed += u64::from(peer.endpoint.is_some());
            peer.endpoint = Some(from);
        }
        // A responder may only use new keys after the initiator's first data message (the paper, section 5.4.5), so
        // an initiation releases nothing.
        if peer.waiting > 0 && kind != message::INITIATION {
            self.flushing = Some(number);
        }
    }
}

/// The counter of a data message of at least 32 bytes.
pub fn counter_of(data: &[u8]) -> u64 {
    let mut counter = [0; 8];
    counter.copy_from_slice(&data[8..16]);
    u64::from_le_bytes(counter)
}
