//! The bytes of a flow's frames: headers with their lengths and checksums, and the sum of everything that stays the same
//! under the checksum of the packet's content.

use std::net::IpAddr;

use leadline_wire::{FrameTransport, OuterKind};

use super::plan::{FramePlan, MacAddress};
use crate::checksum::{finish, sum};
use crate::trailer::{Trailer, PLAIN_BYTES, TIMED_BYTES};

const TYPE_V4: u16 = 0x0800;
const TYPE_V6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_GRE: u8 = 47;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMP_V6: u8 = 58;
const VXLAN_PORT: u16 = 4789;
/// VXLAN's source ports, by which networks spread flows (RFC 7348, 5), are of the dynamic range.
const FIRST_DYNAMIC_PORT: u16 = 49152;
const DONT_FRAGMENT: u16 = 0x4000;
const ECHO_REQUEST: u8 = 8;
const ECHO_REQUEST_V6: u8 = 128;
const FLAG_SYN: u8 = 0x02;
const FLAGS_PUSH_ACK: u8 = 0x18;
const TCP_WINDOW: u16 = 64240;

/// What holds where a plan has nothing: the interface's MAC address, the next hop's, and the interface's IP address.
pub type Own = (MacAddress, MacAddress, Option<IpAddr>);

/// Where a checksum is, and what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumPlace {
    /// Its place in the frame.
    pub at: usize,
    /// The first byte that it covers, which are all to the end.
    pub covers_from: usize,
    /// Whether 0 means that there is none, so that a sum of 0 is sent as 0xffff.
    pub is_udp: bool,
}

/// A frame of a flow: complete but for what changes from frame to frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The frame, with zeros in the place of its trailer.
    pub bytes: Vec<u8>,
    /// Bytes of headers, or of the template.
    pub header_bytes: usize,
    /// Its innermost checksum, which is not yet in it.
    pub checksum: Option<SumPlace>,
    /// The sum under that checksum, of the frame without its trailer, not folded: of 16-bit words in the network's order.
    pub sum: u64,
}

struct Writer(Vec<u8>);

impl Writer {
    fn half(&mut self, value: u16) {
        self.0.extend(value.to_be_bytes());
    }

    fn word(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.0.extend(address.octets()),
            IpAddr::V6(address) => self.0.extend(address.octets()),
        }
    }

    fn ethernet(&mut self, destination: MacAddress, source: MacAddress) {
        self.0.extend(destination);
        self.0.extend(source);
    }

    /// A header of IP for what follows, up to the end of the frame.
    fn ip(&mut self, plan: &FramePlan, frame_bytes: usize, protocol: u8, source: IpAddr, destination: IpAddr) {
        let begin = self.0.len();
        if destination.is_ipv4() {
            self.0.extend([0x45, plan.dscp << 2]);
            self.half((frame_bytes - begin) as u16);
            self.half(0);
            self.half(DONT_FRAGMENT);
            self.0.extend([plan.ttl, protocol, 0, 0]);
            self.address(source);
            self.address(destination);
            let checksum = finish(sum(&self.0[begin..]));
            self.0[begin + 10..begin + 12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            self.word(6 << 28 | u32::from(plan.dscp) << 22);
            self.half((frame_bytes - begin - 40) as u16);
            self.0.extend([protocol, plan.ttl]);
            self.address(source);
            self.address(destination);
        }
    }
}

fn type_of(address: IpAddr) -> u16 {
    if address.is_ipv4() {
        TYPE_V4
    } else {
        TYPE_V6
    }
}

impl FramePlan {
    /// Returns a flow's frame of this length. A flow that is replaced by a new one has a higher `generation`.
    ///
    /// Its length is one that the plan allows.
    pub fn image(&self, (flow, generation): (u32, u64), flows: u32, bytes: u32, own: Own) -> Image {
        let length = bytes as usize;
        let place = u64::from(flow) + generation * u64::from(flows);
        let mut writer = Writer(Vec::with_capacity(length));
        let checksum = match &self.template {
            Some(template) => {
                writer.0.extend(&template[..template.len().min(length)]);
                None
            }
            None => self.write_headers(&mut writer, place, length, own),
        };
        let header_bytes = writer.0.len();
        let mut bytes = writer.0;
        bytes.resize(length, 0);
        bytes[length - self.trailer_bytes()..].fill(0);
        let pseudo = self.sum_of_pseudo_header(place, length - checksum.map_or(0, |place| place.covers_from), own);
        let sum = checksum.map_or(0, |place| pseudo + sum(&bytes[place.covers_from..]));
        Image { bytes, header_bytes, checksum, sum }
    }

