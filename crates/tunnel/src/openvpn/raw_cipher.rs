//! Ciphers and HMACs without packets, as a baseline for the cost of a tunnel's protocol. Owns its own keys; its
//! output is never decrypted. 3DES is a portable implementation, because no CPU has instructions for it.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, NONCE_LEN};
use aws_lc_rs::cipher::{EncryptingKey, EncryptionContext, UnboundCipherKey, AES_128, AES_192, AES_256};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use cbc::cipher::{Array, BlockModeEncrypt, KeyIvInit};
use des::TdesEde3;

use super::data::{DataCipher, DataError};
use super::digest::Digest;

/// A cipher or an HMAC over a payload.
pub struct RawCipher(Kind);

enum Kind {
    Aead { key: Box<LessSafeKey>, packets: u64 },
    AesCbc { key: Box<EncryptingKey>, iv: [u8; 16] },
    TripleDesCbc(Box<cbc::Encryptor<TdesEde3>>),
    Hmac { key: Box<hmac::Key>, length: usize },
}

/// OpenVPN's name for 3DES, which it no longer negotiates by default.
pub const TRIPLE_DES: &str = "DES-EDE3-CBC";

impl RawCipher {
    /// Creates a cipher of the data channel.
    ///
    /// # Errors
    /// The library refused the key.
    pub fn cipher(cipher: DataCipher) -> Result<Self, DataError> {
        let bytes = [0x5A; 32];
        let key = &bytes[..cipher.key_len()];
        let aead = match cipher {
            DataCipher::Aes128Gcm => &aead::AES_128_GCM,
            DataCipher::Aes192Gcm => &aead::AES_192_GCM,
            DataCipher::Aes256Gcm => &aead::AES_256_GCM,
            DataCipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
            DataCipher::Aes128Cbc => return Self::aes_cbc(UnboundCipherKey::new(&AES_128, key)),
            DataCipher::Aes192Cbc => return Self::aes_cbc(UnboundCipherKey::new(&AES_192, key)),
            DataCipher::Aes256Cbc => return Self::aes_cbc(UnboundCipherKey::new(&AES_256, key)),
        };
        let key = UnboundKey::new(aead, key).map_err(|_| DataError::Library)?;
        Ok(Self(Kind::Aead { key: Box::new(LessSafeKey::new(key)), packets: 0 }))
    }

    /// Creates 3DES with three keys, CBC.
    #[must_use]
    pub fn triple_des() -> Self {
        let key: [u8; 24] = std::array::from_fn(|index| (index * 7 + 1) as u8);
        Self(Kind::TripleDesCbc(Box::new(cbc::Encryptor::new(&Array(key), &Array([0; 8])))))
    }

    /// Creates an HMAC.
    #[must_use]
    pub fn hmac(digest: Digest) -> Self {
        Self(Kind::Hmac { key: Box::new(digest.key(&[0x5A; Digest::LONGEST])), length: digest.len() })
    }

    /// Buffer size for a payload, bytes: CBC needs whole blocks.
    #[must_use]
    pub fn needs(&self, payload: usize) -> usize {
        match self.0 {
            Kind::Aead { .. } | Kind::Hmac { .. } => payload,
            Kind::AesCbc { .. } => payload.next_multiple_of(16),
            Kind::TripleDesCbc(_) => payload.next_multiple_of(8),
        }
    }

    /// Processes `payload`, whose length is that of `needs`: a cipher encrypts it in place, an HMAC reads it.
    ///
    /// # Errors
    /// The library returned an error, or `payload` is not a multiple of the block size.
    pub fn run(&mut self, payload: &mut [u8]) -> Result<(), DataError> {
        match &mut self.0 {
            Kind::Aead { key, packets } => {
                *packets += 1;
                let mut nonce = [0; NONCE_LEN];
                nonce[..8].copy_from_slice(&packets.to_be_bytes());
                let mut tag = [0; 16];
                key.seal_in_place_scatter(Nonce::assume_unique_for_key(nonce), Aad::empty(), payload, &[], &mut tag)
                    .map_err(|_| DataError::Library)?;
                std::hint::black_box(tag);
            }
            Kind::AesCbc { key, iv } => {
                let context = EncryptionContext::Iv128(FixedLength::from(*iv));
                key.less_safe_encrypt(payload, context).map_err(|_| DataError::Library)?;
            }
            Kind::TripleDesCbc(encryptor) => {
                let (blocks, rest) = Array::slice_as_chunks_mut(payload);
                if !rest.is_empty() {
                    return Err(DataError::Library);
                }
                encryptor.encrypt_blocks(blocks);
            }
            Kind::Hmac { key, length } => {
                let mut out = [0; Digest::LONGEST];
                hmac::sign_to_buffer(key, payload, &mut out[..*length]).map_err(|_| DataError::Library)?;
                std::hint::black_box(out);
            }
        }
        Ok(())
    }

    fn aes_cbc(key: Result<UnboundCipherKey, aws_lc_rs::error::Unspecified>) -> Result<Self, DataError> {
        let key = key.and_then(EncryptingKey::cbc).map_err(|_| DataError::Library)?;
        Ok(Self(Kind::AesCbc { key: Box::new(key), iv: [0xA5; 16] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_and_hmac_runs_over_any_payload_size() {
        let ciphers = DataCipher::ALL.map(|cipher| RawCipher::cipher(cipher).expect("a cipher"));
        for mut raw in ciphers.into_iter().chain([RawCipher::triple_des()]) {
            for size in [1, 8, 15, 16, 64, 1400] {
                let mut payload = vec![0; raw.needs(size)];
                raw.run(&mut payload).expect("whole blocks");
                assert!(payload.iter().any(|byte| *byte != 0));
            }
        }
        for digest in Digest::ALL {
            let mut payload = [7; 100];
            RawCipher::hmac(digest).run(&mut payload).expect("an HMAC");
            assert_eq!(payload, [7; 100]);
        }
    }

    #[test]
    fn partial_cbc_blocks_are_refused() {
        assert!(RawCipher::triple_des().run(&mut [0; 9]).is_err());
        assert!(RawCipher::cipher(DataCipher::Aes128Cbc).expect("a cipher").run(&mut [0; 17]).is_err());
    }

    /// The example of NIST SP 800-67: three keys, and the first block of "The qufck brown fox jump"; CBC with a zero IV is ECB
    /// for the first block.
    #[test]
    fn triple_des_matches_the_nist_example() {
        let key = [
            0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 0x01, 0x45, 0x67,
            0x89, 0xAB, 0xCD, 0xEF, 0x01, 0x23,
        ];
        let mut raw = RawCipher(Kind::TripleDesCbc(Box::new(cbc::Encryptor::new(&Array(key), &Array([0; 8])))));
        let mut block = *b"The qufc";
        raw.run(&mut block).expect("one block");
        assert_eq!(block, 0xA826_FD8C_E53B_855F_u64.to_be_bytes());
    }
}
