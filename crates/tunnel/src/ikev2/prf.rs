//! Pseudorandom functions (RFC 7296, section 2.13). `prf+` makes key material of any length from them.

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::secret_bytes::SecretBytes;

/// A pseudorandom function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prf {
    /// PRF_HMAC_SHA2_256.
    HmacSha256,
    /// PRF_HMAC_SHA2_384.
    HmacSha384,
    /// PRF_HMAC_SHA2_512.
    HmacSha512,
}

impl Prf {
    /// Length of its output and of its preferred key, bytes.
    #[must_use]
    pub fn output_bytes(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Computes the function over the concatenation of `parts`.
    #[must_use]
    pub fn compute(self, key: &[u8], parts: &[&[u8]]) -> SecretBytes {
        compute(&self.key(key), parts)
    }

    /// `prf+`: T1 | T2 | ... where Tn = prf(K, Tn-1 | S | n), of `length` bytes, at most 255 blocks.
    #[must_use]
    pub fn expand(self, key: &[u8], seed: &[&[u8]], length: usize) -> SecretBytes {
        debug_assert!(length <= 255 * self.output_bytes());
        let key = self.key(key);
        let mut material = Zeroizing::new(Vec::with_capacity(length + self.output_bytes()));
        let mut block = SecretBytes::default();
        let mut number = 1u8;
        while material.len() < length {
            let mut parts: Vec<&[u8]> = vec![block.expose()];
            parts.extend_from_slice(seed);
            let counter = [number];
            parts.push(&counter);
            let next = compute(&key, &parts);
            material.extend_from_slice(next.expose());
            block = next;
            number = number.wrapping_add(1);
        }
        SecretBytes::from(&material[..length])
    }

    fn key(self, key: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, key)
    }
}

fn compute(key: &hmac::Key, parts: &[&[u8]]) -> SecretBytes {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    SecretBytes::from(context.sign().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn functions_match_rfc_4231() {
        let expected = [
            (Prf::HmacSha256, [0x5b, 0xdc, 0xc1, 0x46]),
            (Prf::HmacSha384, [0xaf, 0x45, 0xd2, 0xe3]),
            (Prf::HmacSha512, [0x16, 0x4b, 0x7a, 0x7b]),
        ];
        for (prf, start) in expected {
            let output = prf.compute(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
            assert_eq!(output.expose()[..4], start);
            assert_eq!(output.expose().len(), prf.output_bytes());
        }
    }

    #[test]
    fn expansion_chains_its_blocks() {
        for prf in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512] {
            let first = prf.compute(b"key", &[b"seed", &[1]]);
            let second = prf.compute(b"key", &[first.expose(), b"seed", &[2]]);
            let whole = [first.expose(), second.expose()].concat();
            for length in [1, prf.output_bytes(), prf.output_bytes() + 5, 2 * prf.output_bytes()] {
                assert_eq!(prf.expand(b"key", &[b"se", b"ed"], length).expose(), &whole[..length]);
            }
        }
    }
}
