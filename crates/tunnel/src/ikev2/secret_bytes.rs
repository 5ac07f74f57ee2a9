//! Secret bytes: wiped when dropped, hidden from Debug.

use std::fmt;

use zeroize::Zeroizing;

/// A key, a shared secret or a pre-shared key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Wraps secret bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the code that computes with them.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for SecretBytes {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes.to_vec())
    }
}

impl fmt::Debug for SecretBytes {
    /// Prints neither the bytes nor their number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretBytes(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_bytes() {
        let secret = SecretBytes::from(&b"hunter2"[..]);
        assert_eq!(format!("{secret:?}"), "SecretBytes(..)");
        assert_eq!(secret.expose(), b"hunter2");
    }
}
