//! Ciphers of ESP and of IKE's encrypted payload, which share one layout: `IV | ciphertext | ICV`. Owns key lengths,
//! nonces and integrity; the caller owns headers and padding. AES-GCM-16 (RFC 4106, 5282), ChaCha20-Poly1305
//! (RFC 7634), AES-CBC (RFC 3602) with HMAC-SHA2 (RFC 4868).

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey, AES_128_GCM, AES_192_GCM, AES_256_GCM, CHACHA20_POLY1305};
use aws_lc_rs::cipher::{
    DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey, AES_128, AES_192, AES_256,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{constant_time, hmac, rand};

/// Length of an AEAD's salt, the first bytes of its nonce.
const SALT: usize = 4;
/// Length of an AEAD's IV, the last bytes of its nonce.
const AEAD_IV: usize = 8;
/// Length of an AEAD's tag.
const TAG: usize = 16;
/// Length of an AES block, and of CBC's IV.
const BLOCK: usize = 16;
/// Number of CBC IVs that are generated together: one call per IV costs more than a small packet's encryption.
const IVS: usize = 8;

/// An encryption algorithm with its key length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// AES-GCM with a tag of 16 bytes; the key length in bits: 128, 192 or 256.
    AesGcm16(u16),
    /// AES-CBC, which needs an [`Integrity`]; the key length in bits: 128, 192 or 256.
    AesCbc(u16),
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl Encryption {
    /// Whether it authenticates by itself.
    #[must_use]
    pub fn is_aead(self) -> bool {
        !matches!(self, Self::AesCbc(_))
    }

    /// Its name in reports, as other VPNs write theirs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AesGcm16(128) => "AES-128-GCM",
            Self::AesGcm16(192) => "AES-192-GCM",
            Self::AesGcm16(_) => "AES-256-GCM",
            Self::AesCbc(128) => "AES-128-CBC",
            Self::AesCbc(192) => "AES-192-CBC",
            Self::AesCbc(_) => "AES-256-CBC",
            Self::ChaCha20Poly1305 => "CHACHA20-POLY1305",
        }
    }

    /// Length of the key material, bytes, with an AEAD's salt.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        match self {
            Self::AesGcm16(bits) => usize::from(bits) / 8 + SALT,
            Self::AesCbc(bits) => usize::from(bits) / 8,
            Self::ChaCha20Poly1305 => 32 + SALT,
        }
    }
}

/// An integrity algorithm, for encryption that is no AEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Integrity {
    /// HMAC-SHA2-256-128.
    Sha256,
    /// HMAC-SHA2-384-192.
    Sha384,
    /// HMAC-SHA2-512-256.
    Sha512,
}

impl Integrity {
    /// Length of the key, bytes: that of the whole digest.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Length of the truncated HMAC, bytes.
    #[must_use]
    pub fn icv_bytes(self) -> usize {
        self.key_bytes() / 2
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// An encryption and, unless it is an AEAD, an integrity algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CipherSuite {
    /// The encryption.
    pub encryption: Encryption,
    /// The integrity; `None` exactly if the encryption is an AEAD.
    pub integrity: Option<Integrity>,
}

impl CipherSuite {
    /// Length of one direction's key material, bytes: encryption with its salt, then integrity.
    #[must_use]
    pub fn key_bytes(self) -> usize {
        self.encryption.key_bytes() + self.integrity.map_or(0, Integrity::key_bytes)
    }
}

/// The error of a packet that cannot be authenticated, or whose lengths are impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet is not authentic")]
pub struct NotAuthentic;

/// The error of a cipher suite that does not exist, or of key material of another length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cipher does not accept this key")]
pub struct BadKey;

/// Which way a cipher's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets are sealed.
    Seal,
    /// Packets are opened.
    Open,
}

/// One direction of a security association: its keys, and the state of its IVs.
pub struct PacketCipher(Kind);

enum Kind {
    Aead { key: Box<LessSafeKey>, salt: [u8; SALT], sealed: u64 },
    Cbc(Box<Cbc>),
}

