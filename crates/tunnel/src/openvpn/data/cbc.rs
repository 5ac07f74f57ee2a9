//! CBC packets: `op[/peer-id] | HMAC | IV | encrypted (packet id | payload)`; the HMAC authenticates the IV and
//! everything after it, not the header. Owns both directions' keys and packet numbers. Padding is checked after the
//! HMAC, so it gives an attacker no information. Without an HMAC (`auth none`), which OpenVPN allows, a forged packet
//! may yield random bytes.

use aws_lc_rs::cipher::{
    DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey, AES_128, AES_192, AES_256,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{constant_time, hmac, rand};

use super::cipher::DataCipher;
use super::error::DataError;
use super::limits::PACKET_ID_WARNING;
use super::replay::ReplayWindow;
use crate::openvpn::digest::Digest;
use crate::openvpn::keys::DirectionKeys;

/// Length of an AES block, and of the IV, bytes.
pub(super) const BLOCK: usize = 16;
/// Length of the packet id, bytes.
pub(super) const PACKET_ID: usize = 4;
/// Number of IVs that are generated together: one call per IV costs more than a packet's encryption.
const IVS: usize = 16;

/// Both directions.
pub(super) struct Cbc {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
    proof: Option<HmacKeys>,
    /// Length of an HMAC, bytes.
    hmac_len: usize,
    last_sent: u32,
    window: ReplayWindow,
    ivs: [u8; IVS * BLOCK],
    /// Number of used IVs.
    ivs_used: usize,
}

/// The HMAC keys, absent with `auth none`.
struct HmacKeys {
    signing: hmac::Key,
    proving: hmac::Key,
}

impl Cbc {
    pub fn new(
        cipher: DataCipher,
        digest: Option<Digest>,
        sending: DirectionKeys<'_>,
        receiving: DirectionKeys<'_>,
        replay_window: u32,
    ) -> Result<Self, DataError> {
        let algorithm = match cipher {
            DataCipher::Aes128Cbc => &AES_128,
            DataCipher::Aes192Cbc => &AES_192,
            DataCipher::Aes256Cbc => &AES_256,
            _ => return Err(DataError::Library),
        };
        let key = |keys: DirectionKeys<'_>| UnboundCipherKey::new(algorithm, &keys.cipher[..cipher.key_len()]);
        Ok(Self {
            encrypting: key(sending).and_then(EncryptingKey::cbc).map_err(|_| DataError::Library)?,
            decrypting: key(receiving).and_then(DecryptingKey::cbc).map_err(|_| DataError::Library)?,
            proof: digest
                .map(|digest| HmacKeys { signing: digest.key(sending.hmac), proving: digest.key(receiving.hmac) }),
            hmac_len: digest.map_or(0, Digest::len),
            last_sent: 0,
            window: ReplayWindow::new(replay_window),
            ivs: [0; IVS * BLOCK],
            ivs_used: IVS,
        })
    }

    /// Appends the bytes before the payload; after `Err`, `out` is unchanged.
    pub fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), DataError> {
        let number = self.last_sent.checked_add(1).ok_or(DataError::Exhausted)?;
        let iv = self.next_iv()?;
        self.last_sent = number;
        out.extend_from_slice(&[0; Digest::LONGEST][..self.hmac_len]);
        out.extend_from_slice(&iv);
        out.extend_from_slice(&number.to_be_bytes());
        Ok(())
    }

    /// Pads, encrypts and authenticates the packet from `start` of `out`, which has the bytes of `begin` and a
    /// payload.
    pub fn finish(&mut self, out: &mut Vec<u8>, start: usize, header: usize) -> Result<(), DataError> {
        let signature = start + header;
        let iv = signature + self.hmac_len;
        let plain = iv + BLOCK;
        let padding = BLOCK - (out.len() - plain) % BLOCK;
        out.resize(out.len() + padding, padding as u8);
        let context = EncryptionContext::Iv128(FixedLength::from(*out[iv..].first_chunk().expect("an IV")));
        self.encrypting.less_safe_encrypt(&mut out[plain..], context).map_err(|_| DataError::Library)?;
        if let Some(proof) = &self.proof {
            let (before, signed) = out.split_at_mut(iv);
            hmac::sign_to_buffer(&proof.signing, signed, &mut before[signature..]).map_err(|_| DataError::Library)?;
        }
        Ok(())
    }

    /// Authenticates and opens a packet and checks its number; returns the start and the end of its payload.
    pub fn open(&mut self, packet: &mut [u8], header: usize) -> Result<(usize, usize), DataError> {
        let iv = header + self.hmac_len;
        let plain = iv + BLOCK;
        let length = packet.len().checked_sub(plain).ok_or(DataError::Short)?;
        if let Some(proof) = &self.proof {
            let (before, signed) = packet.split_at(iv);
            let hmac = hmac::sign(&proof.proving, signed);
            constant_time::verify_slices_are_equal(hmac.as_ref(), &before[header..]).map_err(|_| DataError::Forged)?;
        }
        if length == 0 || length % BLOCK != 0 {
            return Err(DataError::Short);
        }
        let context = DecryptionContext::Iv128(FixedLength::from(*packet[iv..].first_chunk().expect("an IV")));
        let plaintext = self.decrypting.decrypt(&mut packet[plain..], context).map_err(|_| DataError::Library)?;
        let unpadded = unpadded(plaintext).ok_or(DataError::Forged)?;
        let number = plaintext[..unpadded].first_chunk().ok_or(DataError::Short)?;
        if self.window.accept(u64::from(u32::from_be_bytes(*number))) {
            Ok((plain + PACKET_ID, plain + unpadded))
        } else {
            Err(DataError::Replayed)
        }
    }

    /// Whether new keys are due: the numbers are running out.
    pub fn exhausted(&self) -> bool {
        self.last_sent >= PACKET_ID_WARNING
    }

    fn next_iv(&mut self) -> Result<[u8; BLOCK], DataError> {
        if self.ivs_used == IVS {
            rand::fill(&mut self.ivs).map_err(|_| DataError::Library)?;
            self.ivs_used = 0;
        }
        let iv = *self.ivs[self.ivs_used * BLOCK..].first_chunk().expect("an IV");
        self.ivs_used += 1;
        Ok(iv)
    }
}

/// Length of the plaintext without its padding (PKCS 7); `None` if the padding is invalid.
fn unpadded(plaintext: &[u8]) -> Option<usize> {
    let padding = usize::from(*plaintext.last()?);
    let rest = plaintext.len().checked_sub(padding)?;
    let whole = (1..=BLOCK).contains(&padding) && plaintext[rest..].iter().all(|byte| usize::from(*byte) == padding);
    whole.then_some(rest)
}
