//! One peer of a machine: its tunnel, where it is, and what waits for keys. Speaks boringtun's language so that `machine` need not.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519;

use super::config::PeerConfig;
use super::counters::Drops;

/// boringtun's own bound (`MAX_QUEUE_DEPTH`), beyond which it drops silently; known here so that it can be counted.
pub const QUEUE_MAX_PACKETS: u16 = 256;

/// A peer and its sessions.
pub struct Peer {
    pub tunnel: Tunn,
    /// Where it was last heard of, or is configured to be.
    pub endpoint: Option<SocketAddr>,
    /// Packets that boringtun holds back until there are keys.
    pub waiting: u16,
    /// Keepalives are on, so the peer is to be reached without being asked.
    eager: bool,
    /// The first handshake was started or is up to the other side.
    pub greeted: bool,
}

/// `TunnResult` without its borrow: all of its slices begin where the space does.
pub enum Step {
    /// Nothing to do.
    Done,
    /// Bytes of a datagram.
    Send(usize),
    /// With the inner source address.
    Deliver(usize, IpAddr),
    /// Refused.
    Failed(WireGuardError),
}

impl Peer {
    /// With peer number `number`, which the other side will name in what it sends.
    pub fn new(private: &x25519::StaticSecret, peer: &PeerConfig, number: u32, limiter: &Arc<RateLimiter>) -> Self {
        let public = x25519::PublicKey::from(peer.public_key.0);
        let keepalive_s = peer.keepalive_s.filter(|seconds| *seconds > 0);
        Self {
            tunnel: Tunn::new(private.clone(), public, None, keepalive_s, number, Some(limiter.clone())),
            endpoint: peer.endpoint,
            waiting: 0,
            eager: keepalive_s.is_some() && peer.endpoint.is_some(),
            greeted: false,
        }
    }

    /// Looks at the timers: the length of what is to be sent, and how many waiting packets were given up.
    pub fn tick(&mut self, space: &mut [u8]) -> (Option<usize>, u16) {
        let mut abandoned = 0;
        let mut step = Step::from(self.tunnel.update_timers(space));
        if let Step::Failed(WireGuardError::ConnectionExpired) = step {
            // boringtun emptied its queue and rests until there is a packet to send. With keepalives there always is.
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
    /// Which count a refusal by boringtun belongs to.
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
