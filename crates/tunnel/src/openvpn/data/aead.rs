//! AEAD packets: `op[/peer-id] | packet id | tag | ciphertext`; the tag authenticates everything before it. Owns the
//! use of one key and its packet numbers in the format of OpenVPN 2.4 to 2.6; `epoch` uses its keys too. Never uses a
//! number twice.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, NONCE_LEN};

use super::cipher::DataCipher;
use super::error::DataError;
use super::limits::{FAILURES_LIMIT, FAILURES_WARNING, GCM_LIMIT, PACKET_ID_WARNING};
use super::replay::ReplayWindow;
use crate::openvpn::keys::DirectionKeys;

/// Length of every AEAD's tag, bytes.
pub(super) const TAG: usize = 16;
/// Length of the packet id, bytes.
pub(super) const PACKET_ID: usize = 4;

/// A key and its implicit IV.
pub(super) struct AeadKey {
    key: LessSafeKey,
    /// The nonce is this, XORed with the packet id followed by zeros.
    implicit_iv: [u8; NONCE_LEN],
    /// Number of 16-byte blocks sealed or opened.
    pub blocks: u64,
    /// Number of packets whose authentication failed.
    pub failures: u64,
}

impl AeadKey {
    pub fn new(cipher: DataCipher, key: &[u8], implicit_iv: [u8; NONCE_LEN]) -> Result<Self, DataError> {
        let algorithm = match cipher {
            DataCipher::Aes128Gcm => &aead::AES_128_GCM,
            DataCipher::Aes192Gcm => &aead::AES_192_GCM,
            DataCipher::Aes256Gcm => &aead::AES_256_GCM,
            DataCipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
            _ => return Err(DataError::NoAead),
        };
        let key = UnboundKey::new(algorithm, &key[..cipher.key_len()]).map_err(|_| DataError::Library)?;
        Ok(Self { key: LessSafeKey::new(key), implicit_iv, blocks: 0, failures: 0 })
    }

    /// Seals `body` in place; `packet_id` has its wire format.
    pub fn seal(&mut self, packet_id: &[u8], aad: &[u8], body: &mut [u8], tag: &mut [u8]) -> Result<(), DataError> {
        self.blocks += body.len().div_ceil(16) as u64;
        let nonce = self.nonce(packet_id);
        self.key.seal_in_place_scatter(nonce, Aad::from(aad), body, &[], tag).map_err(|_| DataError::Library)
    }

    /// Authenticates and opens `body` in place; after `Forged` its content is undefined.
    pub fn open(&mut self, packet_id: &[u8], aad: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), DataError> {
        if self.failures > FAILURES_LIMIT {
            return Err(DataError::Exhausted);
        }
        let nonce = self.nonce(packet_id);
        if self.key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, body).is_err() {
            self.failures += 1;
            return Err(DataError::Forged);
        }
        self.blocks += body.len().div_ceil(16) as u64;
        Ok(())
    }

    fn nonce(&self, packet_id: &[u8]) -> Nonce {
        let mut nonce = self.implicit_iv;
        nonce.iter_mut().zip(packet_id).for_each(|(nonce, byte)| *nonce ^= byte);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Both directions with 32-bit packet ids.
pub(super) struct Aead {
    sealing: AeadKey,
    opening: AeadKey,
    last_sent: u32,
    window: ReplayWindow,
    /// Maximum of packets and blocks under one key.
    limit: Option<u64>,
}

impl Aead {
    pub fn new(
        cipher: DataCipher,
        sending: DirectionKeys<'_>,
        receiving: DirectionKeys<'_>,
        replay_window: u32,
    ) -> Result<Self, DataError> {
        Ok(Self {
            sealing: short_id_key(cipher, sending)?,
            opening: short_id_key(cipher, receiving)?,
            last_sent: 0,
            window: ReplayWindow::new(replay_window),
            limit: cipher.is_gcm().then_some(GCM_LIMIT),
        })
    }

    /// Appends the bytes before the ciphertext; after `Err`, `out` is unchanged.
    pub fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), DataError> {
        self.last_sent = self.last_sent.checked_add(1).ok_or(DataError::Exhausted)?;
        out.extend_from_slice(&self.last_sent.to_be_bytes());
        out.extend_from_slice(&[0; TAG]);
        Ok(())
    }

    /// Seals a packet of `begin` and a plaintext after `header` bytes. A header of one byte is not authenticated.
    pub fn finish(&mut self, packet: &mut [u8], header: usize) -> Result<(), DataError> {
        let (proved, rest) = packet.split_at_mut(header + PACKET_ID);
        let (tag, body) = rest.split_at_mut(TAG);
        let (packet_id, aad) = (&proved[header..], &proved[authenticated_from(header)..]);
        self.sealing.seal(packet_id, aad, body, tag)
    }

    /// Authenticates and opens a packet and checks its number; returns the start of its plaintext, which ends with
    /// the packet.
    pub fn open(&mut self, packet: &mut [u8], header: usize) -> Result<usize, DataError> {
        let start = header + PACKET_ID + TAG;
        if packet.len() <= start {
            return Err(DataError::Short);
        }
        let (proved, rest) = packet.split_at_mut(header + PACKET_ID);
        let (tag, body) = rest.split_at_mut(TAG);
        let (packet_id, aad) = (&proved[header..], &proved[authenticated_from(header)..]);
        self.opening.open(packet_id, aad, body, tag)?;
        let number = u32::from_be_bytes(*packet_id.first_chunk().expect("four bytes"));
        if self.window.accept(u64::from(number)) {
            Ok(start)
        } else {
            Err(DataError::Replayed)
        }
    }

    /// Whether new keys are due: the numbers are running out, or the key has protected as much as is safe.
    pub fn exhausted(&self) -> bool {
        let used =
            |key: &AeadKey, packets: u64| self.limit.is_some_and(|limit| key.blocks.saturating_add(packets) > limit);
        self.last_sent >= PACKET_ID_WARNING
            || used(&self.sealing, u64::from(self.last_sent))
            || used(&self.opening, self.window.highest())
            || self.opening.failures > FAILURES_WARNING
    }
}

/// Offset of the authenticated bytes: `DATA_V2` authenticates its header, `DATA_V1` does not.
pub(super) fn authenticated_from(header: usize) -> usize {
    if header == 1 {
        1
    } else {
        0
    }
}

/// Creates a key whose nonce is the packet id, then 8 bytes of the HMAC's key.
fn short_id_key(cipher: DataCipher, keys: DirectionKeys<'_>) -> Result<AeadKey, DataError> {
    let mut implicit_iv = [0; NONCE_LEN];
    implicit_iv[PACKET_ID..].copy_from_slice(&keys.hmac[..NONCE_LEN - PACKET_ID]);
    AeadKey::new(cipher, keys.cipher, implicit_iv)
}
