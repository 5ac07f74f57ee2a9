//! The two directions of a security association: an ESP packet is `SPI | sequence | IV | payload | padding 1,2,3... |
//! padding length | next header | ICV` (RFC 4303, section 2). Neither direction allocates per packet.

use super::cipher::{BadKey, CipherSuite, Direction, PacketCipher};
use super::replay::ReplayWindow;

/// Length of SPI and sequence number, bytes.
pub const HEADER_BYTES: usize = 8;
const TRAILER_BYTES: usize = 2;
/// The sequence number at which new keys are due.
const REKEY_LIMIT: u32 = 0xF000_0000;
const NEXT_IPV4: u8 = 4;
const NEXT_IPV6: u8 = 41;
/// RFC 4303, section 2.6: a dummy packet, which is discarded without notice.
const NEXT_NONE: u8 = 59;

/// What both ends have agreed on for one security association, besides its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Encryption and integrity.
    pub suite: CipherSuite,
    /// Whether sequence numbers have 64 bits.
    pub has_esn: bool,
    /// Number of packets that may arrive late; 0 switches the check off.
    pub replay_window: u32,
}

/// Why a packet was not sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EspError {
    /// Fewer bytes than the headers.
    #[error("the packet is too short")]
    Short,
    /// Repeated, or behind the window.
    #[error("the packet is repeated or too late")]
    Replayed,
    /// Not sealed with this key.
    #[error("the packet is not authentic")]
    Forged,
    /// Authentic, but its padding or next header is not valid.
    #[error("the packet's padding or next header is not valid")]
    Malformed,
    /// The payload is no IP packet.
    #[error("the payload is not an IP packet")]
    NotIp,
    /// RFC 4303, section 2.2: a sequence number never repeats.
    #[error("the sequence numbers are used up")]
    Exhausted,
}

/// The sending direction.
pub struct Outbound {
    spi: u32,
    sequence: u64,
    has_esn: bool,
    cipher: PacketCipher,
}

impl Outbound {
    /// Creates the direction whose packets carry `spi`.
    ///
    /// # Errors
    /// The key does not fit the suite.
    pub fn new(policy: &Policy, spi: u32, key: &[u8]) -> Result<Self, BadKey> {
        let cipher = PacketCipher::new(policy.suite, Direction::Seal, key)?;
        Ok(Self { spi, sequence: 0, has_esn: policy.has_esn, cipher })
    }

    /// The SPI of its packets.
    #[must_use]
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Number of sealed packets.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the packet that was sealed last is the one after which new keys are due: without ESN, a sixteenth of the
    /// numbers is left.
    #[must_use]
    pub fn has_reached_rekey_limit(&self) -> bool {
        !self.has_esn && self.sequence == u64::from(REKEY_LIMIT)
    }

    /// Seals an IP packet and appends it to `out`; after `Err`, `out` is unchanged.
    ///
    /// # Errors
    /// `payload` is no IP packet, or the sequence numbers are used up.
    pub fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), EspError> {
        let next_header = match payload.first().map(|byte| byte >> 4) {
            Some(4) => NEXT_IPV4,
            Some(6) => NEXT_IPV6,
            _ => return Err(EspError::NotIp),
        };
        let limit = if self.has_esn { u64::MAX } else { u64::from(u32::MAX) };
        if self.sequence >= limit {
            return Err(EspError::Exhausted);
        }
        let sequence = self.sequence + 1;
        let start = out.len();
        self.write_plain(payload, next_header, sequence, out);
        let (header, packet) = out[start..].split_at_mut(HEADER_BYTES);
        let associated = Associated::new(self.spi, sequence, self.has_esn, self.cipher.is_aead());
        debug_assert_eq!(header.len(), HEADER_BYTES);
        if self.cipher.seal(associated.before(), packet, associated.after()).is_err() {
            out.truncate(start);
            return Err(EspError::Exhausted);
        }
        self.sequence = sequence;
        Ok(())
    }

    fn write_plain(&self, payload: &[u8], next_header: u8, sequence: u64, out: &mut Vec<u8>) {
        // RFC 4303, section 2.4: the trailer ends at a multiple of 4 bytes.
        let align = self.cipher.block_bytes().max(4);
        let padding = (align - (payload.len() + TRAILER_BYTES) % align) % align;
        let (iv, icv) = (self.cipher.iv_bytes(), self.cipher.icv_bytes());
        out.reserve(HEADER_BYTES + iv + payload.len() + padding + TRAILER_BYTES + icv);
        out.extend_from_slice(&self.spi.to_be_bytes());
        out.extend_from_slice(&(sequence as u32).to_be_bytes());
        out.extend_from_slice(&[0; 16][..iv]);
        out.extend_from_slice(payload);
        out.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15][..padding]);
        out.extend_from_slice(&[padding as u8, next_header]);
        out.extend_from_slice(&[0; 32][..icv]);
    }
}

