//! The packet format of OpenVPN 2.7: `op[/peer-id] | epoch, 16 bits : number, 48 bits | ciphertext | tag`. Each side
//! moves its own key to the next epoch when it has protected enough, and accepts the peer's next few epochs at any
//! time. Keys come from a one-way chain of secrets. Never seals two packets with the same epoch and number.

use std::collections::VecDeque;

use aws_lc_rs::{aead::NONCE_LEN, hmac};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::aead::{authenticated_from, AeadKey, TAG};
use super::cipher::DataCipher;
use super::error::DataError;
use super::limits::{FAILURES_WARNING, GCM_LIMIT};
use super::replay::ReplayWindow;
use crate::openvpn::keys::DirectionKeys;

/// Length of the packet id, bytes.
pub(super) const PACKET_ID: usize = 8;
/// Number of future epochs of the peer that are accepted.
const FUTURE: u16 = 4;
/// Epoch at which new keys are due: the chain ends at 65,535.
const EPOCH_WARNING: u16 = 0xF000;
const HIGHEST_NUMBER: u64 = (1 << 48) - 1;

/// The secret of one direction and epoch.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Secret {
    epoch: u16,
    bytes: [u8; 32],
}

impl Secret {
    /// The first secret is the beginning of the cipher's key.
    fn first(keys: DirectionKeys<'_>) -> Self {
        Self { epoch: 1, bytes: *keys.cipher.first_chunk().expect("32 of 64 bytes") }
    }

    fn step(&mut self) {
        let mut next = [0; 32];
        expand_label(&self.bytes, b"datakey upd", &mut next);
        self.bytes.copy_from_slice(&next);
        next.zeroize();
        self.epoch += 1;
    }

    fn key(&self, cipher: DataCipher) -> Result<AeadKey, DataError> {
        let mut key = [0; 32];
        let key = &mut key[..cipher.key_len()];
        expand_label(&self.bytes, b"data_key", key);
        let mut implicit_iv = [0; NONCE_LEN];
        expand_label(&self.bytes, b"data_iv", &mut implicit_iv);
        let made = AeadKey::new(cipher, key, implicit_iv);
        key.zeroize();
        made
    }
}

/// The key of one of the peer's epochs, and its received packets.
struct Receiving {
    epoch: u16,
    key: AeadKey,
    window: ReplayWindow,
}

/// Both directions.
pub(super) struct Epoch {
    cipher: DataCipher,
    limit: Option<u64>,
    send_secret: Secret,
    sealing: AeadKey,
    last_sent: u64,
    current: Receiving,
    /// The previous epoch: its packets may still be in transit.
    retiring: Option<Receiving>,
    /// The next `FUTURE` epochs.
    future: VecDeque<Receiving>,
    /// The secret of the last of `future`.
    receive_secret: Secret,
}

impl Epoch {
    pub fn new(
        cipher: DataCipher,
        sending: DirectionKeys<'_>,
        receiving: DirectionKeys<'_>,
        replay_window: u32,
    ) -> Result<Self, DataError> {
        let (send_secret, receive_secret) = (Secret::first(sending), Secret::first(receiving));
        let mut epoch = Self {
            cipher,
            limit: cipher.is_gcm().then_some(GCM_LIMIT),
            sealing: send_secret.key(cipher)?,
            send_secret,
            last_sent: 0,
            current: Receiving {
                epoch: receive_secret.epoch,
                key: receive_secret.key(cipher)?,
                window: ReplayWindow::new(replay_window),
            },
            retiring: None,
            future: VecDeque::with_capacity(usize::from(FUTURE)),
            receive_secret,
        };
        epoch.fill_future()?;
        Ok(epoch)
    }

