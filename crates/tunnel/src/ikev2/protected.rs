//! Encrypted messages (RFC 7296, section 3.14; RFC 5282), whole or in fragments (RFC 7383). Owns padding and what is
//! authenticated; the chain of payloads inside is the caller's.

use super::message::{payload, Header, MessageError, HEADER_BYTES, PAYLOAD_HEADER_BYTES};
use crate::esp::cipher::PacketCipher;

/// Bytes of fragment number and total after the generic header of SKF.
const FRAGMENT_BYTES: usize = 4;
/// Headers of IPv6 and UDP and the marker, which a datagram carries besides the message, bytes.
const OUTER_BYTES: usize = 40 + 8 + 4;

/// Seals a chain of payloads as one message, or as fragments if it would be longer than `max_bytes` as an IP packet.
///
/// # Errors
/// The cipher fails, or the chain needs more fragments than there are numbers.
pub fn seal(
    cipher: &mut PacketCipher,
    header: Header,
    first_payload: u8,
    chain: &[u8],
    max_bytes: Option<usize>,
) -> Result<Vec<Vec<u8>>, MessageError> {
    let overhead = HEADER_BYTES + PAYLOAD_HEADER_BYTES + cipher.iv_bytes() + cipher.block_bytes() + cipher.icv_bytes();
    let fragment_bytes = max_bytes.and_then(|max_bytes| max_bytes.checked_sub(OUTER_BYTES + overhead + FRAGMENT_BYTES));
    match fragment_bytes.filter(|bytes| *bytes > 0 && chain.len() > bytes + FRAGMENT_BYTES) {
        None => Ok(vec![seal_one(cipher, header, first_payload, None, chain)?]),
        Some(bytes) => {
            let total = u16::try_from(chain.len().div_ceil(bytes)).map_err(|_| MessageError::Length)?;
            let fragments = chain.chunks(bytes).zip(1u16..).map(|(part, number)| {
                let first_payload = if number == 1 { first_payload } else { payload::NONE };
                seal_one(cipher, header, first_payload, Some((number, total)), part)
            });
            fragments.collect()
        }
    }
}

fn seal_one(
    cipher: &mut PacketCipher,
    header: Header,
    first_payload: u8,
    fragment: Option<(u16, u16)>,
    content: &[u8],
) -> Result<Vec<u8>, MessageError> {
    let block = cipher.block_bytes();
    let padding = (block - (content.len() + 1) % block) % block;
    let sealed = cipher.iv_bytes() + content.len() + padding + 1 + cipher.icv_bytes();
    let body = fragment.map_or(0, |_| FRAGMENT_BYTES) + sealed;
    let length = HEADER_BYTES + PAYLOAD_HEADER_BYTES + body;
    let mut message = Vec::with_capacity(length);
    let next = if fragment.is_some() { payload::SKF } else { payload::SK };
    Header { next, ..header }.write(length, &mut message);
    message.extend_from_slice(&[first_payload, 0]);
    let payload_length = u16::try_from(PAYLOAD_HEADER_BYTES + body).map_err(|_| MessageError::Length)?;
    message.extend_from_slice(&payload_length.to_be_bytes());
    if let Some((number, total)) = fragment {
        message.extend_from_slice(&number.to_be_bytes());
        message.extend_from_slice(&total.to_be_bytes());
    }
    let start = message.len();
    message.extend_from_slice(&[0; 16][..cipher.iv_bytes()]);
    message.extend_from_slice(content);
    message.extend_from_slice(&[0; 16][..padding]);
    message.push(padding as u8);
    message.resize(length, 0);
    let (associated, packet) = message.split_at_mut(start);
    cipher.seal(associated, packet, &[]).map_err(|_| MessageError::Malformed)?;
    Ok(message)
}

/// What an encrypted message contains.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsealed<'m> {
    /// The type of the first payload inside.
    pub first_payload: u8,
    /// Number and total of a fragment.
    pub fragment: Option<(u16, u16)>,
    /// The payloads, or their part.
    pub content: &'m [u8],
}

/// Opens a message in place.
///
/// # Errors
/// It is not encrypted, not authentic, or its lengths lie.
pub fn open<'m>(cipher: &PacketCipher, message: &'m mut [u8]) -> Result<Unsealed<'m>, MessageError> {
    let header = Header::parse(message)?;
    let is_fragment = match header.next {
        payload::SK => false,
        payload::SKF => true,
        _ => return Err(MessageError::Malformed),
    };
    let start = HEADER_BYTES + PAYLOAD_HEADER_BYTES + if is_fragment { FRAGMENT_BYTES } else { 0 };
    let (associated, packet) = message.split_at_mut_checked(start).ok_or(MessageError::Length)?;
    let generic = &associated[HEADER_BYTES..];
    let first_payload = generic[0];
    // The encrypted payload is the last one, so that it ends with the message.
    if usize::from(u16::from_be_bytes([generic[2], generic[3]])) != generic.len() + packet.len() {
        return Err(MessageError::Length);
    }
    let number = |at: usize| u16::from_be_bytes([generic[at], generic[at + 1]]);
    let fragment = is_fragment.then(|| (number(4), number(6)));
    let plain = cipher.open(associated, packet, &[]).map_err(|_| MessageError::Malformed)?;
    let (&mut padding, rest) = plain.split_last_mut().ok_or(MessageError::Length)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(MessageError::Length)?;
    Ok(Unsealed { first_payload, fragment, content: &rest[..length] })
}

