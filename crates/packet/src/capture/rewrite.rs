//! Addresses of a captured frame replaced by those of the network where it is replayed, with its checksums put right.
//!
//! A checksum is changed by exactly what was replaced under it: so one that was wrong stays wrong, the first of several
//! fragments is right though its rest is elsewhere, and a frame that was cut needs no more of it. Not replaced: addresses
//! within payloads, as of ICMP errors, tunnels and DNS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layers::{self, Ip, Network, Transport, ETHERNET_BYTES};
use crate::checksum::{self, Change};

/// Addresses of one prefix become those of another, of the same length; the bits behind it stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressMap {
    from: u128,
    to: u128,
    mask: u128,
    is_v4: bool,
}

impl AddressMap {
    /// Maps a prefix to another; `None` if the addresses are not of one family, or the length is none of it.
    pub fn new(from: IpAddr, to: IpAddr, prefix_bits: u8) -> Option<Self> {
        let (from_bits, width) = bits_of(from);
        let (to_bits, _) = bits_of(to);
        if from.is_ipv4() != to.is_ipv4() || u32::from(prefix_bits) > width {
            return None;
        }
        let every = u128::MAX >> (128 - width);
        let host = every.checked_shr(prefix_bits.into()).filter(|_| u32::from(prefix_bits) < width).unwrap_or(0);
        let mask = every & !host;
        Some(Self { from: from_bits & mask, to: to_bits & mask, mask, is_v4: from.is_ipv4() })
    }

    fn map(&self, address: IpAddr) -> Option<IpAddr> {
        let (bits, _) = bits_of(address);
        if address.is_ipv4() != self.is_v4 || bits & self.mask != self.from {
            return None;
        }
        Some(address_of(bits & !self.mask | self.to, self.is_v4))
    }
}

/// VLAN identifiers become others; the priority stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanMap {
    /// Which; `None` is every one.
    pub from: Option<u16>,
    /// The other one, below 4096.
    pub to: u16,
}

/// What is replaced. Of several entries that fit, the first one holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The source of every frame.
    pub source_mac: Option<[u8; 6]>,
    /// The destination of every frame.
    pub destination_mac: Option<[u8; 6]>,
    /// Source addresses of IP, and those of ARP's senders.
    pub sources: Vec<AddressMap>,
    /// Destination addresses of IP, and those that ARP asks for.
    pub destinations: Vec<AddressMap>,
    /// VLAN identifiers, of every tag.
    pub vlans: Vec<VlanMap>,
    /// Whether each loop has addresses of its own: the lower one of a packet's two is reduced by the loop's number, the
    /// higher one increased, so that both directions of a flow stay one.
    pub has_new_addresses: bool,
    /// Whether checksums are computed whole, for captures of hosts that left them to their network card.
    pub is_whole: bool,
}

impl Rewrite {
    /// Whether frames stay as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Changes one frame in place. `loop_number` counts from 0.
    pub fn apply(&self, frame: &mut [u8], loop_number: u32) {
        if frame.len() < ETHERNET_BYTES {
            return;
        }
        self.destination_mac.inspect(|mac| frame[..6].copy_from_slice(mac));
        self.source_mac.inspect(|mac| frame[6..12].copy_from_slice(mac));
        self.replace_vlans(frame);
        match layers::parse(frame) {
            Network::V4(ip) => self.replace_addresses(frame, &ip, 12, 4, loop_number),
            Network::V6(ip) => self.replace_addresses(frame, &ip, 8, 16, loop_number),
            Network::Arp { at } => self.replace_arp(frame, at, loop_number),
            Network::Other => {}
        }
    }

    fn replace_vlans(&self, frame: &mut [u8]) {
        if self.vlans.is_empty() {
            return;
        }
        // Each is at 14, 18, 22 and so on, without a gap.
        let mut tags = 0;
        let _ = layers::read_tags(frame, |_| tags += 1);
        for place in (0..tags).map(|tag| ETHERNET_BYTES + 4 * tag) {
            let control = u16::from_be_bytes([frame[place], frame[place + 1]]);
            let id = control & 0x0fff;
            if let Some(map) = self.vlans.iter().find(|map| map.from.is_none_or(|from| from == id)) {
                frame[place..place + 2].copy_from_slice(&(control & 0xf000 | map.to & 0x0fff).to_be_bytes());
            }
        }
    }

    fn replace_addresses(&self, frame: &mut [u8], ip: &Ip, offset: usize, bytes: usize, loop_number: u32) {
        let at = ip.at + offset;
        let ends = [read_address(frame, at, bytes), read_address(frame, at + bytes, bytes)];
        let [source, destination] = self.replaced(ends, loop_number);
        let source = write_address(frame, at, source);
        let destination = write_address(frame, at + bytes, destination);
        let mut change = source;
        change.join(destination);
        if bytes == 4 {
            change.apply(frame, ip.at + 10);
        }
        if let Some(transport) = ip.transport {
            put_right(frame, &transport, if transport.is_routed { source } else { change });
        }
        if self.is_whole {
            compute_whole(frame, ip, bytes == 4);
        }
    }

