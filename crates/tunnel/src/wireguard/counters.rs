//! Counters of a machine, including dropped packets by cause, as sums since the start. Every datagram and packet that
//! is passed in counts in exactly one of them.

/// All counters of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// IP packets that were encrypted and sent.
    pub sent: Traffic,
    /// IP packets that were decrypted and delivered.
    pub received: Traffic,
    /// Handshake initiations sent, retries included.
    pub initiations_sent: u64,
    /// Handshakes that produced keys, as initiator or as responder.
    pub handshakes: u64,
    /// Keepalives sent: empty data messages.
    pub keepalives_sent: u64,
    /// Keepalives received.
    pub keepalives_received: u64,
    /// Cookie replies sent because too many handshakes arrived.
    pub cookies_sent: u64,
    /// Cookie replies received and used.
    pub cookies_received: u64,
    /// Changes of a peer's endpoint to the source of an authenticated datagram.
    pub roamed: u64,
    /// Packets from the host that waited for a handshake; they are sent or dropped later.
    pub queued: u64,
    /// Dropped datagrams and packets.
    pub dropped: Drops,
}

/// Packets and bytes, without WireGuard's overhead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    /// IP packets.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
}

/// Dropped datagrams and packets, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Drops {
    /// From the network: not a WireGuard message, or no IP packet inside.
    pub malformed: u64,
    /// From the network: a handshake whose first MAC is wrong (for another public key).
    pub wrong_mac: u64,
    /// From the network: a public key or receiver index without a peer.
    pub unknown_peer: u64,
    /// From the network: the authentication tag is wrong.
    pub forged: u64,
    /// From the network: repeated, or too old.
    pub replayed: u64,
    /// From the network: the session or handshake has ended.
    pub no_session: u64,
    /// From the network: the peer is not allowed to use the inner source address.
    pub forbidden_source: u64,
    /// From the host: not an IP packet.
    pub not_ip: u64,
    /// From the host: no peer has the destination address.
    pub no_peer: u64,
    /// From the host: the peer's endpoint is not known.
    pub no_endpoint: u64,
    /// From the host: too many packets wait for a handshake.
    pub queue_full: u64,
    /// From the host: waited for a handshake that did not complete.
    pub no_answer: u64,
    /// In either direction: the caller's buffer was too small.
    pub no_space: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl Drops {
    /// Sum of all causes.
    pub fn total(&self) -> u64 {
        self.from_network() + self.from_host() + self.no_space
    }

    /// Sum of the causes that concern datagrams only.
    pub fn from_network(&self) -> u64 {
        self.malformed
            + self.wrong_mac
            + self.unknown_peer
            + self.forged
            + self.replayed
            + self.no_session
            + self.forbidden_source
    }

    /// Sum of the causes that concern packets of this host only.
    pub fn from_host(&self) -> u64 {
        self.not_ip + self.no_peer + self.no_endpoint + self.queue_full + self.no_answer
    }
}
