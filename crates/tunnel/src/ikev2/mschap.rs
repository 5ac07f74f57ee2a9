//! MS-CHAP-V2's functions (RFC 2759) and the keys from it (RFC 3079). Its algorithms are weak; gateways still ask for
//! them inside an IKE SA, where no third party sees them.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use des::cipher::{BlockCipherEncrypt, KeyInit};
use des::Des;
use md4::{Digest, Md4};
use zeroize::Zeroizing;

use super::secret_bytes::SecretBytes;

/// A challenge of either end.
pub type Challenge = [u8; 16];
/// The response to both challenges.
pub type Response = [u8; 24];

const SIGNING: &[u8] = b"Magic server to client signing constant";
const PAD: &[u8] = b"Pad to make it do more than one iteration";
const MASTER: &[u8] = b"This is the MPPE Master Key";
const CLIENT_SENDS: &[u8] = b"On the client side, this is the send key; on the server side, it is the receive key.";
const CLIENT_RECEIVES: &[u8] = b"On the client side, this is the receive key; on the server side, it is the send key.";

/// A password's hash.
pub struct PasswordHash(Zeroizing<[u8; 16]>);

impl PasswordHash {
    /// NtPasswordHash: MD4 of the password in UTF-16.
    #[must_use]
    pub fn new(password: &str) -> Self {
        let bytes: Zeroizing<Vec<u8>> = Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
        Self(Zeroizing::new(Md4::digest(&*bytes).into()))
    }

    /// GenerateNTResponse.
    #[must_use]
    pub fn respond(&self, authenticator: &Challenge, peer: &Challenge, user: &str) -> Response {
        let challenge = hash_challenges(authenticator, peer, user);
        let mut padded = Zeroizing::new([0; 21]);
        padded[..16].copy_from_slice(&*self.0);
        let mut response = [0; 24];
        for (key, block) in padded.chunks_exact(7).zip(response.chunks_exact_mut(8)) {
            let mut out = challenge.into();
            Des::new(&des_key(key).into()).encrypt_block(&mut out);
            block.copy_from_slice(&out);
        }
        response
    }

    /// GenerateAuthenticatorResponse: `S=` and 40 digits, by which the gateway proves that it knows the password.
    #[must_use]
    pub fn compute_authenticator_response(
        &self,
        authenticator: &Challenge,
        peer: &Challenge,
        user: &str,
        response: &Response,
    ) -> String {
        let inner = sha1(&[&*self.rehash(), response, SIGNING]);
        let outer = sha1(&[&inner, &hash_challenges(authenticator, peer, user), PAD]);
        let digits: String = outer.iter().map(|byte| format!("{byte:02X}")).collect();
        format!("S={digits}")
    }

    /// The key that AUTH payloads are made with after EAP: both start keys of RFC 3079, section 3.3, and zeros.
    #[must_use]
    pub fn derive_session_key(&self, response: &Response) -> SecretBytes {
        let master = Zeroizing::new(sha1(&[&*self.rehash(), response, MASTER]));
        let mut key = Vec::with_capacity(64);
        for magic in [CLIENT_SENDS, CLIENT_RECEIVES] {
            let start = Zeroizing::new(sha1(&[&master[..16], &[0; 40], magic, &[0xF2; 40]]));
            key.extend_from_slice(&start[..16]);
        }
        key.resize(64, 0);
        SecretBytes::new(key)
    }

    fn rehash(&self) -> Zeroizing<[u8; 16]> {
        Zeroizing::new(Md4::digest(*self.0).into())
    }
}

fn hash_challenges(authenticator: &Challenge, peer: &Challenge, user: &str) -> [u8; 8] {
    // RFC 2759, section 4: "The user name without any domain".
    let name = user.rsplit_once('\\').map_or(user, |(_, name)| name);
    *sha1(&[peer, authenticator, name.as_bytes()]).first_chunk().expect("a digest")
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    *context.finish().as_ref().first_chunk().expect("a digest")
}

/// A key of 7 bytes, each 7 bits followed by a parity bit, which DES ignores.
fn des_key(bytes: &[u8]) -> [u8; 8] {
    let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    std::array::from_fn(|index| ((bits >> (49 - 7 * index)) as u8 & 0x7F) << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2759, section 9.2; RFC 3079, section 3.5.3.
    #[test]
    fn functions_match_the_examples_of_the_rfcs() {
        let authenticator = 0x5B5D_7C7D_7B3F_2F3E_3C2C_6021_3226_2628_u128.to_be_bytes();
        let peer = 0x2140_2324_255E_262A_2829_5F2B_3A33_7C7E_u128.to_be_bytes();
        let hash = PasswordHash::new("clientPass");
        assert_eq!(*hash.0, 0x44EB_BA8D_5312_B8D6_1147_4411_F569_89AE_u128.to_be_bytes());
        let response = hash.respond(&authenticator, &peer, "User");
        assert_eq!(response[..16], 0x8230_9ECD_8D70_8B5E_A08F_AA39_81CD_8354_u128.to_be_bytes());
        assert_eq!(response[16..], 0x4233_114A_3D85_D6DF_u64.to_be_bytes());
        assert_eq!(response, hash.respond(&authenticator, &peer, "BIGCO\\User"));
        let proof = hash.compute_authenticator_response(&authenticator, &peer, "User", &response);
        assert_eq!(proof, "S=407A5589115FD0D6209F510FE9C04566932CDA56");
        let key = hash.derive_session_key(&response);
        assert_eq!(key.expose()[16..32], 0x8B7C_DC14_9B99_3A1B_A118_CB15_3F56_DCCB_u128.to_be_bytes());
        assert_eq!(key.expose()[32..], [0; 32]);
    }
}
