//! Random bytes for session ids and secrets.

/// Returns unpredictable bytes.
///
/// # Panics
/// If the operating system provides no randomness, because no secret would be safe.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random bytes");
    bytes
}
