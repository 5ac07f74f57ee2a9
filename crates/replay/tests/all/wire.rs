//! Captures made for tests: conversations over TCP as frames, with what goes wrong on the way.

use std::net::IpAddr;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Numbers that repeat from run to run (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A frame with its time.
#[derive(Clone, Debug)]
pub struct Frame {
    pub at_ns: u64,
    /// Who sent it: 0 the client, 1 the server.
    pub from: usize,
    pub payload_bytes: usize,
    pub bytes: Vec<u8>,
    /// Its length on the wire.
    pub original_bytes: u32,
}

/// A conversation of two ends.
#[derive(Debug)]
pub struct Talk {
    pub ends: [(IpAddr, u16); 2],
    /// The number of the next byte of each.
    pub next: [u32; 2],
    pub now_ns: u64,
    pub frames: Vec<Frame>,
    pub segment_bytes: usize,
}

impl Talk {
    /// One that begins with a handshake.
    pub fn new(client_port: u16, now_ns: u64, first: u32) -> Self {
        let mut talk = Self::silent(client_port, now_ns, first);
        talk.shake_hands();
        talk
    }

    /// One without a beginning.
    pub fn silent(client_port: u16, now_ns: u64, first: u32) -> Self {
        let address = |text: &str| text.parse().expect("the address is valid");
        Self {
            ends: [(address("10.0.0.1"), client_port), (address("10.0.0.2"), 80)],
            next: [first, first.wrapping_mul(7)],
            now_ns,
            frames: Vec::new(),
            segment_bytes: 1448,
        }
    }

    pub fn shake_hands(&mut self) {
        let first = self.next[0];
        self.push(0, SYN, first, b"");
        self.next[0] = first.wrapping_add(1);
        let first = self.next[1];
        self.push(1, SYN | ACK, first, b"");
        self.next[1] = first.wrapping_add(1);
        self.push(0, ACK, self.next[0], b"");
    }

    /// Sends bytes in segments.
    pub fn send(&mut self, from: usize, text: &[u8]) {
        for segment in text.chunks(self.segment_bytes) {
            self.push(from, ACK, self.next[from], segment);
            self.next[from] = self.next[from].wrapping_add(segment.len() as u32);
        }
    }

    /// Acknowledges what came.
    pub fn acknowledge(&mut self, from: usize) {
        self.push(from, ACK, self.next[from], b"");
    }

    /// Ends a direction, with its last bytes.
    pub fn end(&mut self, from: usize, text: &[u8]) {
        self.push(from, FIN | ACK, self.next[from], text);
        self.next[from] = self.next[from].wrapping_add(text.len() as u32 + 1);
    }

    /// Ends both.
    pub fn close(&mut self) {
        self.end(0, b"");
        self.end(1, b"");
        self.acknowledge(0);
    }

    pub fn push(&mut self, from: usize, flags: u8, sequence: u32, payload: &[u8]) {
        self.now_ns += 1000;
        let acknowledged = if flags & ACK != 0 { self.next[1 - from] } else { 0 };
        let bytes = ethernet(self.ends[from], self.ends[1 - from], sequence, acknowledged, flags, payload);
        let original_bytes = bytes.len() as u32;
        self.frames.push(Frame { at_ns: self.now_ns, from, payload_bytes: payload.len(), bytes, original_bytes });
    }
}

/// A frame of Ethernet, with checksums that are wrong.
pub fn ethernet(
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![2; 12];
    let transport = (20 + payload.len()) as u16;
    match (source.0, destination.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend_from_slice(&[8, 0, 0x45, 0]);
            frame.extend_from_slice(&(20 + transport).to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0xba, 0xad]);
            frame.extend_from_slice(&from.octets());
            frame.extend_from_slice(&to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&transport.to_be_bytes());
            frame.extend_from_slice(&[6, 64]);
            frame.extend_from_slice(&from.octets());
            frame.extend_from_slice(&to.octets());
        }
        _ => panic!("both ends have one family"),
    }
    frame.extend_from_slice(&source.1.to_be_bytes());
    frame.extend_from_slice(&destination.1.to_be_bytes());
    frame.extend_from_slice(&sequence.to_be_bytes());
    frame.extend_from_slice(&acknowledged.to_be_bytes());
    frame.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0xba, 0xad, 0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// The header of a pcap file with ns.
pub fn pcap_header(link_type: u32) -> Vec<u8> {
    let numbers = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, link_type];
    numbers.iter().flat_map(|number: &u32| number.to_le_bytes()).collect()
}

/// Appends a frame to a pcap file.
pub fn push_record(file: &mut Vec<u8>, at_ns: u64, bytes: &[u8], original_bytes: u32) {
    let numbers = [(at_ns / 1_000_000_000) as u32, (at_ns % 1_000_000_000) as u32, bytes.len() as u32, original_bytes];
    file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    file.extend_from_slice(bytes);
}

/// A file of Ethernet frames.
pub fn pcap<'f>(frames: impl IntoIterator<Item = &'f Frame>) -> Vec<u8> {
    let mut file = pcap_header(1);
    for frame in frames {
        push_record(&mut file, frame.at_ns, &frame.bytes, frame.original_bytes);
    }
    file
}
