//! `tls-crypt-v2`: each client has its own key, and sends it to the server wrapped with a key that only servers have:
//! tag | encrypted key and metadata | length. Owns the files of both and the wrapping; packets are sealed as in
//! `tls-crypt`.

use std::fmt;

use super::super::role::Role;
use super::crypt::{CryptKeys, Opening, Sealing, TAG_LEN};
use super::error::WrapError;
use super::static_key::{pem_block, KeyError, KeyPair, StaticKey};

/// Maximum length of a wrapped key that any end accepts.
pub const LONGEST_WRAPPED_KEY: usize = 1024;

const LENGTH_LEN: usize = 2;
const SHORTEST_WRAPPED_KEY: usize = TAG_LEN + StaticKey::LEN + LENGTH_LEN;
const SERVER_KEY_LEN: usize = 128;

/// A client's key and its wrapped form.
pub struct ClientKey {
    pub(super) keys: CryptKeys,
    pub(super) wrapped: Vec<u8>,
}

impl ClientKey {
    /// Parses a client's file.
    ///
    /// # Errors
    /// It is another kind of file, or its length is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = pem_block(text, "OpenVPN tls-crypt-v2 client key")?;
        let wrong = KeyError::Length { bytes: bytes.len(), right: "256 and a wrapped key of 290 to 1024" };
        let Some((key, wrapped)) = bytes.split_first_chunk::<{ StaticKey::LEN }>() else { return Err(wrong) };
        if !(SHORTEST_WRAPPED_KEY..=LONGEST_WRAPPED_KEY).contains(&wrapped.len()) {
            return Err(wrong);
        }
        Ok(Self { keys: CryptKeys::new(StaticKey::from_bytes(*key), Role::Client), wrapped: wrapped.to_vec() })
    }
}

/// A server's key, which wraps and unwraps the keys of its clients.
pub struct ServerKey {
    seal: Sealing,
    open: Opening,
}

/// A client's key after unwrapping.
#[derive(Debug)]
pub struct Unwrapped {
    /// The key.
    pub key: StaticKey,
    /// Metadata of the key's creator: a byte for the kind (0: text, 1: the Unix time of its creation, 8 bytes), then
    /// the value.
    pub metadata: Vec<u8>,
}

impl ServerKey {
    /// Parses a server's file.
    ///
    /// # Errors
    /// It is another kind of file, or not 128 bytes.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = pem_block(text, "OpenVPN tls-crypt-v2 server key")?;
        if bytes.len() != SERVER_KEY_LEN {
            return Err(KeyError::Length { bytes: bytes.len(), right: "128" });
        }
        let pair = KeyPair::new(&bytes);
        Ok(Self { seal: Sealing::new(pair), open: Opening::new(pair) })
    }

    /// Wraps a client's key. `None` if the metadata is too long.
    #[must_use]
    pub fn wrap(&self, key: &StaticKey, metadata: &[u8]) -> Option<Vec<u8>> {
        let length = SHORTEST_WRAPPED_KEY + metadata.len();
        let length_bytes = u16::try_from(length).ok().filter(|_| length <= LONGEST_WRAPPED_KEY)?.to_be_bytes();
        let mut wrapped = Vec::with_capacity(length);
        self.seal.seal(&[&length_bytes], &[key.bytes(), metadata], &mut wrapped);
        wrapped.extend_from_slice(&length_bytes);
        Some(wrapped)
    }

    /// Unwraps a key.
    ///
    /// # Errors
    /// It is truncated, or was not wrapped with this server's key.
    pub fn unwrap_key(&self, wrapped: &[u8]) -> Result<Unwrapped, WrapError> {
        let mut wrapped = wrapped.to_vec();
        let length = wrapped_len(&wrapped).filter(|length| *length == wrapped.len()).ok_or(WrapError::BadWrappedKey)?;
        let (sealed, length_bytes) = wrapped.split_at_mut(length - LENGTH_LEN);
        self.open.open(length_bytes, sealed).map_err(|_| WrapError::BadWrappedKey)?;
        let (key, metadata) =
            sealed[TAG_LEN..].split_first_chunk::<{ StaticKey::LEN }>().ok_or(WrapError::BadWrappedKey)?;
        let unwrapped = Unwrapped { key: StaticKey::from_bytes(*key), metadata: metadata.to_vec() };
        zeroize::Zeroize::zeroize(&mut wrapped);
        Ok(unwrapped)
    }
}

/// Length of the wrapped key at the end of a packet.
pub(super) fn wrapped_len(packet: &[u8]) -> Option<usize> {
    let length = usize::from(u16::from_be_bytes(*packet.last_chunk()?));
    ((SHORTEST_WRAPPED_KEY..=LONGEST_WRAPPED_KEY).contains(&length) && length <= packet.len()).then_some(length)
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerKey(..)")
    }
}
