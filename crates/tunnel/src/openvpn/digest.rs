//! The digests of `auth`, which authenticate CBC packets and control packets of `tls-auth`. Owns their names and
//! lengths; aws-lc computes the HMACs. Does not support digests shorter than SHA1's.

use aws_lc_rs::hmac;

/// A digest for packet authentication (HMAC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Digest {
    /// SHA1, OpenVPN's default.
    #[default]
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Digest {
    /// Every digest, weakest first.
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];
    /// Length of the longest HMAC, bytes.
    pub const LONGEST: usize = 64;

    /// The digest that OpenVPN's option `auth` calls `name`: `SHA256`, also `SHA-256` and `RSA-SHA256`; case is
    /// ignored.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let raw = upper.strip_prefix("RSA-").unwrap_or(&upper).replacen('-', "", 1);
        Self::ALL.into_iter().find(|digest| digest.name() == raw)
    }

    /// OpenVPN's name of the digest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        }
    }

    /// Length of the HMAC and of its key, bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // no HMAC is empty
    pub fn len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// An HMAC key of `len()` bytes: the first bytes of `key`, of which OpenVPN stores 64.
    ///
    /// # Panics
    /// If `key` has fewer bytes than `len()`.
    #[must_use]
    pub fn key(self, key: &[u8]) -> hmac::Key {
        hmac::Key::new(self.algorithm(), &key[..self.len()])
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_names_ignore_case_and_lengths_match_the_hmac() {
        for digest in Digest::ALL {
            assert_eq!(Digest::from_name(digest.name()), Some(digest));
            assert_eq!(Digest::from_name(&digest.name().to_ascii_lowercase()), Some(digest));
            assert_eq!(hmac::sign(&digest.key(&[7; 64]), b"packet").as_ref().len(), digest.len());
            assert!(digest.len() <= Digest::LONGEST);
        }
        assert_eq!(Digest::from_name("RSA-SHA512"), Some(Digest::Sha512));
        assert_eq!(Digest::from_name("sha-256"), Some(Digest::Sha256));
        for unknown in ["", "MD5", "SHA", "SHA3-256", "none"] {
            assert_eq!(Digest::from_name(unknown), None, "{unknown}");
        }
    }
}
