//! Random bytes for session ids and secrets.

/// Bytes that nobody can guess.
///
/// # Panics
/// Where the operating system has no randomness to give, and nothing could be secret.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    bytes
}
