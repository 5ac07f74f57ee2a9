//! The device under a stack: one incoming packet, and a short queue of outgoing ones. Inspects the segments for two
//! things: retransmitted payload, which smoltcp does not report, and acknowledgements that smoltcp would mistake for
//! a new loss.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

use crate::inside::ip::{protocol, Packet};
use crate::offload::layout::{flag, place, u16_at, u32_at};

/// Maximum number of queued packets. smoltcp creates no more until there is room.
const MAX_PACKETS: usize = 16;

/// Offsets in the TCP header (RFC 9293, section 3.1).
const TCP_ACKNOWLEDGEMENT: usize = 8;
const TCP_WINDOW: usize = 14;
/// Distance after which a loss is forgotten, bytes: long before sequence numbers wrap.
const FORGOTTEN_BYTES: u32 = 1 << 26;

/// The outgoing queue of a stack, and counters of everything that it has sent.
pub struct Wire {
    mtu: usize,
    /// The queued packets, concatenated, and their lengths.
    bytes: Vec<u8>,
    lengths: VecDeque<u16>,
    /// Offset of the first packet.
    at: usize,
    sent: Vec<Sent>,
}

/// Counters of one port.
pub struct Sent {
    port: u16,
    /// The sequence number after the last byte that was sent for the first time.
    end: Option<u32>,
    /// Number of segments without any new byte.
    pub again: u64,
    /// Number of detected losses: all retransmissions until the data sent by then has arrived count once.
    pub losses: u64,
    /// The end of the sent data at the last loss.
    recover: Option<u32>,
    /// The last acknowledgement and window.
    acknowledged: Option<(u32, u16)>,
}

impl Wire {
    pub fn new(mtu: u16) -> Self {
        Self { mtu: mtu.into(), bytes: Vec::new(), lengths: VecDeque::new(), at: 0, sent: Vec::new() }
    }

    /// Starts counting for a port.
    pub fn watch(&mut self, port: u16) {
        self.sent.push(Sent { port, end: None, again: 0, losses: 0, recover: None, acknowledged: None });
    }

    /// Stops counting for a port.
    pub fn forget(&mut self, port: u16) {
        self.sent.retain(|sent| sent.port != port);
    }

    pub fn sent(&self, port: u16) -> Option<&Sent> {
        self.sent.iter().find(|sent| sent.port == port)
    }

    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Passes the queued packets on in order; returns false if one was refused.
    pub fn drain(&mut self, emit: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        while let Some(&length) = self.lengths.front() {
            let end = self.at + usize::from(length);
            if !emit(&self.bytes[self.at..end]) {
                return false;
            }
            self.lengths.pop_front();
            self.at = end;
        }
        self.bytes.clear();
        self.at = 0;
        true
    }

    /// The device for smoltcp, with an incoming packet if there is one.
    pub fn device<'a>(&'a mut self, incoming: &'a [u8]) -> End<'a> {
        End { wire: self, incoming }
    }

    fn has_room(&self) -> bool {
        self.lengths.len() < MAX_PACKETS
    }

    /// Counts the last packet of the queue.
    fn count(&mut self, start: usize) {
        let Ok(packet) = Packet::parse(&self.bytes[start..]) else { return };
        let segment = packet.transport;
        if packet.protocol != protocol::TCP || segment.len() < place::TCP_BYTES {
            return;
        }
        let header = usize::from(segment[place::TCP_OFFSET] >> 4) * 4;
        // A keep-alive carries at most one byte, which the far end already has.
        let Some(payload @ 2..) = segment.len().checked_sub(header) else { return };
        let port = u16_at(segment, 0);
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.port == port) else { return };
        let end = u32_at(segment, place::TCP_SEQUENCE).wrapping_add(payload as u32);
        match sent.end.filter(|before| !is_behind(*before, end)) {
            Some(before) => {
                sent.again += 1;
                if sent.recover.is_none_or(|recover| !is_behind(end, recover.wrapping_add(1))) {
                    sent.recover = Some(before);
                    sent.losses += 1;
                }
            }
            None => sent.end = Some(end),
        }
    }

    /// Whether smoltcp may see a received segment. smoltcp answers three equal acknowledgements by retransmitting
    /// everything after them, and the duplicates cause as many equal acknowledgements again. RFC 6582, section 3.2:
    /// only acknowledgements that cover more than was sent before the last loss indicate another one.
    pub fn admits(&mut self, segment: &[u8]) -> bool {
        if segment.len() < place::TCP_BYTES {
            return true;
        }
        let header = usize::from(segment[place::TCP_OFFSET] >> 4) * 4;
        let is_bare = header == segment.len() && segment[place::TCP_FLAGS] == flag::ACK;
        let port = u16_at(segment, 2);
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.port == port) else { return true };
        let acknowledgement = (u32_at(segment, TCP_ACKNOWLEDGEMENT), u16_at(segment, TCP_WINDOW));
        let is_repeated = is_bare && sent.acknowledged == Some(acknowledgement);
        sent.acknowledged = Some(acknowledgement);
        let Some(recover) = sent.recover else { return true };
        if is_behind(recover.wrapping_add(FORGOTTEN_BYTES), acknowledgement.0) {
            sent.recover = None;
            return true;
        }
        // With nothing in flight, it answers a keep-alive and is the far end's only answer.
        !is_repeated || is_behind(recover, acknowledgement.0) || sent.end == Some(acknowledgement.0)
    }
}

/// RFC 9293, section 3.4: sequence numbers are compared modulo 2^32.
fn is_behind(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

/// The device for one call.
pub struct End<'a> {
    wire: &'a mut Wire,
    incoming: &'a [u8],
}

impl Device for End<'_> {
    type RxToken<'t>
        = Incoming<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Outgoing<'t>
    where
        Self: 't;

    fn receive(&mut self, _timestamp: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let incoming = std::mem::take(&mut self.incoming);
        (!incoming.is_empty()).then_some((Incoming(incoming), Outgoing(self.wire)))
    }

    fn transmit(&mut self, _timestamp: Instant) -> Option<Outgoing<'_>> {
        self.wire.has_room().then_some(Outgoing(self.wire))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.wire.mtu;
        capabilities
    }
}

/// The incoming packet.
pub struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

/// Space for an outgoing packet.
pub struct Outgoing<'a>(&'a mut Wire);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let wire = self.0;
        let start = wire.bytes.len();
        wire.bytes.resize(start + length, 0);
        let result = write(&mut wire.bytes[start..]);
        if wire.has_room() && length <= usize::from(u16::MAX) {
            wire.lengths.push_back(length as u16);
            wire.count(start);
        } else {
            // A response that finds the queue full is dropped, as on a full link.
            wire.bytes.truncate(start);
        }
        result
    }
}
