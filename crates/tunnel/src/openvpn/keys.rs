//! The keys of the data channel, and their derivation on both sides: exported from TLS, or computed by the PRF of TLS
//! 1.0 from the random values that both sides exchanged. Owns key bytes and wipes them; never prints them.

use aws_lc_rs::hmac as fast_hmac;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::role::Role;

/// The TLS exporter label of the data channel's keys; without context.
pub const EXPORT_LABEL: &[u8] = b"EXPORTER-OpenVPN-datakeys";
/// Length of both directions' keys together, bytes.
pub const KEY_MATERIAL_BYTES: usize = 256;

const HALF: usize = KEY_MATERIAL_BYTES / 2;
const PART: usize = HALF / 2;

/// Keys of both directions: for each a cipher's and an HMAC's of 64 bytes, of which only the first ones are used.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyMaterial([u8; KEY_MATERIAL_BYTES]);

/// The keys of one direction.
#[derive(Clone, Copy)]
pub(super) struct DirectionKeys<'a> {
    /// The first bytes are the cipher's key.
    pub cipher: &'a [u8; PART],
    /// The first bytes are the HMAC's key, or the implicit IV of an AEAD.
    pub hmac: &'a [u8; PART],
}

/// The random values of one side for the PRF.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct Randoms {
    /// For the master secret.
    pub r1: [u8; 32],
    /// For the keys.
    pub r2: [u8; 32],
}

/// Derives the keys from both sides' random values and session ids: OpenVPN's method before keys were exported from
/// TLS.
#[must_use]
pub fn from_prf(
    pre_master: &[u8; 48],
    client: &Randoms,
    server: &Randoms,
    client_session: &[u8; 8],
    server_session: &[u8; 8],
) -> KeyMaterial {
    let mut master = [0; 48];
    tls1_prf(pre_master, &[b"OpenVPN master secret", &client.r1, &server.r1], &mut master);
    let mut keys = KeyMaterial([0; KEY_MATERIAL_BYTES]);
    let seed: [&[u8]; 5] = [b"OpenVPN key expansion", &client.r2, &server.r2, client_session, server_session];
    tls1_prf(&master, &seed, &mut keys.0);
    master.zeroize();
    keys
}

/// The keys that TLS exported.
#[must_use]
pub fn from_exported(bytes: [u8; KEY_MATERIAL_BYTES]) -> KeyMaterial {
    KeyMaterial(bytes)
}

impl KeyMaterial {
    /// The keys with which `role` sends: the first half for the client, the second for the server.
    pub(super) fn sending(&self, role: Role) -> DirectionKeys<'_> {
        let start = match role {
            Role::Client => 0,
            Role::Server => HALF,
        };
        DirectionKeys { cipher: key_part(&self.0, start), hmac: key_part(&self.0, start + PART) }
    }

    /// The keys with which `role` receives.
    pub(super) fn receiving(&self, role: Role) -> DirectionKeys<'_> {
        self.sending(role.other())
    }
}

impl std::fmt::Debug for KeyMaterial {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyMaterial(..)")
    }
}

impl std::fmt::Debug for Randoms {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Randoms(..)")
    }
}

fn key_part(bytes: &[u8; KEY_MATERIAL_BYTES], start: usize) -> &[u8; PART] {
    bytes[start..].first_chunk().expect("four parts")
}

/// RFC 2246, 5: "PRF(secret, label, seed) = P_MD5(S1, label + seed) XOR P_SHA-1(S2, label + seed)"; the label is the
/// first element of `seed`.
fn tls1_prf(secret: &[u8], seed: &[&[u8]], out: &mut [u8]) {
    // "their length is ... the length of the secret ... divided by two"; both halves of an odd length include the
    // middle byte.
    let length = secret.len().div_ceil(2);
    out.fill(0);
    let md5 = Hmac::<Md5>::new_from_slice(&secret[..length]).expect("HMAC takes keys of any length");
    expand(seed, out, |a, seed| {
        let mut mac = md5.clone();
        mac.update(a);
        seed.iter().for_each(|piece| mac.update(piece));
        Block::from(&mac.finalize().into_bytes())
    });
    let sha1 = fast_hmac::Key::new(fast_hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &secret[secret.len() - length..]);
    expand(seed, out, |a, seed| {
        let mut mac = fast_hmac::Context::with_key(&sha1);
        mac.update(a);
        seed.iter().for_each(|piece| mac.update(piece));
        Block::from(mac.sign().as_ref())
    });
}

/// An HMAC of at most the length of SHA1's.
#[derive(Clone, Copy)]
struct Block {
    bytes: [u8; 20],
    length: usize,
}

impl Block {
    fn from(hmac: &[u8]) -> Self {
        let mut bytes = [0; 20];
        bytes[..hmac.len()].copy_from_slice(hmac);
        Self { bytes, length: hmac.len() }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// RFC 2246, 5: "P_hash(secret, seed) = HMAC_hash(secret, A(1) + seed) + HMAC_hash(secret, A(2) + seed) + ...", XORed
/// into `out`. `hmac` computes the HMAC of its first argument and the pieces after it.
fn expand(seed: &[&[u8]], out: &mut [u8], hmac: impl Fn(&[u8], &[&[u8]]) -> Block) {
    let mut a = hmac(&[], seed);
    for chunk in out.chunks_mut(a.length) {
        let block = hmac(a.as_slice(), seed);
        chunk.iter_mut().zip(block.as_slice()).for_each(|(out, byte)| *out ^= byte);
        a = hmac(a.as_slice(), &[]);
    }
}
