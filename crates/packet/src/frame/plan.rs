//! What frames are to be made of: the specification's texts as types, and the reasons why one cannot be sent.

use std::net::IpAddr;

use leadline_wire::{
    AddressRange, FieldOrder, FrameSize, FrameSpec, FrameTransport, OuterKind, OuterSpec, PacketFlows, PortRange,
};
use thiserror::Error;

use crate::flows::{count_different, Range};
use crate::trailer::{FLOW_BITS, PLAIN_BYTES, TIMED_BYTES};

/// The shortest frame of Ethernet, without FCS, bytes.
pub const MIN_FRAME_LENGTH: u32 = 60;
/// The longest frame, without FCS, bytes.
pub const MAX_FRAME_LENGTH: u32 = 9216;
/// Bytes of a VLAN tag.
const TAG_BYTES: u32 = 4;
/// VLANs: 0 is only a priority, 4095 is reserved.
const MAX_VLAN: u16 = 4094;
const MAX_DSCP: u8 = 63;
const MAX_PRIORITY: u8 = 7;
/// Lengths in one mix.
const MAX_SIZES: usize = 64;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// The address of all hosts of a link.
pub const BROADCAST: MacAddress = [0xff; 6];

/// Why frames cannot be as asked for: what, and what would be right.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct PlanError(pub String);

/// A tunnel around packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Its protocol.
    pub kind: OuterKind,
    /// The source outside.
    pub source: IpAddr,
    /// The destination outside, of the same version.
    pub destination: IpAddr,
    /// VXLAN's network, GRE's key.
    pub identifier: Option<u32>,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Its protocol.
    pub protocol: u16,
    /// The VLANs.
    pub numbers: Range<u16>,
    /// Priority.
    pub priority: u8,
}

/// What frames are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct FramePlan {
    /// The source, if it is not the interface's.
    pub source_mac: Option<MacAddress>,
    /// The destination, if it is known.
    pub destination_mac: Option<MacAddress>,
    /// Tags, the outermost first.
    pub vlans: Vec<Vlan>,
    /// A tunnel.
    pub outer: Option<Outer>,
    /// Source addresses; `None` for the interface's own.
    pub sources: Option<Range<IpAddr>>,
    /// Destination addresses.
    pub destinations: Range<IpAddr>,
    /// The kind of packet.
    pub transport: FrameTransport,
    /// Source ports.
    pub source_ports: Range<u16>,
    /// Destination ports.
    pub destination_ports: Range<u16>,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Differentiated services code point.
    pub dscp: u8,
    /// Whether UDP over IPv4 has a checksum.
    pub has_udp_checksum: bool,
    /// The first bytes of a frame, instead of all of the above.
    pub template: Option<Vec<u8>>,
    /// Lengths, without FCS, and how many of each round have them.
    pub sizes: Vec<FrameSize>,
    /// Whether frames have room for a time.
    pub is_timed: bool,
    /// Seed of the fields at random.
    pub seed: u64,
}

/// Reads an Ethernet address: six bytes as hex, with colons or dashes.
pub fn parse_mac(text: &str) -> Result<MacAddress, PlanError> {
    let bytes: Vec<Option<u8>> = text
        .split([':', '-'])
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| (1..=2).contains(&part.len())))
        .collect();
    let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| PlanError(format!("{text:?} is no MAC address; one is 02:00:00:00:00:01")))
}

fn parse_address(text: &str) -> Result<IpAddr, PlanError> {
    text.parse().map_err(|_| PlanError(format!("{text:?} is no IP address")))
}

fn parse_addresses(range: &AddressRange) -> Result<Range<IpAddr>, PlanError> {
    let (first, last) = (parse_address(&range.first)?, parse_address(&range.last)?);
    let distance = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            u32::from(last).checked_sub(u32::from(first)).map(|distance| u128::from(distance) + 1)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            u128::from(last).checked_sub(u128::from(first)).map(|distance| distance.saturating_add(1))
        }
        _ => None,
    };
    let backwards = || PlanError(format!("addresses from {first} to {last}: the last one is not behind the first"));
    Ok(Range { first, count: distance.ok_or_else(backwards)?, order: range.order })
}

