//! The control channel's own reliability, for one key: packets are numbered from 0, sent again until they are acknowledged, and
//! handed on in order. Owns payloads and times alone: it writes no packet, and refuses what is outside its windows, so that no
//! peer makes it keep more than 12 payloads. Nothing is kept while nothing is under way.

use super::packet::{Acks, Opcode};

/// The most packets under way, from the oldest that is not acknowledged.
pub const SEND_WINDOW: u32 = 6;
/// How far packets may come ahead of the next one in order.
pub const RECEIVE_WINDOW: u32 = 12;
/// The longest payload that is taken: OpenVPN's own buffers for the control channel hold no more.
pub const LONGEST_PAYLOAD: usize = 2048;
/// How many acknowledgements a packet with a payload carries at most; one of acknowledgements alone carries `Acks::MAX`.
pub const PIGGYBACKED_ACKS: usize = 4;
/// After how long a packet is sent again, if nothing else is said; each time after twice as long.
pub const FIRST_TIMEOUT_NS: u64 = 2_000_000_000;

/// How many acknowledgements of later packets say that one was lost.
const LATER_ACKS: u8 = 3;

/// The packets of one key in both directions.
#[derive(Debug)]
pub struct Reliable {
    first_timeout_ns: u64,
    retransmits: u32,
    next_send: u32,
    /// Under way, oldest first.
    sent: Vec<Sent>,
    next_receive: u32,
    /// Came ahead of their turn or wait to be taken, lowest id first.
    waiting: Vec<Waiting>,
    due: Acks,
    recent: Acks,
}

#[derive(Debug)]
struct Sent {
    id: u32,
    opcode: Opcode,
    payload: Vec<u8>,
    due_ns: u64,
    timeout_ns: u64,
    later_acks: u8,
    transmitted: bool,
}

#[derive(Debug)]
struct Waiting {
    id: u32,
    payload: Vec<u8>,
}

/// A packet that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Its kind.
    pub opcode: Opcode,
    /// Its number.
    pub id: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

/// What became of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Accepted {
    /// Kept until its turn.
    New,
    /// It had come before. It is acknowledged again, for its acknowledgement may have been lost.
    Repeated,
    /// Too far ahead; it has to come again.
    OutsideWindow,
    /// Longer than any peer sends.
    TooLong,
}

impl Default for Reliable {
    fn default() -> Self {
        Self::new()
    }
}

impl Reliable {
    /// Nothing sent, nothing received.
    #[must_use]
    pub fn new() -> Self {
        Self::with_timeout(FIRST_TIMEOUT_NS)
    }

    /// The same, with another time (ns, at least 1) after which a packet is first sent again.
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

    /// Whether there is room for one more packet under way.
    #[must_use]
    pub fn can_send(&self) -> bool {
        self.sent.first().is_none_or(|oldest| self.next_send.wrapping_sub(oldest.id) < SEND_WINDOW)
    }

    /// Send a packet: a copy is kept until it is acknowledged. False, and nothing done, where `can_send` is false.
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

    /// The lowest packet whose time has come, for the first time or again.
    pub fn next_transmission(&mut self, now_ns: u64) -> Option<Outgoing<'_>> {
        let packet = self.sent.iter_mut().find(|packet| packet.due_ns <= now_ns)?;
        packet.due_ns = now_ns.saturating_add(packet.timeout_ns);
        packet.timeout_ns = packet.timeout_ns.saturating_mul(2);
        packet.later_acks = 0;
        self.retransmits += u32::from(packet.transmitted);
        packet.transmitted = true;
        Some(Outgoing { opcode: packet.opcode, id: packet.id, payload: &packet.payload })
    }

    /// The peer has these packets. One that was sent before three acknowledged ones is due at once.
    pub fn acknowledged(&mut self, now_ns: u64, acks: &Acks) {
        for &acknowledged in acks.as_slice() {
            // What was never sent says nothing about what was.
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

    /// Whether the peer has all that was sent.
    #[must_use]
    pub fn all_acknowledged(&self) -> bool {
        self.sent.is_empty()
    }

    /// When the next packet has to be sent; none while nothing is under way.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.sent.iter().map(|packet| packet.due_ns).min()
    }

    /// How many packets were sent again.
    #[must_use]
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }

    /// A packet came: it is kept, copied, until its turn, and acknowledged with the next packet.
    pub fn received(&mut self, id: u32, payload: &[u8]) -> Accepted {
        if payload.len() > LONGEST_PAYLOAD {
            return Accepted::TooLong;
        }
        let known = comes_before(id, self.next_receive);
        if !known && id.wrapping_sub(self.next_receive) >= RECEIVE_WINDOW {
            return Accepted::OutsideWindow;
        }
        // Where eight wait already, the peer sends it again and it is acknowledged then.
        self.due.add(id);
        let place = self.waiting.partition_point(|packet| comes_before(packet.id, id));
        if known || self.waiting.get(place).is_some_and(|packet| packet.id == id) {
            return Accepted::Repeated;
        }
        self.waiting.insert(place, Waiting { id, payload: payload.to_vec() });
        Accepted::New
    }

    /// The payload whose turn it is, if it has come.
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

    /// Whether something came that is not acknowledged.
    #[must_use]
    pub fn acks_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// At most `most` acknowledgements for a packet that goes out now: those due first, then the latest ones again, since
    /// packets with acknowledgements get lost too.
    pub fn take_acks(&mut self, most: usize) -> Acks {
        let due = self.due.as_slice();
        let (now, later) = due.split_at(due.len().min(most));
        let recent: Acks = now.iter().chain(self.recent.as_slice()).copied().collect();
        self.due = later.iter().copied().collect();
        self.recent = recent;
        recent.as_slice().iter().copied().take(most).collect()
    }
}

/// Whether `id` is before `other`, in numbers that wrap.
fn comes_before(id: u32, other: u32) -> bool {
    id.wrapping_sub(other) > u32::MAX / 2
}

#[cfg(test)]
mod tests;
