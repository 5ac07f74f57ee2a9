//! One peer of a machine: its tunnel, its endpoint, and the packets that wait for keys. Wraps boringtun's interface
//! for `machine`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;

use super::config::PeerConfig;
use super::counters::Drops;

/// boringtun's own limit (`MAX_QUEUE_DEPTH`), above which it drops silently; repeated here so that drops can be
/// counted.
pub const QUEUE_MAX_PACKETS: u16 = 256;

/// A peer and its sessions.
pub struct Peer {
    pub tunnel: Tunn,
    /// The last known or configured endpoint.
    pub endpoint: Option<SocketAddr>,
    /// Number of packets that boringtun holds until there are keys.
    pub waiting: u16,
    /// Whether keepalives are on, so that the first handshake starts without a packet to send.
    eager: bool,
    /// Whether the first handshake has been started or is up to the other side.
    pub greeted: bool,
}

/// `TunnResult` without its borrow: all of its slices begin at the start of the space.
pub enum Step {
    /// Nothing to do.
    Done,
    /// A datagram of this length.
    Send(usize),
    /// An IP packet of this length, with its inner source address.
    Deliver(usize, IpAddr),
    /// Refused by boringtun.
    Failed(WireGuardError),
}

impl Peer {
    /// Creates a peer with index `number`, which the other side uses in its messages.
    pub fn new(private: &x25519::StaticSecret, peer: &PeerConfig, number: u32, limiter: &Arc<RateLimiter>) -> Self {
        let public = x25519::PublicKey::from(peer.public_key.0);
        let keepalive_s = peer.keepalive_s.filter(|seconds| *seconds > 0);
        Self {
            tunnel: Tunn::new(
                private.clone(),
                public,
                peer.preshared_key.as_ref().map(|key| key.0),
                keepalive_s,
                number,
                Some(limiter.clone()),
            ),
            endpoint: peer.endpoint,
            waiting: 0,
            eager: keepalive_s.is_some() && peer.endpoint.is_some(),
            greeted: false,
        }
    }

    /// Checks the timers; returns the length of the datagram to send, and how many waiting packets were dropped.
    pub fn tick(&mut self, space: &mut [u8]) -> (Option<usize>, u16) {
        let mut abandoned = 0;
        let mut step = Step::from(self.tunnel.update_timers(space));
        if let Step::Failed(WireGuardError::ConnectionExpired) = step {
            // boringtun has emptied its queue and waits for a packet to send. With keepalives there always is one.
            abandoned = std::mem::take(&mut self.waiting);
            self.greeted = false;
        }
        if self.eager && !self.greeted && !matches!(step, Step::Send(_)) {
            self.greeted = true;
            step = Step::from(self.tunnel.format_handshake_initiation(space, false));
        }
        match step {
            Step::Send(length) => (Some(length), abandoned),
            _ => (None, abandoned),
        }
    }
}

impl From<TunnResult<'_>> for Step {
    fn from(result: TunnResult<'_>) -> Self {
        match result {
            TunnResult::Done => Self::Done,
            TunnResult::Err(error) => Self::Failed(error),
            TunnResult::WriteToNetwork(datagram) => Self::Send(datagram.len()),
            TunnResult::WriteToTunnelV4(packet, source) => Self::Deliver(packet.len(), source.into()),
            TunnResult::WriteToTunnelV6(packet, source) => Self::Deliver(packet.len(), source.into()),
        }
    }
}

impl Drops {
    /// The drop counter of an error of boringtun.
    pub fn cause(&mut self, error: &WireGuardError) -> &mut u64 {
        match error {
            WireGuardError::InvalidMac => &mut self.wrong_mac,
            WireGuardError::InvalidAeadTag | WireGuardError::WrongKey => &mut self.forged,
            WireGuardError::InvalidCounter
            | WireGuardError::DuplicateCounter
            | WireGuardError::InvalidTai64nTimestamp
            | WireGuardError::WrongTai64nTimestamp => &mut self.replayed,
            WireGuardError::NoCurrentSession
            | WireGuardError::WrongIndex
            | WireGuardError::UnexpectedPacket
            | WireGuardError::ConnectionExpired => &mut self.no_session,
            WireGuardError::DestinationBufferTooSmall => &mut self.no_space,
            WireGuardError::IncorrectPacketLength
            | WireGuardError::WrongPacketType
            | WireGuardError::InvalidPacket
            | WireGuardError::LockFailed
            | WireGuardError::UnderLoad => &mut self.malformed,
        }
    }
}