struct Cbc {
    key: CbcKey,
    hmac: hmac::Key,
    icv_bytes: usize,
    ivs: [u8; IVS * BLOCK],
    ivs_used: usize,
}

enum CbcKey {
    Seal(EncryptingKey),
    Open(DecryptingKey),
}

impl PacketCipher {
    /// Creates one direction from its key material: encryption key, salt of an AEAD, integrity key.
    ///
    /// # Errors
    /// The suite is not valid, or the material is shorter than `suite.key_bytes()`.
    pub fn new(suite: CipherSuite, direction: Direction, material: &[u8]) -> Result<Self, BadKey> {
        let (key, rest) = material.split_at_checked(suite.encryption.key_bytes()).ok_or(BadKey)?;
        if let Encryption::AesCbc(bits) = suite.encryption {
            let integrity = suite.integrity.ok_or(BadKey)?;
            let integrity_key = rest.get(..integrity.key_bytes()).ok_or(BadKey)?;
            return Self::new_cbc(bits, direction, key, integrity, integrity_key);
        }
        let algorithm = match suite.encryption {
            Encryption::AesGcm16(128) => &AES_128_GCM,
            Encryption::AesGcm16(192) => &AES_192_GCM,
            Encryption::AesGcm16(256) => &AES_256_GCM,
            Encryption::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            _ => return Err(BadKey),
        };
        let (key, salt) = key.split_last_chunk::<SALT>().ok_or(BadKey)?;
        let key = UnboundKey::new(algorithm, key).map_err(|_| BadKey)?;
        Ok(Self(Kind::Aead { key: Box::new(LessSafeKey::new(key)), salt: *salt, sealed: 0 }))
    }

    fn new_cbc(
        bits: u16,
        direction: Direction,
        key: &[u8],
        integrity: Integrity,
        integrity_key: &[u8],
    ) -> Result<Self, BadKey> {
        let algorithm = match bits {
            128 => &AES_128,
            192 => &AES_192,
            256 => &AES_256,
            _ => return Err(BadKey),
        };
        let key = UnboundCipherKey::new(algorithm, key);
        let key = match direction {
            Direction::Seal => key.and_then(EncryptingKey::cbc).map(CbcKey::Seal),
            Direction::Open => key.and_then(DecryptingKey::cbc).map(CbcKey::Open),
        };
        Ok(Self(Kind::Cbc(Box::new(Cbc {
            key: key.map_err(|_| BadKey)?,
            hmac: hmac::Key::new(integrity.algorithm(), integrity_key),
            icv_bytes: integrity.icv_bytes(),
            ivs: [0; IVS * BLOCK],
            ivs_used: IVS,
        }))))
    }

    /// Whether the cipher is an AEAD.
    #[must_use]
    pub fn is_aead(&self) -> bool {
        matches!(self.0, Kind::Aead { .. })
    }

    /// Length of the IV before the ciphertext, bytes.
    #[must_use]
    pub fn iv_bytes(&self) -> usize {
        match &self.0 {
            Kind::Aead { .. } => AEAD_IV,
            Kind::Cbc(_) => BLOCK,
        }
    }

    /// Length of the ICV after the ciphertext, bytes.
    #[must_use]
    pub fn icv_bytes(&self) -> usize {
        match &self.0 {
            Kind::Aead { .. } => TAG,
            Kind::Cbc(cbc) => cbc.icv_bytes,
        }
    }

