//! Unpredictable bytes from a seed, so that a client is a function of its inputs: SPIs, nonces and the spread of rekey
//! times. Private keys and CBC's IVs are made by aws-lc from the system's randomness.

use aws_lc_rs::digest::{Context, SHA256};
use zeroize::Zeroizing;

/// A generator: SHA-256 of seed and counter. Each client needs its own seed.
pub struct Random {
    seed: Zeroizing<[u8; 32]>,
    counter: u64,
}

impl Random {
    /// A generator whose output is as unpredictable as `seed`.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed: Zeroizing::new(seed), counter: 0 }
    }

    /// A generator with a seed from the operating system.
    ///
    /// # Panics
    /// If the operating system provides no randomness, because no secret would be safe.
    #[must_use]
    pub fn from_system() -> Self {
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).expect("the system has random bytes");
        Self::new(seed)
    }

    /// Returns up to 32 bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        const { assert!(N <= 32) };
        let mut context = Context::new(&SHA256);
        context.update(&*self.seed);
        context.update(&self.counter.to_be_bytes());
        self.counter += 1;
        *context.finish().as_ref().first_chunk().expect("a digest of 32 bytes")
    }

    /// An SPI for ESP: RFC 4303, section 2.1 reserves the values up to 255.
    pub fn esp_spi(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes()).max(256)
    }

    /// An SPI for IKE, which is not 0.
    pub fn ike_spi(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes()).max(1)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::from_be_bytes(self.bytes()) % bound.max(1)
    }
}
