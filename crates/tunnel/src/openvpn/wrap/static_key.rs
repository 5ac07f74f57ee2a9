//! Key files: the text of a static key, and the PEM-like blocks of `tls-crypt-v2`. Owns their bytes and wipes them; says nothing
//! of what they are used for, and never shows one.

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
    /// For the cipher: its first bytes are the key.
    pub cipher: &'a [u8],
    /// For the HMAC: likewise.
    pub hmac: &'a [u8],
}

/// Which of a static key's two keys an end sends with: `key-direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDirection {
    /// 0: it sends with the first and receives with the second.
    Normal,
    /// 1: it sends with the second and receives with the first.
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
    /// Bytes of one.
    pub const LEN: usize = 256;

    const BEGIN: &'static str = "-----BEGIN OpenVPN Static key V1-----";
    const END: &'static str = "-----END OpenVPN Static key V1-----";

    /// A key of these bytes.
    #[must_use]
    pub fn from_bytes(mut bytes: [u8; Self::LEN]) -> Self {
        let key = Self(Box::new(bytes));
        bytes.zeroize();
        key
    }

    /// Read a key file's text: hexadecimal digits between its two marks.
    ///
    /// # Errors
    /// A mark is missing, or what is between them is no key of 256 bytes.
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

    /// All bytes.
    pub(super) fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// This key, each bit of it changed where `other` has one.
    pub(super) fn combined(mut self, other: &Self) -> Self {
        for (byte, other) in self.0.iter_mut().zip(other.0.iter()) {
            *byte ^= other;
        }
        self
    }
}

impl<'a> KeyPair<'a> {
    /// The pair in 128 bytes.
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

/// The bytes of the block that is named `name`, in base64.
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

/// What is wrong with a key file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is another kind of file, or cut.
    #[error("the key has no line `{0}`")]
    NoMark(String),
    /// Something else than digits.
    #[error("the key has characters that are no hexadecimal digits")]
    NotHexadecimal,
    /// Something else than base64.
    #[error("the key is not base64")]
    NotBase64,
    /// Too short or too long.
    #[error("the key has {bytes} bytes where {right} would be right")]
    Length {
        /// What it has.
        bytes: usize,
        /// What it should have, in words.
        right: &'static str,
    },
}