    /// The length of which a plaintext has to be a multiple, bytes.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        match &self.0 {
            Kind::Aead { .. } => 1,
            Kind::Cbc(_) => BLOCK,
        }
    }

    /// Seals `packet` in place: room for the IV, the padded plaintext, room for the ICV. `associated` precedes it in
    /// the authenticated bytes; `trailer` follows the ciphertext in those of a cipher that is no AEAD.
    ///
    /// # Errors
    /// The lengths are impossible, or the cipher opens.
    pub fn seal(&mut self, associated: &[u8], packet: &mut [u8], trailer: &[u8]) -> Result<(), NotAuthentic> {
        let (iv_bytes, icv_bytes) = (self.iv_bytes(), self.icv_bytes());
        let plain_end = packet.len().checked_sub(icv_bytes).filter(|end| *end >= iv_bytes).ok_or(NotAuthentic)?;
        let (body, icv) = packet.split_at_mut(plain_end);
        match &mut self.0 {
            Kind::Aead { key, salt, sealed } => {
                // RFC 4106, section 3.1: "the same IV and key combination MUST NOT be used more than once"; a counter.
                *sealed = sealed.checked_add(1).ok_or(NotAuthentic)?;
                let (iv, plain) = body.split_at_mut(AEAD_IV);
                iv.copy_from_slice(&sealed.to_be_bytes());
                let nonce = nonce(*salt, sealed.to_be_bytes());
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(associated), plain);
                icv.copy_from_slice(tag.map_err(|_| NotAuthentic)?.as_ref());
            }
            Kind::Cbc(cbc) => {
                let iv = cbc.next_iv()?;
                let CbcKey::Seal(key) = &cbc.key else { return Err(NotAuthentic) };
                body[..BLOCK].copy_from_slice(&iv);
                let context = EncryptionContext::Iv128(FixedLength::from(iv));
                key.less_safe_encrypt(&mut body[BLOCK..], context).map_err(|_| NotAuthentic)?;
                icv.copy_from_slice(&cbc.sign(associated, body, trailer).as_ref()[..icv_bytes]);
            }
        }
        Ok(())
    }

    /// Authenticates and opens `packet` in place; returns the plaintext with its padding.
    ///
    /// # Errors
    /// The packet is not authentic, or its lengths are impossible; its bytes are then undefined.
    pub fn open<'p>(
        &self,
        associated: &[u8],
        packet: &'p mut [u8],
        trailer: &[u8],
    ) -> Result<&'p mut [u8], NotAuthentic> {
        let (iv_bytes, icv_bytes) = (self.iv_bytes(), self.icv_bytes());
        let end = packet.len().checked_sub(icv_bytes).filter(|end| *end >= iv_bytes).ok_or(NotAuthentic)?;
        match &self.0 {
            Kind::Aead { key, salt, .. } => {
                let (iv, sealed) = packet.split_first_chunk_mut::<AEAD_IV>().ok_or(NotAuthentic)?;
                let opened = key.open_in_place(nonce(*salt, *iv), Aad::from(associated), sealed);
                opened.map_err(|_| NotAuthentic)
            }
            Kind::Cbc(cbc) => {
                let (body, icv) = packet.split_at_mut(end);
                let signed = cbc.sign(associated, body, trailer);
                constant_time::verify_slices_are_equal(&signed.as_ref()[..icv_bytes], icv).map_err(|_| NotAuthentic)?;
                let CbcKey::Open(key) = &cbc.key else { return Err(NotAuthentic) };
                let (iv, sealed) = body.split_first_chunk_mut::<BLOCK>().ok_or(NotAuthentic)?;
                if sealed.is_empty() || sealed.len() % BLOCK != 0 {
                    return Err(NotAuthentic);
                }
                let context = DecryptionContext::Iv128(FixedLength::from(*iv));
                key.decrypt(sealed, context).map_err(|_| NotAuthentic)
            }
        }
    }
}

impl Cbc {
    fn next_iv(&mut self) -> Result<[u8; BLOCK], NotAuthentic> {
        if self.ivs_used == IVS {
            rand::fill(&mut self.ivs).map_err(|_| NotAuthentic)?;
            self.ivs_used = 0;
        }
        let iv = *self.ivs[self.ivs_used * BLOCK..].first_chunk().expect("an IV");
        self.ivs_used += 1;
        Ok(iv)
    }

    fn sign(&self, associated: &[u8], body: &[u8], trailer: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.hmac);
        context.update(associated);
        context.update(body);
        context.update(trailer);
        context.sign()
    }
}

fn nonce(salt: [u8; SALT], iv: [u8; AEAD_IV]) -> Nonce {
    let mut nonce = [0; SALT + AEAD_IV];
    nonce[..SALT].copy_from_slice(&salt);
    nonce[SALT..].copy_from_slice(&iv);
    Nonce::assume_unique_for_key(nonce)
}
