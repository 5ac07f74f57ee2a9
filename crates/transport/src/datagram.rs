//! The header at the start of a data connection and of every datagram: session, number, and time of sending.

use crate::iperf3;

/// Length of the header, bytes.
pub const HEADER_BYTES: usize = 40;
/// Length of the header of flows with datagrams that are shorter than `HEADER_BYTES`, bytes: a minimum Ethernet frame
/// with IPv4 has room for 18.
pub const SHORT_HEADER_BYTES: usize = 16;

/// Distinguishes our packets from others; the digit is the version of the layout.
const MAGIC: [u8; 4] = *b"LLD1";

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    /// First bytes of a TCP data connection.
    Stream,
    /// Introduces a UDP flow; repeated until answered. `sequence` has the nonce of the last `Challenge`, or 0 before
    /// one.
    Hello,
    /// The response to `Hello`.
    HelloAck,
    /// Payload.
    Data,
    /// A request of request-response.
    Request,
    /// Its response.
    Response,
    /// The response to a `Hello` without the right nonce: `sequence` has the right one.
    Challenge,
    /// First bytes of a TCP connection which proves that a client of the session is at its address: UDP flows may
    /// come from there.
    Address,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than a header.
    #[error("shorter than a header")]
    Short,
    /// Wrong magic number.
    #[error("not a Leadline packet")]
    Foreign,
    /// A kind that this version does not know.
    #[error("unknown kind of packet")]
    UnknownKind,
}

/// A packet header. Layout, big-endian: magic 4, kind 1, zero 3, token 8, flow 4, zero 4, sequence 8, sent 8 = 40
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's purpose.
    pub kind: HeaderKind,
    /// The session's secret; packets without it are ignored.
    pub token: u64,
    /// The flow's number within the session.
    pub flow: u32,
    /// The number in the order of sending, from 0.
    pub sequence: u64,
    /// When it was sent, ns on the sender's monotonic clock.
    pub sent_ns: u64,
}

impl Header {
    /// Writes the header into the first `HEADER_BYTES` of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that; buffers are allocated once, when a flow is created.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let kind = match self.kind {
            HeaderKind::Stream => 1,
            HeaderKind::Hello => 2,
            HeaderKind::HelloAck => 3,
            HeaderKind::Data => 4,
            HeaderKind::Request => 5,
            HeaderKind::Response => 6,
            HeaderKind::Challenge => 7,
            HeaderKind::Address => 8,
        };
        let out = &mut out[..HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&[kind, 0, 0, 0]);
        out[8..16].copy_from_slice(&self.token.to_be_bytes());
        out[16..20].copy_from_slice(&self.flow.to_be_bytes());
        out[20..24].fill(0);
        out[24..32].copy_from_slice(&self.sequence.to_be_bytes());
        out[32..40].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads the header at the start of a packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short)?;
        if header[0..4] != MAGIC {
            return Err(HeaderError::Foreign);
        }
        let kind = match header[4] {
            1 => HeaderKind::Stream,
            2 => HeaderKind::Hello,
            3 => HeaderKind::HelloAck,
            4 => HeaderKind::Data,
            5 => HeaderKind::Request,
            6 => HeaderKind::Response,
            7 => HeaderKind::Challenge,
            8 => HeaderKind::Address,
            _ => return Err(HeaderError::UnknownKind),
        };
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|index| header[at + index]));
        let flow = u32::from_be_bytes(std::array::from_fn(|index| header[16 + index]));
        Ok(Self { kind, token: word(8), flow, sequence: word(24), sent_ns: word(32) })
    }
}

/// How the datagrams of a flow are numbered and stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramFormat {
    /// By a `Header` with this token.
    Session(u64),
    /// By 16 bytes, big-endian: the lower halves of this token and of the number, and the time of sending. The socket
    /// is the flow's own, so its number is not needed.
    Short(u64),
    /// By iperf3's header, with numbers of 64 or 32 bits.
    Iperf3 {
        /// Whether the number has 64 bits.
        wide: bool,
    },
}

impl DatagramFormat {
    /// Length of the header, bytes.
    pub fn header_bytes(self) -> usize {
        match self {
            Self::Session(_) => HEADER_BYTES,
            Self::Short(_) => SHORT_HEADER_BYTES,
            Self::Iperf3 { wide } => iperf3::DatagramHeader::bytes(wide),
        }
    }

    /// Writes the header of a flow's datagram; numbers begin with 0.
    #[inline]
    pub fn write(self, flow: u32, sequence: u64, sent_ns: u64, datagram: &mut [u8]) {
        match self {
            Self::Session(token) => {
                Header { kind: HeaderKind::Data, token, flow, sequence, sent_ns }.write(datagram);
            }
            Self::Short(token) => {
                datagram[..4].copy_from_slice(&(token as u32).to_be_bytes());
                datagram[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
                datagram[8..16].copy_from_slice(&sent_ns.to_be_bytes());
            }
            Self::Iperf3 { wide } => {
                iperf3::DatagramHeader { sent_ns, number: sequence + 1 }.write(wide, datagram);
            }
        }
    }
}

/// Reads the short header of a flow with this token: the number, completed to the one nearest to `near`, and the time
/// of sending, ns. `None` if the datagram is too short or has another token.
#[inline]
pub fn parse_short(token: u64, datagram: &[u8], near: u64) -> Option<(u64, u64)> {
    let header: &[u8; SHORT_HEADER_BYTES] = datagram.first_chunk()?;
    let half = |at: usize| u32::from_be_bytes(std::array::from_fn(|index| header[at + index]));
    let sent_ns = u64::from_be_bytes(std::array::from_fn(|index| header[8 + index]));
    (half(0) == token as u32).then(|| (iperf3::completed(half(4), near), sent_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = HeaderKind> {
        use HeaderKind::{Address, Challenge, Data, Hello, HelloAck, Request, Response, Stream};
        prop_oneof![
            Just(Stream),
            Just(Hello),
            Just(HelloAck),
            Just(Data),
            Just(Request),
            Just(Response),
            Just(Challenge),
            Just(Address)
        ]
    }

    proptest! {
        #[test]
        fn datagram_headers_round_trip(kind in kinds(), token: u64, flow: u32, sequence: u64, sent_ns: u64) {
            let header = Header { kind, token, flow, sequence, sent_ns };
            let mut bytes = [0xffu8; HEADER_BYTES + 3];
            header.write(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes), Ok(header));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::parse(&bytes);
        }
    }

    #[test]
    fn foreign_packets_are_refused_by_reason() {
        assert_eq!(Header::parse(&[0; 39]), Err(HeaderError::Short));
        assert_eq!(Header::parse(&[0; 40]), Err(HeaderError::Foreign));
    }
}
