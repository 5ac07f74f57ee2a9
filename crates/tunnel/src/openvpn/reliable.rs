//! The reliability layer of the control channel for one key: packets are numbered from 0, retransmitted until they
//! are acknowledged, and delivered in order. Owns payloads and times; encodes no packet. Refuses packets outside its
//! windows, so a peer can make it store at most 12 payloads. Stores nothing while nothing is in flight.

use super::packet::{Acks, Opcode};

/// Maximum number of packets in flight, counted from the oldest unacknowledged one.
pub const SEND_WINDOW: u32 = 6;
/// Maximum distance of a received packet from the next one in order.
pub const RECEIVE_WINDOW: u32 = 12;
/// Maximum length of a payload: the size of OpenVPN's buffers for the control channel.
pub const LONGEST_PAYLOAD: usize = 2048;
/// Maximum number of acknowledgements in a packet with a payload; a packet without one has up to `Acks::MAX`.
pub const PIGGYBACKED_ACKS: usize = 4;
/// Default delay of the first retransmission, ns; it doubles each time.
pub const FIRST_TIMEOUT_NS: u64 = 2_000_000_000;

/// Number of acknowledgements of later packets that indicate a loss.
const LATER_ACKS: u8 = 3;

/// The packets of one key in both directions.
#[derive(Debug)]
pub struct Reliable {
    first_timeout_ns: u64,
    retransmits: u32,
    next_send: u32,
    /// Packets in flight, oldest first.
    sent: Vec<Sent>,
    next_receive: u32,
    /// Packets that arrived early or wait to be read, lowest id first.
    waiting: Vec<Waiting>,
    due: Acks,
    recent: Acks,
}

#[derive(Debug)]
struct Sent {
    id: u32,
    opcode: Opcode,
    payload: Vec<u8>,
    /// When it is to be sent, for the first time or again, ns. Later acknowledgements may move it to an earlier time.
    due_ns: u64,
    /// The time from this transmission to the next one, ns; it doubles with each.
    timeout_ns: u64,
    later_acks: u8,
    transmitted: bool,
}

#[derive(Debug)]
struct Waiting {
    id: u32,
    payload: Vec<u8>,
}

/// A packet to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Its kind.
    pub opcode: Opcode,
    /// Packet id.
    pub id: u32,
    /// Payload.
    pub payload: &'a [u8],
}

/// The result of receiving a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Accepted {
    /// Stored until it is next in order.
    New,
    /// Received before. It is acknowledged again, because its acknowledgement may have been lost.
    Repeated,
    /// Too far ahead; the peer has to retransmit it.
    OutsideWindow,
    /// Longer than any valid payload.
    TooLong,
}

impl Default for Reliable {
    fn default() -> Self {
        Self::new()
    }
}

