//! Random bytes for session ids and secrets, and wiping what held them.

use zeroize::Zeroize;

/// Bytes that nobody can guess.
///
/// # Panics
/// Where the operating system has no randomness to give, and nothing could be secret.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// Overwrite what has been used.
pub fn wipe(bytes: &mut Vec<u8>) {
    bytes.zeroize();
}
