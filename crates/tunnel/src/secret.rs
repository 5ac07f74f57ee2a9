//! A secret text: it is wiped when dropped, and Debug hides it. Its memory is not locked: the host has to protect its
//! swap space.

use std::fmt;

use zeroize::Zeroizing;

/// A password, token or private key.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a secret text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text, for the code that has to send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    /// Prints neither the text nor its length.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_secret() {
        let secret = Secret::from("hunter2");
        assert_eq!(format!("{secret:?}, {:#?}", Some(&secret)), "Secret(..), Some(\n    Secret(..),\n)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