    /// Appends the bytes before the ciphertext; after `Err`, `out` is unchanged.
    pub fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), DataError> {
        self.move_on()?;
        if self.last_sent == HIGHEST_NUMBER {
            return Err(DataError::Exhausted);
        }
        self.last_sent += 1;
        let packet_id = u64::from(self.send_secret.epoch) << 48 | self.last_sent;
        out.extend_from_slice(&packet_id.to_be_bytes());
        Ok(())
    }

    /// Seals the packet from `start` of `out`, which has the bytes of `begin` and a plaintext.
    pub fn finish(&mut self, out: &mut Vec<u8>, start: usize, header: usize) -> Result<(), DataError> {
        out.extend_from_slice(&[0; TAG]);
        let (proved, rest) = out[start..].split_at_mut(header + PACKET_ID);
        let (body, tag) = rest.split_at_mut(rest.len() - TAG);
        let (packet_id, aad) = (&proved[header..], &proved[authenticated_from(header)..]);
        self.sealing.seal(packet_id, aad, body, tag)
    }

    /// Authenticates and opens a packet and checks its number; returns the start and the end of its plaintext.
    pub fn open(&mut self, packet: &mut [u8], header: usize) -> Result<(usize, usize), DataError> {
        let start = header + PACKET_ID;
        let end = packet.len().checked_sub(TAG).filter(|end| *end > start).ok_or(DataError::Short)?;
        let (proved, rest) = packet.split_at_mut(start);
        let (body, tag) = rest.split_at_mut(end - start);
        let (packet_id, aad) = (&proved[header..], &proved[authenticated_from(header)..]);
        let id = u64::from_be_bytes(*packet_id.first_chunk().expect("eight bytes"));
        let epoch = (id >> 48) as u16;
        let receiving = self.receiving(epoch).ok_or(DataError::UnknownEpoch)?;
        receiving.key.open(packet_id, aad, body, tag)?;
        if epoch > self.current.epoch {
            self.follow(epoch)?;
        }
        let receiving = self.receiving(epoch).ok_or(DataError::UnknownEpoch)?;
        if receiving.window.accept(id & HIGHEST_NUMBER) {
            Ok((start, end))
        } else {
            Err(DataError::Replayed)
        }
    }

    /// Whether new keys are due: the chain of epochs is near its end.
    pub fn exhausted(&self) -> bool {
        self.send_secret.epoch >= EPOCH_WARNING
    }

    fn receiving(&mut self, epoch: u16) -> Option<&mut Receiving> {
        if epoch == self.current.epoch {
            return Some(&mut self.current);
        }
        if let Some(ahead) = epoch.checked_sub(self.current.epoch) {
            // Near the chain's end, a key is refused if its successors could not be derived.
            let reachable = epoch < u16::MAX - FUTURE;
            return self.future.get_mut(usize::from(ahead) - 1).filter(|_| reachable);
        }
        self.retiring.as_mut().filter(|retiring| retiring.epoch == epoch)
    }

    /// Follows the peer to `epoch`: changes the opening key, and the sealing key to at least that epoch.
    fn follow(&mut self, epoch: u16) -> Result<(), DataError> {
        if self.send_secret.epoch < epoch {
            while self.send_secret.epoch < epoch {
                self.send_secret.step();
            }
            self.renew_sealing()?;
        }
        while let Some(next) = self.future.pop_front() {
            if next.epoch == epoch {
                self.retiring = Some(std::mem::replace(&mut self.current, next));
                break;
            }
        }
        self.fill_future()
    }

    fn fill_future(&mut self) -> Result<(), DataError> {
        while self.future.len() < usize::from(FUTURE) {
            self.receive_secret.step();
            self.future.push_back(Receiving {
                epoch: self.receive_secret.epoch,
                key: self.receive_secret.key(self.cipher)?,
                window: self.current.window.renewed(),
            });
        }
        Ok(())
    }

    /// Moves the sealing key to the next epoch if this one has protected enough; or if the peer's has, so that the
    /// peer follows.
    fn move_on(&mut self) -> Result<(), DataError> {
        if self.send_secret.epoch == u16::MAX {
            return Ok(());
        }
        let beyond =
            |key: &AeadKey, packets: u64| self.limit.is_some_and(|limit| key.blocks.saturating_add(packets) > limit);
        let peer_should = self.send_secret.epoch == self.current.epoch
            && self.limit.is_some()
            && (beyond(&self.current.key, self.current.window.highest())
                || self.current.key.failures > FAILURES_WARNING);
        if beyond(&self.sealing, self.last_sent) || peer_should || self.last_sent == HIGHEST_NUMBER {
            self.send_secret.step();
            self.renew_sealing()?;
        }
        Ok(())
    }

    fn renew_sealing(&mut self) -> Result<(), DataError> {
        self.sealing = self.send_secret.key(self.cipher)?;
        self.last_sent = 0;
        Ok(())
    }
}

