//! What a machine did and what it dropped, by cause. Plain sums since the start; every datagram and packet that was handed in ends in
//! exactly one of them.

/// Everything that a machine counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// IP packets that were encrypted and handed out.
    pub sent: Traffic,
    /// IP packets that were decrypted and handed out.
    pub received: Traffic,
    /// Handshake initiations sent, retries included.
    pub initiations_sent: u64,
    /// Handshakes that ended with keys, as initiator or as responder.
    pub handshakes: u64,
    /// Keepalives sent: empty data messages.
    pub keepalives_sent: u64,
    /// Keepalives received.
    pub keepalives_received: u64,
    /// Cookie replies sent because too many handshakes arrived.
    pub cookies_sent: u64,
    /// Cookie replies received and taken.
    pub cookies_received: u64,
    /// Times that a peer's endpoint moved to where an authenticated datagram came from.
    pub roamed: u64,
    /// Packets from the host that had to wait for a handshake; they are sent or dropped later.
    pub queued: u64,
    /// What was dropped.
    pub dropped: Drops,
}

/// Packets and their bytes, without WireGuard's own overhead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// IP packets.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
}

/// Datagrams and packets that went no further, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Drops {
    /// From the network: no WireGuard message, or no IP packet inside.
    pub malformed: u64,
    /// From the network: a handshake whose first MAC is wrong (it is not for this public key).
    pub wrong_mac: u64,
    /// From the network: a public key or receiver index that belongs to no peer.
    pub unknown_peer: u64,
    /// From the network: the authenticator does not hold.
    pub forged: u64,
    /// From the network: seen before, or too old.
    pub replayed: u64,
    /// From the network: for a session or handshake that is no more.
    pub no_session: u64,
    /// From the network: an inner source address that is not among the peer's allowed ones.
    pub forbidden_source: u64,
    /// From the host: not an IP packet.
    pub not_ip: u64,
    /// From the host: no peer is allowed the destination address.
    pub no_peer: u64,
    /// From the host: the peer's endpoint is not known yet.
    pub no_endpoint: u64,
    /// From the host: too many packets were waiting for a handshake already.
    pub queue_full: u64,
    /// From the host: waited for a handshake that never ended.
    pub no_answer: u64,
    /// Either way: the caller's buffer was too small for it.
    pub no_space: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl Drops {
    /// All causes together.
    pub fn total(&self) -> u64 {
        self.from_network() + self.from_host() + self.no_space
    }

    /// Causes that only concern datagrams.
    pub fn from_network(&self) -> u64 {
        self.malformed
            + self.wrong_mac
            + self.unknown_peer
            + self.forged
            + self.replayed
            + self.no_session
            + self.forbidden_source
    }

    /// Causes that only concern packets of this host.
    pub fn from_host(&self) -> u64 {
        self.not_ip + self.no_peer + self.no_endpoint + self.queue_full + self.no_answer
    }
}
