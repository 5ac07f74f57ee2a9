//! AUTH payloads (RFC 7296, section 2.15): what each end signs, and pre-shared keys. Signatures are `signature`'s.

use super::message::{payload, PayloadWriter};
use super::prf::Prf;
use super::secret_bytes::SecretBytes;

/// Authentication by a shared key.
pub const METHOD_SHARED_KEY: u8 = 2;
/// Authentication by a signature with its algorithm (RFC 7427).
pub const METHOD_SIGNATURE: u8 = 14;
const KEY_PAD: &[u8] = b"Key Pad for IKEv2";

/// The bytes that one end signs: its first message, the other end's nonce, and its identity under its own key.
#[must_use]
pub fn build_signed_octets(
    prf: Prf,
    message: &[u8],
    other_nonce: &[u8],
    sk_p: &SecretBytes,
    id_body: &[u8],
) -> Vec<u8> {
    let identity = prf.compute(sk_p.expose(), &[id_body]);
    [message, other_nonce, identity.expose()].concat()
}

/// The proof of a shared key: prf(prf(key, "Key Pad for IKEv2"), octets).
#[must_use]
pub fn compute_shared_key_proof(prf: Prf, key: &[u8], octets: &[u8]) -> SecretBytes {
    let padded = prf.compute(key, &[KEY_PAD]);
    prf.compute(padded.expose(), &[octets])
}

/// Whether a proof is that of a shared key; the comparison takes constant time.
#[must_use]
pub fn is_shared_key_proof(prf: Prf, key: &[u8], octets: &[u8], proof: &[u8]) -> bool {
    let expected = compute_shared_key_proof(prf, key, octets);
    aws_lc_rs::constant_time::verify_slices_are_equal(expected.expose(), proof).is_ok()
}

/// Appends an AUTH payload.
pub fn push_auth(chain: &mut PayloadWriter, method: u8, data: &[u8]) {
    chain.push_with(payload::AUTH, |out| {
        out.extend_from_slice(&[method, 0, 0, 0]);
        out.extend_from_slice(data);
    });
}

/// Splits the body of an AUTH payload into method and data.
#[must_use]
pub fn read_auth(body: &[u8]) -> Option<(u8, &[u8])> {
    let (header, data) = body.split_first_chunk::<4>()?;
    Some((header[0], data))
}