/// RFC 8446, 7.1, HKDF-Expand-Label with SHA-256, without context, with "ovpn " instead of "tls13 "; `out` is at most
/// one block long.
fn expand_label(secret: &[u8; 32], label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"ovpn ";
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut mac = hmac::Context::with_key(&key);
    mac.update(&(out.len() as u16).to_be_bytes());
    mac.update(&[(PREFIX.len() + label.len()) as u8]);
    mac.update(PREFIX);
    mac.update(label);
    // The empty context, and HKDF's number of the first block.
    mac.update(&[0, 1]);
    out.copy_from_slice(&mac.sign().as_ref()[..out.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values of OpenVPN's unit tests (`crypto_test_ovpn_label_expand`, `epoch_test_derive_data_key`).
    #[test]
    fn expanded_labels_match_openvpn() {
        let secret = [
            0x07, 0x77, 0x09, 0x36, 0x2c, 0x2e, 0x32, 0xdf, 0x0d, 0xdc, 0x3f, 0x0d, 0xc4, 0x7b, 0xba, 0x63, 0x90, 0xb6,
            0xc7, 0x3b, 0xb5, 0x0f, 0x9c, 0x31, 0x22, 0xec, 0x84, 0x4a, 0xd7, 0xc2, 0xb3, 0xe5,
        ];
        let mut out = [0; 16];
        expand_label(&secret, b"unit test", &mut out);
        assert_eq!(out, 0x185e_aa1c_7f22_8ab8_eb29_7732_14d9_2046_u128.to_be_bytes());

        let mut epoch_17 = [0; 32];
        epoch_17[..2].copy_from_slice(&[19, 12]);
        let mut key = [0; 24];
        expand_label(&epoch_17, b"data_key", &mut key);
        assert_eq!(key[..8], 0xed85_33db_1c28_ace4_u64.to_be_bytes());
        assert_eq!(key[16..], 0x7d60_ebe6_cd90_bf0a_u64.to_be_bytes());
        let mut iv = [0; 12];
        expand_label(&epoch_17, b"data_iv", &mut iv);
        assert_eq!(iv[..4], [0x86, 0x89, 0x0a, 0xab]);
        assert_eq!(iv[4..], 0xf032_cb59_f4cf_a34e_u64.to_be_bytes());
    }

    fn pair(cipher: DataCipher) -> (Epoch, Epoch) {
        let (near, far) = ([1; 64], [2; 64]);
        let keys = |bytes| DirectionKeys { cipher: bytes, hmac: bytes };
        let epoch = |sending, receiving| Epoch::new(cipher, keys(sending), keys(receiving), 64).expect("an AEAD");
        (epoch(&near, &far), epoch(&far, &near))
    }

    fn send(from: &mut Epoch, to: &mut Epoch) -> Result<u16, DataError> {
        let mut packet = vec![0];
        from.begin(&mut packet)?;
        packet.extend_from_slice(b"payload");
        from.finish(&mut packet, 0, 1)?;
        let epoch = u16::from_be_bytes([packet[1], packet[2]]);
        let (start, end) = to.open(&mut packet, 1)?;
        assert_eq!(&packet[start..end], b"payload");
        Ok(epoch)
    }

    #[test]
    fn exhausted_epoch_key_advances_to_the_next() {
        let (mut client, mut server) = pair(DataCipher::Aes128Gcm);
        for epoch in 1..200 {
            assert_eq!(send(&mut client, &mut server), Ok(epoch));
            assert_eq!(send(&mut server, &mut client), Ok(epoch));
            client.sealing.blocks = GCM_LIMIT;
        }
        // The receiver moves on a sender that ignores its own limit.
        server.current.key.blocks = GCM_LIMIT;
        client.sealing.blocks = 0;
        assert_eq!(send(&mut server, &mut client), Ok(200));
        assert_eq!(send(&mut client, &mut server), Ok(200));
    }

    #[test]
    fn chacha_is_limited_only_by_packet_numbers() {
        let (mut client, mut server) = pair(DataCipher::ChaCha20Poly1305);
        client.sealing.blocks = u64::MAX - 10;
        client.last_sent = HIGHEST_NUMBER - 1;
        assert_eq!(send(&mut client, &mut server), Ok(1));
        assert_eq!(send(&mut client, &mut server), Ok(2));
    }

    #[test]
    fn epoch_chain_ends_without_number_reuse() {
        let (mut client, mut server) = pair(DataCipher::ChaCha20Poly1305);
        let mut last = Ok(0);
        while !matches!(last, Err(_) | Ok(u16::MAX)) {
            client.last_sent = HIGHEST_NUMBER;
            assert_eq!(client.exhausted(), client.send_secret.epoch >= EPOCH_WARNING);
            last = send(&mut client, &mut server);
        }
        // A receiver refuses epochs whose successors it could not derive, as OpenVPN does.
        assert_eq!((last, client.send_secret.epoch), (Err(DataError::UnknownEpoch), 65_531));
        client.send_secret.epoch = u16::MAX;
        client.last_sent = HIGHEST_NUMBER;
        assert_eq!(client.begin(&mut Vec::new()), Err(DataError::Exhausted));
    }
}