impl Reliable {
    /// Creates an empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timeout(FIRST_TIMEOUT_NS)
    }

    /// Creates an empty state with another delay of the first retransmission (ns, at least 1).
    #[must_use]
    pub fn with_timeout(first_timeout_ns: u64) -> Self {
        Self {
            first_timeout_ns: first_timeout_ns.max(1),
            retransmits: 0,
            next_send: 0,
            sent: Vec::new(),
            next_receive: 0,
            waiting: Vec::new(),
            due: Acks::default(),
            recent: Acks::default(),
        }
    }

    /// Whether one more packet may be in flight.
    #[must_use]
    pub fn can_send(&self) -> bool {
        self.sent.first().is_none_or(|oldest| self.next_send.wrapping_sub(oldest.id) < SEND_WINDOW)
    }

    /// Sends a packet; a copy is stored until it is acknowledged. Returns false, without an effect, if `can_send` is
    /// false.
    #[must_use]
    pub fn send(&mut self, now_ns: u64, opcode: Opcode, payload: &[u8]) -> bool {
        if !self.can_send() {
            return false;
        }
        self.sent.push(Sent {
            id: self.next_send,
            opcode,
            payload: payload.to_vec(),
            due_ns: now_ns,
            timeout_ns: self.first_timeout_ns,
            later_acks: 0,
            transmitted: false,
        });
        self.next_send = self.next_send.wrapping_add(1);
        true
    }

    /// The lowest packet that is due for its first or a further transmission.
    pub fn next_transmission(&mut self, now_ns: u64) -> Option<Outgoing<'_>> {
        let packet = self.sent.iter_mut().find(|packet| packet.due_ns <= now_ns)?;
        packet.due_ns = now_ns.saturating_add(packet.timeout_ns);
        packet.timeout_ns = packet.timeout_ns.saturating_mul(2);
        packet.later_acks = 0;
        self.retransmits += u32::from(packet.transmitted);
        packet.transmitted = true;
        Some(Outgoing { opcode: packet.opcode, id: packet.id, payload: &packet.payload })
    }

    /// Handles acknowledgements. A packet that was sent before three acknowledged ones is due immediately.
    pub fn acknowledged(&mut self, now_ns: u64, acks: &Acks) {
        for &acknowledged in acks.as_slice() {
            // An acknowledgement of an unsent packet indicates nothing about sent ones.
            if !comes_before(acknowledged, self.next_send) {
                continue;
            }
            self.sent.retain_mut(|packet| {
                if comes_before(packet.id, acknowledged) && packet.transmitted {
                    packet.later_acks = packet.later_acks.saturating_add(1);
                    if packet.later_acks == LATER_ACKS {
                        packet.due_ns = packet.due_ns.min(now_ns);
                    }
                }
                packet.id != acknowledged
            });
        }
        if self.sent.is_empty() {
            self.sent = Vec::new();
        }
    }

    /// Whether all sent packets are acknowledged.
    #[must_use]
    pub fn all_acknowledged(&self) -> bool {
        self.sent.is_empty()
    }

    /// When the next packet has to be sent; `None` while nothing is in flight.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.sent.iter().map(|packet| packet.due_ns).min()
    }

    /// Number of retransmitted packets.
    #[must_use]
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    /// Handles a packet: a copy is stored until it is next in order, and acknowledged with the next packet.
    pub fn received(&mut self, id: u32, payload: &[u8]) -> Accepted {
        if payload.len() > LONGEST_PAYLOAD {
            return Accepted::TooLong;
        }
        let known = comes_before(id, self.next_receive);
        if !known && id.wrapping_sub(self.next_receive) >= RECEIVE_WINDOW {
            return Accepted::OutsideWindow;
        }
        // If eight acknowledgements are pending already, the peer retransmits the packet and it is acknowledged then.
        self.due.add(id);
        let place = self.waiting.partition_point(|packet| comes_before(packet.id, id));
        if known || self.waiting.get(place).is_some_and(|packet| packet.id == id) {
            return Accepted::Repeated;
        }
        self.waiting.insert(place, Waiting { id, payload: payload.to_vec() });
        Accepted::New
    }

    /// The next payload in order, if it has arrived.
    pub fn next_in_order(&mut self) -> Option<Vec<u8>> {
        if self.waiting.first()?.id != self.next_receive {
            return None;
        }
        let payload = self.waiting.remove(0).payload;
        self.next_receive = self.next_receive.wrapping_add(1);
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
        Some(payload)
    }

    /// Whether acknowledgements are pending.
    #[must_use]
    pub fn acks_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes at most `most` acknowledgements for an outgoing packet: pending ones first, then the latest ones again,
    /// because packets with acknowledgements may be lost.
    pub fn take_acks(&mut self, most: usize) -> Acks {
        let due = self.due.as_slice();
        let (now, later) = due.split_at(due.len().min(most));
        let recent: Acks = now.iter().chain(self.recent.as_slice()).copied().collect();
        self.due = later.iter().copied().collect();
        self.recent = recent;
        recent.as_slice().iter().copied().take(most).collect()
    }
}

/// Whether `id` is before `other`, in numbers that wrap around.
fn comes_before(id: u32, other: u32) -> bool {
    id.wrapping_sub(other) > u32::MAX / 2
}

#[cfg(test)]
mod tests;
