//! `tls-crypt`: control packets are encrypted and authenticated with a shared key: op | session | id | time | tag |
//! ciphertext. The tag is HMAC-SHA256 over everything before it and the plaintext; its first half is the IV of
//! AES-256-CTR. Owns this construction, which also wraps the keys of `tls-crypt-v2`; `wrap` detects replays.

use aws_lc_rs::cipher::{
    DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey, AES_256,
};
use aws_lc_rs::{constant_time, hmac};

use super::super::packet::HEAD_LEN;
use super::super::role::Role;
use super::error::WrapError;
use super::packet_id::PacketId;
use super::static_key::{KeyPair, StaticKey};

/// Length of a tag, bytes.
pub(super) const TAG_LEN: usize = 32;
const IV_LEN: usize = 16;
const CIPHER_KEY_LEN: usize = 32;
const HMAC_KEY_LEN: usize = 32;

/// The keys of both directions.
pub struct CryptKeys {
    send: Sealing,
    receive: Opening,
    /// The key with which dynamic keys are combined.
    pub(super) base: StaticKey,
}

/// The keys for encryption and authentication.
pub(super) struct Sealing {
    cipher: EncryptingKey,
    hmac: hmac::Key,
}

/// The keys for decryption and verification.
pub(super) struct Opening {
    cipher: DecryptingKey,
    hmac: hmac::Key,
}

impl CryptKeys {
    /// The server sends with the first key, the client with the second.
    pub(super) fn new(key: StaticKey, role: Role) -> Self {
        let (send, receive) = match role {
            Role::Server => (0, 1),
            Role::Client => (1, 0),
        };
        Self { send: Sealing::new(key.pair(send)), receive: Opening::new(key.pair(receive)), base: key }
    }

    /// Overhead of a packet, bytes.
    pub(super) const OVERHEAD: usize = PacketId::LEN + TAG_LEN;

    pub(super) fn seal(&self, head: [u8; HEAD_LEN], id: PacketId, body: &[u8], out: &mut Vec<u8>) {
        let id = id.bytes();
        out.extend_from_slice(&head);
        out.extend_from_slice(&id);
        self.send.seal(&[&head, &id], &[body], out);
    }

    /// Returns the packet's id, and the offset of its content, decrypted in place.
    pub(super) fn open(&self, packet: &mut [u8]) -> Result<(PacketId, usize), WrapError> {
        let (authenticated, sealed) =
            packet.split_at_mut_checked(HEAD_LEN + PacketId::LEN).ok_or(WrapError::TOO_SHORT)?;
        self.receive.open(authenticated, sealed)?;
        let id = authenticated.last_chunk().ok_or(WrapError::TOO_SHORT)?;
        Ok((PacketId::from_bytes(*id), HEAD_LEN + PacketId::LEN + TAG_LEN))
    }
}

impl Sealing {
    pub(super) fn new(key: KeyPair<'_>) -> Self {
        Self { cipher: EncryptingKey::ctr(cipher_key(key)).expect("AES-256 counts"), hmac: hmac_key(key) }
    }

    /// Appends the tag over `authenticated` and `plaintext`, then the encrypted `plaintext`; each is passed in pieces.
    pub(super) fn seal(&self, authenticated: &[&[u8]], plaintext: &[&[u8]], out: &mut Vec<u8>) {
        let tag = tag(&self.hmac, authenticated.iter().chain(plaintext));
        out.extend_from_slice(&tag);
        let start = out.len();
        for piece in plaintext {
            out.extend_from_slice(piece);
        }
        let context = EncryptionContext::Iv128(iv(&tag).into());
        self.cipher.less_safe_encrypt(&mut out[start..], context).expect("CTR accepts any length and this IV");
    }
}

impl Opening {
    pub(super) fn new(key: KeyPair<'_>) -> Self {
        Self { cipher: DecryptingKey::ctr(cipher_key(key)).expect("AES-256 counts"), hmac: hmac_key(key) }
    }

    /// Decrypts `sealed` (tag, then ciphertext) in place and verifies its tag, which also covers `authenticated`. The
    /// plaintext follows the tag; after an error it must not be used.
    pub(super) fn open(&self, authenticated: &[u8], sealed: &mut [u8]) -> Result<(), WrapError> {
        let (received_tag, text) = sealed.split_first_chunk_mut::<TAG_LEN>().ok_or(WrapError::TOO_SHORT)?;
        let context = DecryptionContext::Iv128(iv(received_tag).into());
        self.cipher.decrypt(text, context).map_err(|_| WrapError::Unauthentic)?;
        let pieces: [&[u8]; 2] = [authenticated, text];
        constant_time::verify_slices_are_equal(&tag(&self.hmac, pieces.iter()), received_tag)
            .map_err(|_| WrapError::Unauthentic)
    }
}

fn cipher_key(key: KeyPair<'_>) -> UnboundCipherKey {
    UnboundCipherKey::new(&AES_256, &key.cipher[..CIPHER_KEY_LEN]).expect("32 bytes are AES-256's key")
}

fn hmac_key(key: KeyPair<'_>) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &key.hmac[..HMAC_KEY_LEN])
}

fn tag<'a>(key: &hmac::Key, pieces: impl Iterator<Item = &'a &'a [u8]>) -> [u8; TAG_LEN] {
    let mut context = hmac::Context::with_key(key);
    for piece in pieces {
        context.update(piece);
    }
    context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn iv(tag: &[u8; TAG_LEN]) -> [u8; IV_LEN] {
    *tag.first_chunk().expect("a tag is longer than an IV")
}
