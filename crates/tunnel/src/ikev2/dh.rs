//! Diffie-Hellman groups by their numbers: public values as KE payloads carry them, and shared secrets as the keys are
//! derived from. aws-lc computes the curves, `modp` group 14.

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, ECDH_P256, ECDH_P384, X25519};

use super::modp::Exponent;
use super::secret_bytes::SecretBytes;

/// A group that is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Group {
    /// Group 14, MODP with 2048 bits (RFC 3526).
    Modp2048 = 14,
    /// Group 19, NIST P-256 (RFC 5903).
    Ecp256 = 19,
    /// Group 20, NIST P-384 (RFC 5903).
    Ecp384 = 20,
    /// Group 31, Curve25519 (RFC 8031).
    X25519 = 31,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 4] = [Self::Modp2048, Self::Ecp256, Self::Ecp384, Self::X25519];

    /// The group with this number, if it is supported.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.number() == number)
    }

    /// The group that swanctl.conf calls `word`.
    #[must_use]
    pub fn from_keyword(word: &str) -> Option<Self> {
        match word {
            "modp2048" => Some(Self::Modp2048),
            "ecp256" => Some(Self::Ecp256),
            "ecp384" => Some(Self::Ecp384),
            "x25519" | "curve25519" => Some(Self::X25519),
            _ => None,
        }
    }

    /// Its number in a proposal and in a KE payload.
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }

    /// aws-lc's curve; `None` for MODP.
    fn curve(self) -> Option<&'static agreement::Algorithm> {
        match self {
            Self::Modp2048 => None,
            Self::Ecp256 => Some(&ECDH_P256),
            Self::Ecp384 => Some(&ECDH_P384),
            Self::X25519 => Some(&X25519),
        }
    }

    /// Whether the wire format leaves out the byte 0x04 of an uncompressed point (RFC 5903, section 7).
    fn is_bare_point(self) -> bool {
        matches!(self, Self::Ecp256 | Self::Ecp384)
    }
}

/// The error of a public value that is not in the group, or of a library that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the public value is not valid in its group")]
pub struct BadPublicValue;

/// One end's key pair for one exchange.
pub struct KeyPair {
    group: Group,
    private: Private,
    public: Vec<u8>,
}

enum Private {
    Curve(PrivateKey),
    Modp(Exponent),
}

impl KeyPair {
    /// Creates a key pair.
    ///
    /// # Errors
    /// The library fails.
    pub fn generate(group: Group) -> Result<Self, BadPublicValue> {
        match group.curve() {
            Some(curve) => Self::new(group, PrivateKey::generate(curve).map_err(|_| BadPublicValue)?),
            None => {
                let exponent = Exponent::generate().ok_or(BadPublicValue)?;
                Ok(Self { group, public: exponent.public(), private: Private::Modp(exponent) })
            }
        }
    }

    fn new(group: Group, private: PrivateKey) -> Result<Self, BadPublicValue> {
        let point = private.compute_public_key().map_err(|_| BadPublicValue)?;
        let public = point.as_ref()[usize::from(group.is_bare_point())..].to_vec();
        Ok(Self { group, private: Private::Curve(private), public })
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// The public value, as a KE payload carries it.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret with a peer's public value: the x coordinate of a curve's point.
    ///
    /// # Errors
    /// The value is not in the group.
    pub fn agree(&self, public: &[u8]) -> Result<SecretBytes, BadPublicValue> {
        let private = match (&self.private, self.group.curve()) {
            (Private::Modp(exponent), _) => return exponent.agree(public).ok_or(BadPublicValue),
            (Private::Curve(private), Some(curve)) => (private, curve),
            (Private::Curve(_), None) => return Err(BadPublicValue),
        };
        let mut point = Vec::with_capacity(1 + public.len());
        if self.group.is_bare_point() {
            point.push(0x04);
        }
        point.extend_from_slice(public);
        let peer = UnparsedPublicKey::new(private.1, point);
        agreement::agree(private.0, peer, BadPublicValue, |secret| Ok(SecretBytes::from(secret)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn given(group: Group, private: &str) -> KeyPair {
        let private = PrivateKey::from_private_key(group.curve().expect("a curve"), &bytes(private)).expect("a key");
        KeyPair::new(group, private).expect("a pair")
    }

    #[test]
    fn both_ends_agree_in_each_group() {
        for group in Group::ALL {
            let (one, other) = (KeyPair::generate(group).expect("a pair"), KeyPair::generate(group).expect("a pair"));
            assert_eq!(one.agree(other.public()), other.agree(one.public()));
            assert!(one.agree(&other.public()[1..]).is_err());
            assert!(one.agree(&vec![0; other.public().len()]).is_err(), "{group:?}: zero is in no group");
            assert_eq!(Group::from_number(group.number()), Some(group));
        }
        assert_eq!(Group::from_number(2), None);
    }

    /// RFC 5903, section 8.1.
    #[test]
    fn p256_matches_rfc_5903() {
        let one = given(Group::Ecp256, "C88F01F510D9AC3F70A292DAA2316DE544E9AAB8AFE84049C62A9C57862D1433");
        let other = given(Group::Ecp256, "C6EF9C5D78AE012A011164ACB397CE2088685D8F06BF9BE0B283AB46476BEE53");
        assert_eq!(one.public()[..4], bytes("DAD0B653"));
        assert_eq!(other.public()[..4], bytes("D12DFB52"));
        let shared = bytes("D6840F6B42F6EDAFD13116E0E12565202FEF8E9ECE7DCE03812464D04B9442DE");
        assert_eq!(one.agree(other.public()).expect("a secret").expose(), shared);
    }

    /// RFC 5903, section 8.2.
    #[test]
    fn p384_matches_rfc_5903() {
        let one = given(
            Group::Ecp384,
            "099F3C7034D4A2C699884D73A375A67F7624EF7C6B3C0F160647B67414DCE655E35B538041E649EE3FAEF896783AB194",
        );
        let other = given(
            Group::Ecp384,
            "41CB0779B4BDB85D47846725FBEC3C9430FAB46CC8DC5060855CC9BDA0AA2942E0308312916B8ED2960E4BD55A7448FC",
        );
        let shared =
            bytes("11187331C279962D93D604243FD592CB9D0A926F422E47187521287E7156C5C4D603135569B9E9D09CF5D4A270F59746");
        assert_eq!(one.agree(other.public()).expect("a secret").expose(), shared);
    }

    /// RFC 7748, section 6.1.
    #[test]
    fn x25519_matches_rfc_7748() {
        let one = given(Group::X25519, "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let other = given(Group::X25519, "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        assert_eq!(one.public(), bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
        let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        assert_eq!(one.agree(other.public()).expect("a secret").expose(), shared);
    }
}
