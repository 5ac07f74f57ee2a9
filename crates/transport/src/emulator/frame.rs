//! Ethernet frames as the emulator sees them: the flow that one belongs to, a VLAN tag to put back, a checksum to
//! complete. Frames may have any content and any length.

const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that are read in a row; what is behind more of them is a flow by its addresses alone.
const MOST_TAGS: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;

/// A frame that has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival<'a> {
    /// Its bytes from the Ethernet header on.
    pub bytes: &'a [u8],
    /// A VLAN tag that the kernel has taken out: its protocol and its control information.
    pub tag: Option<(u16, u16)>,
    /// A checksum that the sender left to its network card: where the bytes begin that it covers, and where it belongs
    /// from there on.
    pub checksum: Option<(u16, u16)>,
}

/// What the emulator has to know of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// Frames of one flow have the same value.
    pub(super) id: u64,
    /// UDP over IPv4 or IPv6.
    pub(super) is_udp: bool,
}

/// Writes the frame as it would be on a wire: with its tag and its checksum.
pub(super) fn write_frame(arrival: &Arrival<'_>, frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(arrival.bytes);
    if let Some((start, offset)) = arrival.checksum {
        complete_checksum(frame, usize::from(start), usize::from(offset));
    }
    if let Some((protocol, control)) = arrival.tag.filter(|_| frame.len() >= 12) {
        let [a, b] = protocol.to_be_bytes();
        let [c, d] = control.to_be_bytes();
        frame.splice(12..12, [a, b, c, d]);
    }
}

/// Adds up the bytes from `start` on, and writes the Internet checksum (RFC 1071) at `offset` from there. The sender
/// has put the sum of its pseudo header into that place.
fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let place = start.saturating_add(offset);
    if frame.get(place..place.saturating_add(2)).is_none() {
        return;
    }
    let mut sum = 0u64;
    let mut pairs = frame[start..].chunks_exact(2);
    for pair in &mut pairs {
        sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    if let [last] = pairs.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
    let checksum = match !(sum as u16) {
        0 => 0xffff,
        other => other,
    };
    frame[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Reads a frame's addresses, protocol and ports as far as they are there.
pub(super) fn flow_of(frame: &[u8]) -> Flow {
    let mut id = Hash::new();
    id.add(frame.get(..12).unwrap_or(frame));
    let mut at = ETHERNET_BYTES - 2;
    let mut kind = short(frame, at);
    for _ in 0..MOST_TAGS {
        if !kind.is_some_and(|kind| TAGS.contains(&kind)) {
            break;
        }
        at += 4;
        kind = short(frame, at);
    }
    let packet = frame.get(at + 2..).unwrap_or_default();
    let protocol = match kind {
        Some(IPV4) => ipv4(packet, &mut id),
        Some(IPV6) => ipv6(packet, &mut id),
        _ => None,
    };
    id.add(&[protocol.unwrap_or(0)]);
    Flow { id: id.0, is_udp: protocol == Some(UDP) }
}

fn ipv4(packet: &[u8], id: &mut Hash) -> Option<u8> {
    let protocol = *packet.get(9)?;
    id.add(packet.get(12..20)?);
    // A fragment other than the first has no ports: fragments are a flow by their addresses.
    let is_fragment = short(packet, 6)? & 0x3fff != 0;
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    if matches!(protocol, TCP | UDP) && !is_fragment {
        id.add(packet.get(header_bytes..header_bytes + 4).unwrap_or_default());
    }
    Some(protocol)
}

fn ipv6(packet: &[u8], id: &mut Hash) -> Option<u8> {
    let protocol = *packet.get(6)?;
    id.add(packet.get(8..40)?);
    if protocol == IPV6_FRAGMENT {
        return packet.get(40).copied();
    }
    if matches!(protocol, TCP | UDP) {
        id.add(packet.get(40..44).unwrap_or_default());
    }
    Some(protocol)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// FNV-1a over a few dozen bytes.
struct Hash(u64);

impl Hash {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a frame with a UDP datagram over IPv4, from this port, with this number in its payload.
    pub(in crate::emulator) fn datagram(port: u16, number: u32, length: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&IPV4.to_be_bytes());
        frame.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0, 10, 81, 0, 1, 10, 81, 1, 1]);
        frame.extend_from_slice(&port.to_be_bytes());
        frame.extend_from_slice(&[0x14, 0x51, 0, 0, 0, 0]);
        frame.extend_from_slice(&number.to_be_bytes());
        frame.resize(length.max(frame.len()), 0);
        frame
    }

    fn tagged(frame: &[u8], tag: (u16, u16)) -> Vec<u8> {
        let mut written = Vec::new();
        write_frame(&Arrival { bytes: frame, tag: Some(tag), checksum: None }, &mut written);
        written
    }

    #[test]
    fn flow_is_known_by_ports_also_behind_tags() {
        let (one, other) = (datagram(1000, 1, 100), datagram(1001, 1, 100));
        assert!(flow_of(&one).is_udp);
        assert_eq!(flow_of(&one), flow_of(&datagram(1000, 2, 1500)));
        assert_ne!(flow_of(&one).id, flow_of(&other).id);
        let twice = tagged(&tagged(&one, (0x8100, 7)), (0x88a8, 9));
        assert_eq!(twice[12..16], [0x88, 0xa8, 0, 9]);
        assert_eq!(flow_of(&twice), flow_of(&one));
    }

    #[test]
    fn fragments_are_one_flow_with_their_first() {
        let mut first = datagram(1000, 1, 100);
        first[20] = 0x20;
        let mut later = datagram(4242, 1, 100);
        later[21] = 3;
        assert_eq!(flow_of(&first), flow_of(&later));
    }

    #[test]
    fn completed_checksum_verifies() {
        for length in [61, 62, 1500] {
            let mut frame = datagram(1000, 0x1234_5678, length);
            let mut written = Vec::new();
            frame[40..42].copy_from_slice(&[0xab, 0xcd]);
            write_frame(&Arrival { bytes: &frame, tag: None, checksum: Some((34, 6)) }, &mut written);
            // The sum over everything that was covered, with the pseudo header's, is that of correct data.
            let mut sum = 0xabcdu64;
            for pair in written[34..].chunks(2) {
                sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            }
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            // The pseudo header's sum stood in the field, and was counted with the rest.
            assert_eq!(sum, 0xffff, "{length}");
        }
    }

    #[test]
    fn checksum_outside_of_the_frame_is_left_out() {
        let frame = datagram(1000, 1, 60);
        for checksum in [(60, 0), (59, 0), (0, 60), (u16::MAX, u16::MAX), (100, 2)] {
            let mut written = Vec::new();
            write_frame(&Arrival { bytes: &frame, tag: None, checksum: Some(checksum) }, &mut written);
            assert_eq!(written, frame);
        }
    }
}
