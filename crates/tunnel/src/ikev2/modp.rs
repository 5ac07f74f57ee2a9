//! MODP group 14 (RFC 3526, section 3): a prime of 2048 bits, the generator 2. Exponents have 256 bits, which is twice
//! the group's strength; powers take constant time.

use crypto_bigint::modular::{MontyForm, MontyParams};
use crypto_bigint::{Odd, U2048, U256};
use zeroize::Zeroizing;

use super::secret_bytes::SecretBytes;

/// Length of a public value and of the shared secret, bytes: both are padded on the left.
pub const BYTES: usize = 256;
const EXPONENT_BITS: u32 = 256;

const PRIME: U2048 = U2048::from_be_hex(concat!(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74",
    "020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437",
    "4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED",
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05",
    "98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB",
    "9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B",
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718",
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
));

/// A private exponent.
pub struct Exponent(Zeroizing<[u8; 32]>);

impl Exponent {
    /// Creates an exponent; `None` if there is no randomness.
    #[must_use]
    pub fn generate() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        aws_lc_rs::rand::fill(&mut *bytes).ok()?;
        Some(Self(bytes))
    }

    /// The public value.
    #[must_use]
    pub fn public(&self) -> Vec<u8> {
        self.power(&U2048::from_u8(2)).to_be_bytes().to_vec()
    }

    /// The shared secret; `None` unless the value is between 2 and the prime minus 2 (RFC 6989, section 2.1).
    #[must_use]
    pub fn agree(&self, public: &[u8]) -> Option<SecretBytes> {
        let public = U2048::from_be_slice(Some(public).filter(|public| public.len() == BYTES)?);
        let is_valid = public > U2048::ONE && public < PRIME.wrapping_sub(&U2048::ONE);
        is_valid.then(|| SecretBytes::new(self.power(&public).to_be_bytes().to_vec()))
    }

    fn power(&self, base: &U2048) -> U2048 {
        let prime: Odd<U2048> = PRIME.to_odd().expect("a prime above 2 is odd");
        let parameters = MontyParams::new(prime);
        let exponent = U256::from_be_slice(&*self.0);
        MontyForm::new(base, parameters).pow_bounded_exp(&exponent, EXPONENT_BITS).retrieve()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_small_exponents_are_known_and_values_outside_of_the_group_are_refused() {
        let exponent = |last: u8| {
            let mut bytes = [0; 32];
            bytes[31] = last;
            Exponent(Zeroizing::new(bytes))
        };
        let public = exponent(10).public();
        assert_eq!((public.len(), &public[254..]), (BYTES, &[4, 0][..]));
        let shared = exponent(3).agree(&public).expect("a secret");
        assert_eq!(shared.expose()[250..], [0, 0, 64, 0, 0, 0]);
        let minus_one = PRIME.wrapping_sub(&U2048::ONE).to_be_bytes().to_vec();
        let small = |value: u8| [&[0; 255][..], &[value]].concat();
        for wrong in [small(0), small(1), minus_one, PRIME.to_be_bytes().to_vec(), vec![0xFF; 256], vec![9; 255]] {
            assert_eq!(exponent(3).agree(&wrong), None);
        }
    }
}