#[cfg(test)]
mod tests {
    use super::super::fragments::Reassembly;
    use super::*;
    use crate::esp::cipher::{CipherSuite, Direction, Encryption, Integrity};

    const HEADER: Header = Header { spi_i: 1, spi_r: 2, next: 0, exchange: 35, flags: 8, message_id: 1 };

    fn ciphers() -> Vec<(PacketCipher, PacketCipher)> {
        let key: Vec<u8> = (0..100).collect();
        let aead = |encryption| CipherSuite { encryption, integrity: None };
        let cbc = CipherSuite { encryption: Encryption::AesCbc(256), integrity: Some(Integrity::Sha256) };
        [aead(Encryption::AesGcm16(128)), aead(Encryption::ChaCha20Poly1305), cbc]
            .map(|suite| {
                let cipher = |direction| PacketCipher::new(suite, direction, &key).expect("a cipher");
                (cipher(Direction::Seal), cipher(Direction::Open))
            })
            .into()
    }

    #[test]
    fn messages_of_each_length_open_and_changed_ones_do_not() {
        for (mut sealing, opening) in ciphers() {
            for length in [0, 1, 14, 15, 16, 17, 900] {
                let content = vec![7; length];
                let mut messages = seal(&mut sealing, HEADER, 33, &content, None).expect("sealed");
                for at in [0, 20, 28, HEADER_BYTES + 3, messages[0].len() - 1] {
                    let mut changed = messages[0].clone();
                    changed[at] ^= 1;
                    assert!(open(&opening, &mut changed).is_err(), "{at}");
                }
                for len in 0..messages[0].len() {
                    assert!(open(&opening, &mut messages[0].clone()[..len]).is_err());
                }
                let opened = open(&opening, &mut messages[0]).expect("opened");
                assert_eq!(opened, Unsealed { first_payload: 33, fragment: None, content: &content });
            }
        }
    }

    #[test]
    fn long_chains_are_split_below_the_limit_and_reassembled() {
        for (mut sealing, opening) in ciphers() {
            let content: Vec<u8> = (0..5000u32).map(|index| index as u8).collect();
            let messages = seal(&mut sealing, HEADER, 35, &content, Some(1280)).expect("sealed");
            assert!(messages.len() > 3 && messages.iter().all(|message| message.len() + OUTER_BYTES <= 1280));
            let mut reassembly = Reassembly::default();
            let mut whole = None;
            for mut message in messages {
                let opened = open(&opening, &mut message).expect("opened");
                let (first, numbers) = (opened.first_payload, opened.fragment.expect("a fragment"));
                whole = reassembly.push((1, false), numbers, first, opened.content);
            }
            assert_eq!(whole, Some((35, content)));
        }
    }

    /// RFC 7634, appendix B.
    #[test]
    fn chacha20_message_of_rfc_7634_opens() {
        let key: Vec<u8> = (0x80..0xA0).chain(0xA0..0xA4).collect();
        let suite = CipherSuite { encryption: Encryption::ChaCha20Poly1305, integrity: None };
        let cipher = PacketCipher::new(suite, Direction::Open, &key).expect("a cipher");
        let mut message = Vec::new();
        message.extend(0xC0..=0xC7u8);
        message.extend(0xD0..=0xD7u8);
        message.extend([0x2e, 0x20, 0x25, 0x00, 0, 0, 0, 9, 0, 0, 0, 0x45, 0x29, 0, 0, 0x29]);
        message.extend(0x10..=0x17u8);
        message.extend([0x61, 0x03, 0x94, 0x70, 0x1f, 0x8d, 0x01, 0x7f, 0x7c, 0x12, 0x92, 0x48, 0x89]);
        message
            .extend([0x6b, 0x71, 0xbf, 0xe2, 0x52, 0x36, 0xef, 0xd7, 0xcd, 0xc6, 0x70, 0x66, 0x90, 0x63, 0x15, 0xb2]);
        let opened = open(&cipher, &mut message).expect("opened");
        assert_eq!(opened.first_payload, payload::NOTIFY);
        assert_eq!(opened.content, [0, 0, 0, 12, 0, 0, 0x40, 0x01, 0, 0, 0, 10]);
    }
}
