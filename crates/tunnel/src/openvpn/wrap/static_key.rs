//! Key files: the text of a static key, and the PEM-like blocks of `tls-crypt-v2`. Owns their bytes and wipes them;
//! never prints them, and does not know their use.

use std::fmt;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use zeroize::{Zeroize, Zeroizing};

/// The 256 bytes of a static key: two keys, each 64 bytes for a cipher and 64 for an HMAC.
#[derive(Clone)]
pub struct StaticKey(Box<[u8; StaticKey::LEN]>);

/// One of a static key's two keys, or the key of a `tls-crypt-v2` server.
#[derive(Clone, Copy)]
pub(super) struct KeyPair<'a> {
    /// Key material of the cipher, which uses the first bytes.
    pub cipher: &'a [u8],
    /// Key material of the HMAC, which uses the first bytes.
    pub hmac: &'a [u8],
}

/// Which of a static key's two keys an end sends with: `key-direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDirection {
    /// 0: sends with the first and receives with the second.
    Normal,
    /// 1: sends with the second and receives with the first.
    Inverse,
}

impl KeyDirection {
    /// The direction that a profile calls `0` or `1`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "0" => Some(Self::Normal),
            "1" => Some(Self::Inverse),
            _ => None,
        }
    }
}

impl StaticKey {
    /// Length, bytes.
    pub const LEN: usize = 256;

    const BEGIN: &'static str = "-----BEGIN OpenVPN Static key V1-----";
    const END: &'static str = "-----END OpenVPN Static key V1-----";

    /// Creates a key from these bytes.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; Self::LEN]) -> Self {
        let key = Self(Box::new(bytes));
        bytes.zeroize();
        key
    }

    /// Parses a key file's text: hexadecimal digits between two markers.
    ///
    /// # Errors
    /// A marker is missing, or the digits are not a key of 256 bytes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut key = Self(Box::new([0; Self::LEN]));
        let mut digits = 0;
        for digit in between(text, Self::BEGIN, Self::END)?.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            let value = char::from(digit).to_digit(16).ok_or(KeyError::NotHexadecimal)?;
            if let Some(byte) = key.0.get_mut(digits / 2) {
                *byte = *byte << 4 | value.to_le_bytes()[0];
            }
            digits += 1;
        }
        if digits != 2 * Self::LEN {
            return Err(KeyError::Length { bytes: digits / 2, right: "256" });
        }
        Ok(key)
    }

    /// The first (0) or second (1) key.
    pub(super) fn pair(&self, index: usize) -> KeyPair<'_> {
        KeyPair::new(&self.0[128 * index..128 * (index + 1)])
    }

    /// All bytes of the key.
    pub(super) fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// This key, XORed with `other`.
    pub(super) fn combined(mut self, other: &Self) -> Self {
        for (byte, other) in self.0.iter_mut().zip(other.0.iter()) {
            *byte ^= other;
        }
        self
    }
}

impl<'a> KeyPair<'a> {
    /// Splits 128 bytes into the pair.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (cipher, hmac) = bytes.split_at(64);
        Self { cipher, hmac }
    }
}

impl Drop for StaticKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StaticKey(..)")
    }
}

/// Decodes the block named `name` from base64.
pub(super) fn pem_block(text: &str, name: &'static str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let (begin, end) = (format!("-----BEGIN {name}-----"), format!("-----END {name}-----"));
    let inside = between(text, &begin, &end)?;
    let digits: Zeroizing<String> = Zeroizing::new(inside.split_ascii_whitespace().collect());
    STANDARD.decode(digits.as_bytes()).map(Zeroizing::new).map_err(|_| KeyError::NotBase64)
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Result<&'a str, KeyError> {
    let missing = |mark: &str| KeyError::NoMark(mark.to_owned());
    let (_, after) = text.split_once(begin).ok_or_else(|| missing(begin))?;
    let (inside, _) = after.split_once(end).ok_or_else(|| missing(end))?;
    Ok(inside)
}

/// Why a key file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Another kind of file, or a truncated one.
    #[error("the key has no line `{0}`")]
    NoMark(String),
    /// A character that is not a hexadecimal digit.
    #[error("the key has characters that are not hexadecimal digits")]
    NotHexadecimal,
    /// Not base64.
    #[error("the key is not base64")]
    NotBase64,
    /// Wrong length.
    #[error("the key has {bytes} bytes, but needs {right}")]
    Length {
        /// The actual length.
        bytes: usize,
        /// The required length, as text.
        right: &'static str,
    },
}