    fn replace_arp(&self, frame: &mut [u8], at: usize, loop_number: u32) {
        let (sender, target) = (at + 14, at + 24);
        let ends = [read_address(frame, sender, 4), read_address(frame, target, 4)];
        let [source, destination] = self.replaced(ends, loop_number);
        write_address(frame, sender, source);
        write_address(frame, target, destination);
        self.source_mac.inspect(|mac| frame[at + 8..at + 14].copy_from_slice(mac));
    }

    fn replaced(&self, [source, destination]: [IpAddr; 2], loop_number: u32) -> [IpAddr; 2] {
        let mapped =
            |address: IpAddr, maps: &[AddressMap]| maps.iter().find_map(|map| map.map(address)).unwrap_or(address);
        let ends = [mapped(source, &self.sources), mapped(destination, &self.destinations)];
        if self.has_new_addresses && loop_number > 0 {
            return of_loop(ends, loop_number);
        }
        ends
    }
}

/// Groups and broadcasts are known to others by their addresses, which therefore stay.
fn of_loop([source, destination]: [IpAddr; 2], loop_number: u32) -> [IpAddr; 2] {
    let is_fixed = |address: IpAddr| {
        address.is_multicast() || address.is_unspecified() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
    };
    if is_fixed(source) || is_fixed(destination) {
        return [source, destination];
    }
    let step = |address: IpAddr, is_lower: bool| match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let moved = if is_lower { bits.wrapping_sub(loop_number) } else { bits.wrapping_add(loop_number) };
            IpAddr::V4(Ipv4Addr::from_bits(moved))
        }
        IpAddr::V6(address) => {
            let (bits, step) = (address.to_bits(), u128::from(loop_number));
            let moved = if is_lower { bits.wrapping_sub(step) } else { bits.wrapping_add(step) };
            IpAddr::V6(Ipv6Addr::from_bits(moved))
        }
    };
    [step(source, source <= destination), step(destination, destination < source)]
}

fn put_right(frame: &mut [u8], transport: &Transport, change: Change) {
    let Some((at, true)) = transport.checksum() else { return };
    let Some(place) = frame.get(at..at + 2) else { return };
    if at + 2 > transport.end || (transport.zero_is_none() && place == [0, 0]) {
        return;
    }
    change.apply(frame, at);
    if transport.zero_is_none() && frame[at..at + 2] == [0, 0] {
        frame[at..at + 2].fill(0xff);
    }
}

/// Leaves out what its sender left out, and what lies in part elsewhere or was cut.
pub(super) fn compute_whole(frame: &mut [u8], ip: &Ip, is_v4: bool) {
    if is_v4 {
        frame[ip.at + 10..ip.at + 12].fill(0);
        let sum = checksum::finish(checksum::sum(&frame[ip.at..ip.at + ip.header_bytes]));
        frame[ip.at + 10..ip.at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let Some(transport) = ip.transport else { return };
    let Some((at, has_pseudo_header)) = transport.checksum() else { return };
    let is_whole = !transport.is_fragment && !transport.is_routed && transport.is_covered();
    if !is_whole || at + 2 > transport.end || transport.end > frame.len() {
        return;
    }
    if is_v4 && transport.zero_is_none() && frame[at..at + 2] == [0, 0] {
        return;
    }
    frame[at..at + 2].fill(0);
    let body = checksum::sum(&frame[transport.at..transport.end]);
    let bytes = transport.end - transport.at;
    let pseudo = if has_pseudo_header { layers::pseudo_header(frame, ip, transport.protocol, bytes) } else { 0 };
    let sum = checksum::finish(body + pseudo);
    let sum = if sum == 0 && transport.zero_is_none() { 0xffff } else { sum };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Reads an address, which the caller knows to be in the frame.
fn read_address(frame: &[u8], at: usize, bytes: usize) -> IpAddr {
    let read = frame[at..at + bytes].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    address_of(read, bytes == 4)
}

/// Returns what changed.
fn write_address(frame: &mut [u8], at: usize, address: IpAddr) -> Change {
    let mut change = Change::default();
    let mut write = |new: &[u8]| {
        let place = &mut frame[at..at + new.len()];
        if *place != *new {
            change.replace(place, new);
            place.copy_from_slice(new);
        }
    };
    match address {
        IpAddr::V4(address) => write(&address.octets()),
        IpAddr::V6(address) => write(&address.octets()),
    }
    change
}

fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

fn address_of(bits: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }
}
