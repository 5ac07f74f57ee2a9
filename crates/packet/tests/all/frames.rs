//! Frames and captures made for tests, with checksums by an implementation of their own.

use std::net::IpAddr;

/// The Internet checksum, byte by byte.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 = 0;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |byte| u32::from(*byte));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What a test asks of a frame.
#[derive(Clone, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub payload: Vec<u8>,
    pub tags: Vec<u16>,
    /// Whether UDP has no checksum.
    pub has_no_checksum: bool,
}

impl Packet {
    pub fn new(source: &str, destination: &str, protocol: u8, payload: &[u8]) -> Self {
        let address = |text: &str| text.parse().expect("the address is valid");
        let (source, destination) = (address(source), address(destination));
        Self { source, destination, protocol, payload: payload.to_vec(), tags: Vec::new(), has_no_checksum: false }
    }

    /// The whole frame, with right checksums.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 9, 9, 9, 9, 1, 2, 9, 9, 9, 9, 2];
        for tag in &self.tags {
            frame.extend_from_slice(&[0x81, 0]);
            frame.extend_from_slice(&tag.to_be_bytes());
        }
        let body = self.transport();
        if let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) {
            frame.extend_from_slice(&[8, 0]);
            let mut header = vec![0x45, 0];
            header.extend_from_slice(&(20 + body.len() as u16).to_be_bytes());
            header.extend_from_slice(&[0, 7, 0, 0, 64, self.protocol, 0, 0]);
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&header);
        } else {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&(body.len() as u16).to_be_bytes());
            frame.extend_from_slice(&[self.protocol, 64]);
            frame.extend_from_slice(&octets(self.source));
            frame.extend_from_slice(&octets(self.destination));
        }
        frame.extend_from_slice(&body);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let (mut header, at) = match self.protocol {
            6 => ([&[0, 80, 1, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0][..]].concat(), 16),
            17 => {
                let length = (8 + self.payload.len() as u16).to_be_bytes();
                (vec![0, 53, 0, 99, length[0], length[1], 0, 0], 6)
            }
            _ => (vec![8, 0, 0, 0, 0, 1, 0, 2], 2),
        };
        if !(self.protocol == 17 && self.has_no_checksum) {
            let bytes = (header.len() + self.payload.len()) as u32;
            let pseudo =
                [octets(self.source), octets(self.destination), bytes.to_be_bytes().to_vec(), vec![0, self.protocol]];
            let pseudo = if self.protocol == 1 { Vec::new() } else { pseudo.concat() };
            let sum = checksum(&[&pseudo, &header, &self.payload]);
            let sum = if self.protocol == 17 && sum == 0 { 0xffff } else { sum };
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        header.extend_from_slice(&self.payload);
        header
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Numbers in either byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub is_big: bool,
}

impl Order {
    pub fn u16(self, number: u16) -> Vec<u8> {
        if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() }.to_vec()
    }

    pub fn u32(self, number: u32) -> Vec<u8> {
        if self.is_big { number.to_be_bytes() } else { number.to_le_bytes() }.to_vec()
    }

    /// A pcap header with a link type.
    pub fn pcap_header(self, is_nano: bool, link_type: u32) -> Vec<u8> {
        let magic = self.u32(if is_nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
        let rest = [self.u32(0), self.u32(0), self.u32(65535), self.u32(link_type)].concat();
        [magic, self.u16(2), self.u16(4), rest].concat()
    }

    /// A record of pcap.
    pub fn record(self, seconds: u32, fraction: u32, original_bytes: u32, frame: &[u8]) -> Vec<u8> {
        let head = [seconds, fraction, frame.len() as u32, original_bytes].map(|number| self.u32(number)).concat();
        [&head, frame].concat()
    }

    /// A block of pcapng.
    pub fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = self.u32((12 + body.len() + padding.len()) as u32);
        [&self.u32(kind), &length, body, &padding, &length].concat()
    }

    /// The header of a section.
    pub fn section(self) -> Vec<u8> {
        let body = [self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), vec![0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    /// The description of an interface, with options.
    pub fn interface(self, link_type: u16, snapshot_bytes: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [self.u16(link_type), self.u16(0), self.u32(snapshot_bytes)].concat();
        for (code, value) in options {
            body.extend([self.u16(*code), self.u16(value.len() as u16), value.to_vec()].concat());
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    /// A frame with its time.
    pub fn enhanced(self, interface: u32, ticks: u64, original_bytes: u32, frame: &[u8]) -> Vec<u8> {
        let numbers = [interface, (ticks >> 32) as u32, ticks as u32, frame.len() as u32, original_bytes];
        let mut body = numbers.map(|number| self.u32(number)).concat();
        body.extend_from_slice(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        // A comment, which is passed over.
        body.extend([self.u16(1), self.u16(3), b"abc\0".to_vec(), vec![0; 4]].concat());
        self.block(6, &body)
    }
}
