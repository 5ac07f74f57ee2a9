//! Curve25519 keys in WireGuard's text form: 32 bytes in base64. A private key never appears in `Debug` or in an
//! error.

use std::fmt;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use boringtun::x25519;

/// A private key. Wiped from memory when dropped.
#[derive(Clone)]
pub struct PrivateKey(pub(super) x25519::StaticSecret);

/// A public key, which identifies a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub(super) [u8; 32]);

/// A key that both ends share in addition to their own. Never in `Debug` or in an error.
#[derive(Clone, PartialEq, Eq, zeroize::ZeroizeOnDrop)]
pub struct PresharedKey(pub(super) [u8; 32]);

/// Why a text is not a key. The message does not repeat the text, which may be secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// Not base64.
    #[error("a key is 44 characters of base64, and this is not base64")]
    NotBase64,
    /// Base64 of another length.
    #[error("a key is 32 bytes in base64, and this is {0} bytes")]
    Length(usize),
}

impl PrivateKey {
    /// Wraps 32 secret bytes; the curve clamps them.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(x25519::StaticSecret::from(bytes))
    }

    /// The public key of this private key.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.0).to_bytes())
    }
}

impl TryFrom<String> for PrivateKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        decode(&text).map(Self::from_bytes)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        decode(&text).map(Self)
    }
}

impl TryFrom<String> for PresharedKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
        decode(&text).map(Self)
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PresharedKey(secret)")
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrivateKey(secret)")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

fn decode(text: &str) -> Result<[u8; 32], BadKey> {
    let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|_| BadKey::NotBase64)?;
    let length = bytes.len();
    bytes.try_into().map_err(|_| BadKey::Length(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_private_key_yields_its_public_key() {
        // RFC 7748, section 6.1: Alice's private and public key.
        let private = PrivateKey::try_from("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=".to_string()).unwrap();
        assert_eq!(private.public().to_string(), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=");
        assert_eq!(format!("{private:?}"), "PrivateKey(secret)");
    }

    #[test]
    fn invalid_key_error_names_the_cause() {
        assert_eq!(PublicKey::try_from("***".to_string()), Err(BadKey::NotBase64));
        assert_eq!(PublicKey::try_from("AAAA".to_string()), Err(BadKey::Length(3)));
    }
}