/// The content of an authentic packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'p> {
    /// An IP packet.
    Payload(&'p mut [u8]),
    /// A dummy packet: nothing to deliver.
    Dummy,
}

/// The receiving direction.
pub struct Inbound {
    spi: u32,
    has_esn: bool,
    window: ReplayWindow,
    cipher: PacketCipher,
}

impl Inbound {
    /// Creates the direction whose packets carry `spi`.
    ///
    /// # Errors
    /// The key does not fit the suite.
    pub fn new(policy: &Policy, spi: u32, key: &[u8]) -> Result<Self, BadKey> {
        let cipher = PacketCipher::new(policy.suite, Direction::Open, key)?;
        Ok(Self { spi, has_esn: policy.has_esn, window: ReplayWindow::new(policy.replay_window), cipher })
    }

    /// The SPI of its packets.
    #[must_use]
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// Opens a packet in place. The caller has found this direction by the packet's SPI.
    ///
    /// # Errors
    /// The packet is dropped for the named reason.
    pub fn open<'p>(&mut self, packet: &'p mut [u8]) -> Result<Opened<'p>, EspError> {
        let (header, sealed) = packet.split_first_chunk_mut::<HEADER_BYTES>().ok_or(EspError::Short)?;
        let low = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let sequence = if self.has_esn { self.window.extend(low) } else { u64::from(low) };
        if !self.window.is_new(sequence) {
            return Err(EspError::Replayed);
        }
        let associated = Associated::new(self.spi, sequence, self.has_esn, self.cipher.is_aead());
        let opened = self.cipher.open(associated.before(), sealed, associated.after());
        let plain = opened.map_err(|_| EspError::Forged)?;
        self.window.record(sequence);
        let (payload, next_header) = strip_padding(plain).ok_or(EspError::Malformed)?;
        match (next_header, payload.first().map(|byte| byte >> 4)) {
            (NEXT_NONE, _) => Ok(Opened::Dummy),
            (NEXT_IPV4, Some(4)) | (NEXT_IPV6, Some(6)) => Ok(Opened::Payload(payload)),
            _ => Err(EspError::Malformed),
        }
    }
}

/// The payload without its padding, and the next header; `None` unless the padding is 1, 2, 3...
fn strip_padding(plain: &mut [u8]) -> Option<(&mut [u8], u8)> {
    let (rest, &mut [padding, next_header]) = plain.split_last_chunk_mut::<TRAILER_BYTES>()?;
    let end = rest.len().checked_sub(usize::from(padding))?;
    let (payload, pad) = rest.split_at_mut(end);
    let is_valid = pad.iter().zip(1u8..=255).all(|(byte, expected)| *byte == expected);
    is_valid.then_some((payload, next_header))
}

/// The authenticated bytes outside of IV and ciphertext. An AEAD covers `SPI | upper half | lower half`; another cipher
/// covers the packet, and the upper half as if it followed the ciphertext (RFC 4303, section 2.2.1).
struct Associated {
    bytes: [u8; 12],
    is_interleaved: bool,
    has_esn: bool,
}

impl Associated {
    fn new(spi: u32, sequence: u64, has_esn: bool, is_aead: bool) -> Self {
        let is_interleaved = has_esn && is_aead;
        let (high, low) = ((sequence >> 32) as u32, sequence as u32);
        let words = if is_interleaved { [spi, high, low] } else { [spi, low, high] };
        let mut bytes = [0; 12];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        Self { bytes, is_interleaved, has_esn }
    }

    fn before(&self) -> &[u8] {
        if self.is_interleaved {
            &self.bytes
        } else {
            &self.bytes[..8]
        }
    }

