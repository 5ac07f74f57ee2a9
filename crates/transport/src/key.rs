//! The key that a responder shares with its clients, and the proofs of both sides: HMAC-SHA256 (RFC 2104) over a
//! fresh nonce of each side and the request for the session. The key itself never leaves a host, and a proof is valid
//! for one session only.

use std::fmt;

use aws_lc_rs::hmac;
use serde::{de, Deserialize, Deserializer, Serialize, Serializer};

/// Maximum length of a key, bytes.
pub const LONGEST_KEY_BYTES: usize = 4096;

/// Why a key is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is empty.
    #[error("the key is empty")]
    Empty,
    /// The key is too long.
    #[error("the key is longer than {LONGEST_KEY_BYTES} bytes")]
    TooLong,
}

/// A shared key. Its debug output does not show it.
#[derive(Clone)]
pub struct SharedKey(hmac::Key);

/// A nonce or a proof of 32 bytes; lower-case hexadecimal digits in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex32(pub [u8; 32]);

/// The data that both proofs of a session cover.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The client's fresh nonce.
    pub client: Hex32,
    /// The server's fresh nonce.
    pub server: Hex32,
    /// The request for the session as it was sent, byte by byte.
    pub request: Vec<u8>,
}

impl SharedKey {
    /// Creates a key from its bytes.
    ///
    /// # Errors
    /// The key is empty or too long.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        match secret.len() {
            0 => Err(KeyError::Empty),
            1..=LONGEST_KEY_BYTES => Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret))),
            _ => Err(KeyError::TooLong),
        }
    }

    /// Computes a client's proof for its server.
    pub fn client_proof(&self, transcript: &Transcript) -> Hex32 {
        self.sign(&transcript.covered(CLIENT, 0))
    }

    /// Computes a server's proof for its client, together with the granted token.
    pub fn server_proof(&self, transcript: &Transcript, token: u64) -> Hex32 {
        self.sign(&transcript.covered(SERVER, token))
    }

    /// Whether a client's proof is right. Takes the same time wherever the proofs differ.
    pub fn is_client(&self, transcript: &Transcript, proof: Hex32) -> bool {
        hmac::verify(&self.0, &transcript.covered(CLIENT, 0), &proof.0).is_ok()
    }

    /// Whether a server's proof is right. Takes the same time wherever the proofs differ.
    pub fn is_server(&self, transcript: &Transcript, token: u64, proof: Hex32) -> bool {
        hmac::verify(&self.0, &transcript.covered(SERVER, token), &proof.0).is_ok()
    }

    /// Computes the authentication code of some bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Hex32 {
        let mut proof = [0; 32];
        // SHA-256's output is 32 bytes (FIPS 180-4).
        proof.copy_from_slice(&hmac::sign(&self.0, bytes).as_ref()[..32]);
        Hex32(proof)
    }
}

/// Returns the fingerprint of a clock's identity for one session. Both ends can compute it, and it tells others nothing
/// about the host.
pub fn clock_fingerprint(identity: &str, token: u64) -> Hex32 {
    SharedKey(hmac::Key::new(hmac::HMAC_SHA256, identity.as_bytes())).sign(&token.to_be_bytes())
}

/// Labels of the two sides. They differ, so neither side's proof can be reflected as the other's.
const CLIENT: &[u8; 17] = b"LEADLINE/2 client";
const SERVER: &[u8; 17] = b"LEADLINE/2 server";

impl Transcript {
    /// The bytes that a proof covers. All parts but the last have fixed lengths, so different transcripts give
    /// different bytes.
    fn covered(&self, label: &[u8; 17], token: u64) -> Vec<u8> {
        [label, &self.client.0[..], &self.server.0, &token.to_be_bytes(), &self.request].concat()
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKey(..)")
    }
}

impl Serialize for Hex32 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Hex32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom("64 hexadecimal digits are expected");
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(wrong()),
        };
        let digits: &[u8; 64] = text.as_bytes().try_into().map_err(|_| wrong())?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        Transcript { client: Hex32([1; 32]), server: Hex32([2; 32]), request: b"{\"flows\":1}".to_vec() }
    }

    #[test]
    fn hmac_matches_rfc_4231() {
        let key = SharedKey::new(b"Jefe").unwrap();
        let proof = serde_json::to_string(&key.sign(b"what do ya want for nothing?")).unwrap();
        assert_eq!(proof, "\"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843\"");
        assert_eq!(serde_json::from_str::<Hex32>(&proof).unwrap(), key.sign(b"what do ya want for nothing?"));
    }

    #[test]
    fn proof_is_bound_to_its_key_side_nonces_request_and_token() {
        let (key, other) = (SharedKey::new(b"right").unwrap(), SharedKey::new(b"wrong").unwrap());
        let (client, server) = (key.client_proof(&transcript()), key.server_proof(&transcript(), 7));
        assert!(key.is_client(&transcript(), client) && key.is_server(&transcript(), 7, server));
        assert!(!other.is_client(&transcript(), client) && !other.is_server(&transcript(), 7, server));
        assert!(!key.is_server(&transcript(), 0, client) && !key.is_client(&transcript(), server));
        assert!(!key.is_server(&transcript(), 8, server), "another token");
        let changed = [
            Transcript { client: Hex32([3; 32]), ..transcript() },
            Transcript { server: Hex32([3; 32]), ..transcript() },
            Transcript { request: b"{\"flows\":2}".to_vec(), ..transcript() },
        ];
        for transcript in changed {
            assert!(!key.is_client(&transcript, client) && !key.is_server(&transcript, 7, server), "{transcript:?}");
        }
    }

    #[test]
    fn keys_are_bounded_and_never_shown() {
        assert_eq!(SharedKey::new(b"").unwrap_err(), KeyError::Empty);
        assert_eq!(SharedKey::new(&[1; LONGEST_KEY_BYTES + 1]).unwrap_err(), KeyError::TooLong);
        assert_eq!(format!("{:?}", SharedKey::new(b"hunter2").unwrap()), "SharedKey(..)");
    }

    #[test]
    fn invalid_hexadecimal_digits_are_refused() {
        for text in ["\"\"", "\"00\"", "1", "null"] {
            assert!(serde_json::from_str::<Hex32>(text).is_err(), "{text}");
        }
        let long = |digit: char, count| format!("\"{}\"", String::from(digit).repeat(count));
        assert!(serde_json::from_str::<Hex32>(&long('0', 64)).is_ok());
        for text in [long('0', 63), long('0', 65), long('g', 64), long('A', 64), long('ä', 32)] {
            assert!(serde_json::from_str::<Hex32>(&text).is_err(), "{text}");
        }
    }
}