fn parse_ports(range: &PortRange) -> Result<Range<u16>, PlanError> {
    parse_numbers(range.first, range.last, range.order, "ports")
}

fn parse_numbers(first: u16, last: u16, order: FieldOrder, what: &str) -> Result<Range<u16>, PlanError> {
    let backwards = || PlanError(format!("{what} from {first} to {last}: the last one is not behind the first"));
    let distance = last.checked_sub(first).ok_or_else(backwards)?;
    Ok(Range { first, count: u128::from(distance) + 1, order })
}

fn parse_outer(spec: &OuterSpec) -> Result<Outer, PlanError> {
    let outer = Outer {
        kind: spec.kind,
        source: parse_address(&spec.source)?,
        destination: parse_address(&spec.destination)?,
        identifier: spec.identifier,
    };
    if outer.source.is_ipv4() != outer.destination.is_ipv4() {
        return Err(PlanError(format!(
            "a tunnel from {} to {}: both are of one version",
            outer.source, outer.destination
        )));
    }
    if outer.kind == OuterKind::Vxlan && outer.identifier.is_none_or(|vni| vni >= 1 << 24) {
        return Err(PlanError("a VXLAN has a network identifier from 0 to 16777215".to_owned()));
    }
    Ok(outer)
}

fn parse_template(text: &str) -> Result<Vec<u8>, PlanError> {
    let letters: Vec<char> = text.chars().filter(|letter| !letter.is_whitespace() && *letter != ':').collect();
    let wrong = || PlanError("a template is a frame as hex digits, two for each byte".to_owned());
    let byte = |pair: &[char]| match pair {
        [high, low] => Some((high.to_digit(16)? << 4 | low.to_digit(16)?) as u8),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = letters.chunks(2).map(byte).collect();
    bytes.filter(|bytes| bytes.len() >= 14).ok_or_else(wrong)
}

impl FramePlan {
    /// Reads a specification.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(spec: &FrameSpec, flows: &PacketFlows, is_timed: bool) -> Result<Self, PlanError> {
        let vlan = |vlan: &leadline_wire::VlanSpec| {
            let numbers = parse_numbers(vlan.first, vlan.last, FieldOrder::InTurn, "VLANs")?;
            if vlan.last > MAX_VLAN || vlan.priority > MAX_PRIORITY {
                let what = "a VLAN is from 0 to 4094 and its priority from 0 to 7";
                return Err(PlanError(format!("VLAN {}, priority {}: {what}", vlan.last, vlan.priority)));
            }
            Ok(Vlan { protocol: vlan.protocol, numbers, priority: vlan.priority })
        };
        let plan = Self {
            source_mac: spec.source_mac.as_deref().map(parse_mac).transpose()?,
            destination_mac: spec.destination_mac.as_deref().map(parse_mac).transpose()?,
            vlans: spec.vlans.iter().map(vlan).collect::<Result<_, _>>()?,
            outer: spec.outer.as_ref().map(parse_outer).transpose()?,
            sources: spec.sources.as_ref().map(parse_addresses).transpose()?,
            destinations: parse_addresses(&spec.destinations)?,
            transport: spec.transport,
            source_ports: parse_ports(&spec.source_ports)?,
            destination_ports: parse_ports(&spec.destination_ports)?,
            ttl: spec.ttl,
            dscp: spec.dscp,
            has_udp_checksum: spec.has_udp_checksum,
            template: spec.template.as_deref().map(parse_template).transpose()?,
            sizes: spec.sizes.clone(),
            is_timed,
            seed: flows.seed,
        };
        plan.check(flows)?;
        Ok(plan)
    }

    fn check(&self, flows: &PacketFlows) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError(text));
        if self.vlans.len() > 2 {
            return refuse(format!("{} VLAN tags: a frame has at most two", self.vlans.len()));
        }
        if let Some(sources) = self.sources.filter(|sources| sources.first.is_ipv4() != self.is_v4()) {
            let (source, destination) = (sources.first, self.destinations.first);
            return refuse(format!("from {source} to {destination}: both are of one version of IP"));
        }
        if self.ttl == 0 || self.dscp > MAX_DSCP {
            return refuse(format!("TTL {}, DSCP {}: a TTL is at least 1, a DSCP at most 63", self.ttl, self.dscp));
        }
        if flows.count == 0 || flows.count > 1 << FLOW_BITS {
            return refuse(format!("{} flows: there are from 1 to {}", flows.count, 1 << FLOW_BITS));
        }
        if flows.zipf.is_some_and(|exponent| !(0.0..=10.0).contains(&exponent)) {
            return refuse("the exponent of Zipf's law is from 0 to 10".to_owned());
        }
        if self.sizes.is_empty() || self.sizes.len() > MAX_SIZES || self.sizes.iter().any(|size| size.count == 0) {
            return refuse(format!("frames have from 1 to {MAX_SIZES} lengths, each at least once a round"));
        }
        let shortest = self.shortest();
        for size in &self.sizes {
            if size.bytes < shortest || size.bytes > MAX_FRAME_LENGTH {
                let why = if self.is_timed { ", with times" } else { "" };
                let range = format!("these frames{why} have from {shortest} to {MAX_FRAME_LENGTH} bytes without FCS");
                return refuse(format!("frames of {} bytes: {range}", size.bytes));
            }
        }
        let different = self.count_different();
        if let Some(different) = different.filter(|different| *different < u128::from(flows.count)) {
            let more = "widen a range of ports or addresses";
            return refuse(format!("{} flows: the ranges make only {different} different ones; {more}", flows.count));
        }
        Ok(())
    }

    fn count_different(&self) -> Option<u128> {
        if self.template.is_some() {
            return None;
        }
        let mut counts = vec![(self.source_ports.count, self.source_ports.order)];
        if self.transport != FrameTransport::IcmpEcho {
            counts.push((self.destination_ports.count, self.destination_ports.order));
        }
        counts.extend(self.sources.iter().chain([&self.destinations]).map(|range| (range.count, range.order)));
        counts.extend(self.vlans.iter().map(|vlan| (vlan.numbers.count, vlan.numbers.order)));
        count_different(&counts)
    }

    /// Whether packets (the inner ones of a tunnel) are of IPv4.
    pub fn is_v4(&self) -> bool {
        self.destinations.first.is_ipv4()
    }

    /// The destination of the frames, outside of a tunnel.
    pub fn first_destination(&self) -> IpAddr {
        self.outer.map_or(self.destinations.first, |outer| outer.destination)
    }

    /// Bytes of the trailer.
    pub fn trailer_bytes(&self) -> usize {
        if self.is_timed {
            TIMED_BYTES
        } else {
            PLAIN_BYTES
        }
    }

    /// The shortest frame that has all headers, the trailer, and no less than Ethernet's least without its tags: a frame
    /// that lost its tags on the way must not be padded.
    pub fn shortest(&self) -> u32 {
        let least = MIN_FRAME_LENGTH + TAG_BYTES * self.vlans.len() as u32;
        let headers = self.template.as_ref().map_or_else(|| self.header_bytes(), |_| 14);
        least.max((headers + self.trailer_bytes()) as u32)
    }

    /// Bytes of all headers.
    pub fn header_bytes(&self) -> usize {
        let network = |is_v4: bool| if is_v4 { 20 } else { 40 };
        let transport = match self.transport {
            FrameTransport::Udp | FrameTransport::IcmpEcho => 8,
            FrameTransport::TcpSyn | FrameTransport::TcpAck => 20,
        };
        let outer = self.outer.map_or(0, |outer| {
            network(outer.destination.is_ipv4())
                + match outer.kind {
                    OuterKind::Gre => 4 + if outer.identifier.is_some() { 4 } else { 0 },
                    OuterKind::Vxlan => 8 + 8 + 14,
                }
        });
        14 + 4 * self.vlans.len() + outer + network(self.is_v4()) + transport
    }
}