    fn after(&self) -> &[u8] {
        if self.has_esn && !self.is_interleaved {
            &self.bytes[8..]
        } else {
            &[]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cipher::{Encryption, Integrity};
    use super::*;

    fn suites() -> Vec<CipherSuite> {
        let aead = |encryption| CipherSuite { encryption, integrity: None };
        let mut suites = vec![aead(Encryption::ChaCha20Poly1305)];
        for bits in [128, 192, 256] {
            suites.push(aead(Encryption::AesGcm16(bits)));
            for integrity in [Integrity::Sha256, Integrity::Sha384, Integrity::Sha512] {
                suites.push(CipherSuite { encryption: Encryption::AesCbc(bits), integrity: Some(integrity) });
            }
        }
        suites
    }

    fn pair(policy: &Policy) -> (Outbound, Inbound) {
        let key: Vec<u8> = (0..policy.suite.key_bytes() as u8).collect();
        (Outbound::new(policy, 0x1234, &key).expect("a key"), Inbound::new(policy, 0x1234, &key).expect("a key"))
    }

    fn ip_packet(len: usize) -> Vec<u8> {
        let mut packet = vec![0x5A; len];
        packet[0] = 0x45;
        packet
    }

    #[test]
    fn sealed_packets_open_for_each_suite_and_size_and_only_once() {
        for suite in suites() {
            for has_esn in [false, true] {
                let policy = Policy { suite, has_esn, replay_window: 64 };
                let (mut outbound, mut inbound) = pair(&policy);
                for len in [20, 21, 22, 23, 84, 1400] {
                    let mut packet = vec![9; 3];
                    outbound.seal(&ip_packet(len), &mut packet).expect("sealed");
                    assert_eq!(packet[..3], [9; 3]);
                    let mut again = packet.clone();
                    let payload = ip_packet(len);
                    assert_eq!(inbound.open(&mut packet[3..]), Ok(Opened::Payload(&mut payload.clone()[..])));
                    assert_eq!(inbound.open(&mut again[3..]), Err(EspError::Replayed));
                }
            }
        }
    }

    #[test]
    fn changed_bytes_are_forged_and_leave_the_window_alone() {
        for suite in suites() {
            let (mut outbound, mut inbound) = pair(&Policy { suite, has_esn: true, replay_window: 32 });
            let mut packet = Vec::new();
            outbound.seal(&ip_packet(60), &mut packet).expect("sealed");
            for index in 4..packet.len() {
                let mut forged = packet.clone();
                forged[index] ^= 0x10;
                assert_eq!(inbound.open(&mut forged), Err(EspError::Forged), "byte {index}");
            }
            for len in 0..packet.len() {
                assert!(inbound.open(&mut packet.clone()[..len]).is_err());
            }
            assert!(inbound.open(&mut packet).is_ok());
        }
    }

    #[test]
    fn sequence_numbers_never_repeat_and_extend_past_32_bits_with_esn() {
        let suite = suites()[0];
        let (mut outbound, _) = pair(&Policy { suite, has_esn: false, replay_window: 32 });
        outbound.sequence = u64::from(REKEY_LIMIT) - 2;
        for is_due in [false, true, false] {
            outbound.seal(&ip_packet(20), &mut Vec::new()).expect("sealed");
            assert_eq!(outbound.has_reached_rekey_limit(), is_due);
        }
        outbound.sequence = u64::from(u32::MAX) - 1;
        assert!(outbound.seal(&ip_packet(20), &mut Vec::new()).is_ok());
        assert_eq!(outbound.seal(&ip_packet(20), &mut Vec::new()), Err(EspError::Exhausted));
        for suite in suites() {
            let (mut outbound, mut inbound) = pair(&Policy { suite, has_esn: true, replay_window: 32 });
            outbound.sequence = u64::from(u32::MAX) - 2;
            inbound.window.record(u64::from(u32::MAX) - 2);
            for _ in 0..4 {
                let mut packet = Vec::new();
                outbound.seal(&ip_packet(20), &mut packet).expect("sealed");
                assert!(inbound.open(&mut packet).is_ok());
            }
            assert_eq!(outbound.sequence(), u64::from(u32::MAX) + 2);
        }
    }

    #[test]
    fn padding_counts_up_and_wrong_padding_is_refused() {
        let mut right = [0x45, 1, 2, 3, 3, 4];
        assert_eq!(strip_padding(&mut right), Some((&mut [0x45][..], 4)));
        for mut wrong in [[0x45, 1, 2, 4, 3, 4], [0x45, 0, 0, 0, 3, 4], [1, 2, 3, 4, 255, 4]] {
            assert_eq!(strip_padding(&mut wrong), None);
        }
        assert_eq!(strip_padding(&mut [4]), None);
    }

    #[test]
    fn payload_without_an_ip_version_is_not_sealed() {
        let (mut outbound, _) = pair(&Policy { suite: suites()[0], has_esn: false, replay_window: 32 });
        for payload in [&[][..], &[0x00], &[0x55; 20]] {
            assert_eq!(outbound.seal(payload, &mut Vec::new()), Err(EspError::NotIp));
        }
    }

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
        digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    /// RFC 7634, appendix A: an ICMP echo request under ChaCha20-Poly1305.
    #[test]
    fn chacha20_packet_of_rfc_7634_opens() {
        let key = bytes("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f a0a1a2a3");
        let suite = CipherSuite { encryption: Encryption::ChaCha20Poly1305, integrity: None };
        let policy = Policy { suite, has_esn: false, replay_window: 32 };
        let mut inbound = Inbound::new(&policy, 0x0102_0304, &key).expect("a key");
        let mut packet = bytes(
            "01020304 00000005 1011121314151617 24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6\
             14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da\
             9165b82829f641e0 76aaa8266b7fb0f7b11b369907e1ad43",
        );
        let payload = bytes(
            "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f1011121314\
             15161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
        );
        assert_eq!(inbound.open(&mut packet), Ok(Opened::Payload(&mut payload.clone()[..])));
    }
}