    fn addresses(&self, place: u64, own: Own) -> (IpAddr, IpAddr) {
        let destination = self.destinations.of(place, self.seed, 2);
        let source = self.sources.map(|sources| sources.of(place, self.seed, 1)).or(own.2);
        (source.unwrap_or(destination), destination)
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            FrameTransport::Udp => PROTOCOL_UDP,
            FrameTransport::TcpSyn | FrameTransport::TcpAck => PROTOCOL_TCP,
            FrameTransport::IcmpEcho if self.is_v4() => PROTOCOL_ICMP,
            FrameTransport::IcmpEcho => PROTOCOL_ICMP_V6,
        }
    }

    /// The words that a checksum covers in addition to the packet's content (RFC 768, RFC 8200 8.1); ICMP has none.
    fn sum_of_pseudo_header(&self, place: u64, content_bytes: usize, own: Own) -> u64 {
        if self.template.is_some() || self.protocol() == PROTOCOL_ICMP {
            return 0;
        }
        let (source, destination) = self.addresses(place, own);
        let mut addresses = Writer(Vec::with_capacity(32));
        addresses.address(source);
        addresses.address(destination);
        sum(&addresses.0) + u64::from(self.protocol()) + content_bytes as u64
    }

    fn write_headers(&self, writer: &mut Writer, place: u64, length: usize, own: Own) -> Option<SumPlace> {
        let destination_mac = self.destination_mac.unwrap_or(own.1);
        let source_mac = self.source_mac.unwrap_or(own.0);
        let (source, destination) = self.addresses(place, own);
        writer.ethernet(destination_mac, source_mac);
        for (field, vlan) in (10..).zip(&self.vlans) {
            writer.half(vlan.protocol);
            writer.half(u16::from(vlan.priority) << 13 | vlan.numbers.of(place, self.seed, field));
        }
        if let Some(outer) = self.outer {
            writer.half(type_of(outer.destination));
            match outer.kind {
                OuterKind::Gre => {
                    writer.ip(self, length, PROTOCOL_GRE, outer.source, outer.destination);
                    writer.half(if outer.identifier.is_some() { 0x2000 } else { 0 });
                    writer.half(type_of(destination));
                    outer.identifier.into_iter().for_each(|key| writer.word(key));
                }
                OuterKind::Vxlan => {
                    writer.ip(self, length, PROTOCOL_UDP, outer.source, outer.destination);
                    writer.half(FIRST_DYNAMIC_PORT + (place % 16384) as u16);
                    writer.half(VXLAN_PORT);
                    writer.half((length - writer.0.len() + 4) as u16);
                    // No checksum outside (RFC 7348, 5).
                    writer.half(0);
                    writer.word(0x0800_0000);
                    writer.word(outer.identifier.unwrap_or(0) << 8);
                    writer.ethernet(destination_mac, source_mac);
                    writer.half(type_of(destination));
                }
            }
        } else {
            writer.half(type_of(destination));
        }
        writer.ip(self, length, self.protocol(), source, destination);
        self.write_transport(writer, place, length)
    }

    fn write_transport(&self, writer: &mut Writer, place: u64, length: usize) -> Option<SumPlace> {
        let covers_from = writer.0.len();
        let source_port = self.source_ports.of(place, self.seed, 3);
        let destination_port = self.destination_ports.of(place, self.seed, 4);
        let at = match self.transport {
            FrameTransport::Udp => {
                writer.half(source_port);
                writer.half(destination_port);
                writer.half((length - covers_from) as u16);
                6
            }
            FrameTransport::TcpSyn | FrameTransport::TcpAck => {
                let is_syn = self.transport == FrameTransport::TcpSyn;
                writer.half(source_port);
                writer.half(destination_port);
                writer.word(1);
                writer.word(u32::from(!is_syn));
                writer.0.extend([5 << 4, if is_syn { FLAG_SYN } else { FLAGS_PUSH_ACK }]);
                writer.half(TCP_WINDOW);
                16
            }
            FrameTransport::IcmpEcho => {
                writer.0.extend([if self.is_v4() { ECHO_REQUEST } else { ECHO_REQUEST_V6 }, 0]);
                2
            }
        };
        // The checksum's place, and what is behind it: TCP's urgent pointer, ICMP's identifier and number.
        writer.half(0);
        match self.transport {
            FrameTransport::Udp => {}
            FrameTransport::TcpSyn | FrameTransport::TcpAck => writer.half(0),
            FrameTransport::IcmpEcho => {
                writer.half(source_port);
                writer.half(1);
            }
        }
        let is_udp = self.transport == FrameTransport::Udp;
        let has_checksum = !is_udp || self.has_udp_checksum || !self.is_v4();
        has_checksum.then_some(SumPlace { at: covers_from + at, covers_from, is_udp })
    }
}

impl Image {
    /// Writes number and time into the frame, and its checksum: what a program does for each frame.
    pub fn number(&mut self, trailer: &Trailer, is_timed: bool) {
        trailer.write(&mut self.bytes, is_timed);
        let Some(place) = self.checksum else { return };
        let begin = self.bytes.len() - trailer_bytes(is_timed);
        let checksum = match finish(self.sum + self.sum_of_trailer(&self.bytes[begin..])) {
            0 if place.is_udp => 0xffff,
            checksum => checksum,
        };
        self.bytes[place.at..place.at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The sum under the checksum of everything but number and time, in 16 bits of the network's order.
    pub fn constant_sum(&self, trailer: &Trailer, is_timed: bool) -> u16 {
        let mut bytes = vec![0; trailer_bytes(is_timed)];
        trailer.write(&mut bytes, is_timed);
        let number = bytes.len() - 6;
        bytes[number..number + 4].fill(0);
        !finish(self.sum + self.sum_of_trailer(&bytes))
    }

    /// Whether the trailer begins at an odd distance from where the checksum begins to cover.
    pub fn is_trailer_odd(&self, is_timed: bool) -> bool {
        self.checksum.is_some_and(|place| (self.bytes.len() - trailer_bytes(is_timed) - place.covers_from) % 2 == 1)
    }

    fn sum_of_trailer(&self, trailer: &[u8]) -> u64 {
        let folded = !finish(sum(trailer));
        u64::from(if self.is_trailer_odd(trailer.len() == TIMED_BYTES) { folded.swap_bytes() } else { folded })
    }
}

fn trailer_bytes(is_timed: bool) -> usize {
    if is_timed {
        TIMED_BYTES
    } else {
        PLAIN_BYTES
    }
}
