//! The cookie that names a test.

/// Length of the cookie that names a test, bytes: 36 characters and a zero.
pub const COOKIE_BYTES: usize = 37;

/// The characters of a cookie.
pub const COOKIE_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The name of one test, which the control connection and each TCP flow begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// Returns the cookie in the first bytes of a connection; `None` if they are none.
    pub fn parse(bytes: &[u8; COOKIE_BYTES]) -> Option<Self> {
        let (characters, end) = bytes.split_at(COOKIE_BYTES - 1);
        (characters.iter().all(|byte| COOKIE_ALPHABET.contains(byte)) && end == [0]).then_some(Self(*bytes))
    }

    /// Returns a cookie made of random bytes.
    pub fn from_random(random: &[u8; COOKIE_BYTES - 1]) -> Self {
        let mut bytes = [0; COOKIE_BYTES];
        for (place, random) in bytes.iter_mut().zip(random) {
            *place = COOKIE_ALPHABET[usize::from(*random) % COOKIE_ALPHABET.len()];
        }
        Self(bytes)
    }

    /// The bytes that a connection begins with.
    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

/// Whether the first byte of a connection can be a cookie's.
pub fn begins_cookie(byte: u8) -> bool {
    COOKIE_ALPHABET.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_known_by_its_characters_and_its_end() {
        let cookie = Cookie::from_random(&std::array::from_fn(|index| index as u8 * 7));
        assert_eq!(Cookie::parse(cookie.bytes()), Some(cookie));
        let mut other = *cookie.bytes();
        other[36] = b'a';
        assert_eq!(Cookie::parse(&other), None);
        other[36] = 0;
        other[0] = b'L';
        assert_eq!(Cookie::parse(&other), None);
        assert!(!begins_cookie(crate::MAGIC[0]), "the session protocol begins otherwise");
    }
}
