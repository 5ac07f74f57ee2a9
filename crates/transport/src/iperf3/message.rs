//! The messages between states: a length and JSON, and how numbers are read from it.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::state::State;

/// Maximum length of the parameters, bytes: what iperf3 3.18 and newer accept.
pub const PARAMETERS_BYTES: usize = 8192;

/// Maximum length of a client's results, bytes: rows of 128 flows in each direction, each with its longest numbers.
pub const CLIENT_RESULTS_BYTES: usize = 96 << 10;

/// Maximum length of a server's results, bytes: the same rows, and the server's output.
pub const SERVER_RESULTS_BYTES: usize = 1 << 20;

/// Why a control connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    /// A state that is not allowed at this stage, or a byte that is none.
    #[error("byte {0} is no state that may come here")]
    UnexpectedState(u8),
    /// A message that is longer than its kind may be.
    #[error("a message of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Length, bytes.
        length: usize,
        /// Maximum length, bytes.
        limit: usize,
    },
    /// A message that is not what it should be.
    #[error("an invalid message: {0}")]
    Invalid(#[from] serde_json::Error),
    /// A parameter outside of its range.
    #[error("{name} is {value}; it must lie between {least} and {most}")]
    OutOfRange {
        /// iperf3's name of the parameter.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// Neither TCP nor UDP, or both.
    #[error("the protocol must be TCP or UDP")]
    UnknownProtocol,
    /// Two directions that exclude each other.
    #[error("a test is reversed, or in both directions, but not both")]
    ReverseAndBoth,
}

/// Received bytes that have not been read yet.
#[derive(Debug, Default)]
pub struct Inbox(Vec<u8>);

impl Inbox {
    /// Takes received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Whether the other end gives up where a message should be: each length that is allowed begins with a zero.
    pub fn gives_up(&self) -> bool {
        let state = self.0.first().and_then(|byte| State::parse(*byte));
        matches!(state, Some(State::ServerError | State::ServerTerminate | State::ClientTerminate))
    }

    /// Removes and returns the next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let byte = self.0.first().copied()?;
        self.0.drain(..1);
        Some(byte)
    }

    /// Removes and returns the next `COUNT` numbers of four bytes, once all of them are there.
    pub fn numbers<const COUNT: usize>(&mut self) -> Option<[i32; COUNT]> {
        let mut numbers = [0; COUNT];
        for (number, bytes) in numbers.iter_mut().zip(self.0.get(..4 * COUNT)?.chunks_exact(4)) {
            *number = i32::from_be_bytes(bytes.try_into().ok()?);
        }
        self.0.drain(..4 * COUNT);
        Some(numbers)
    }

    /// Removes and returns the next message, if it is complete.
    pub fn message<M: DeserializeOwned>(&mut self, limit: usize) -> Result<Option<M>, Iperf3Error> {
        let Some(text) = self.text(limit)? else { return Ok(None) };
        let (message, read) = (serde_json::from_slice(text)?, 4 + text.len());
        self.0.drain(..read);
        Ok(Some(message))
    }

    /// Returns the text of the next message, if it is complete.
    pub fn text(&self, limit: usize) -> Result<Option<&[u8]>, Iperf3Error> {
        let Some(prefix) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > limit {
            return Err(Iperf3Error::TooLong { length, limit });
        }
        Ok(self.0.get(4..4 + length))
    }
}

/// Returns a message as it is sent.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    // Serializing numbers, strings and lists into memory cannot fail.
    let _ = serde_json::to_writer(&mut bytes, message);
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Reads a whole number that iperf3 may have written as 1e+15.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    if let Some(value) = number.as_u64() {
        return Ok(Some(value));
    }
    // Up to 2^53 each whole number has a double of its own.
    let exact = number.as_f64().filter(|value| (0.0..=9_007_199_254_740_992.0).contains(value) && value.fract() == 0.0);
    exact.map(|value| Some(value as u64)).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number")))
}

/// Reads a whole number that may be negative, or written as 1e+15. Some builds of iperf3 write -1 as 2^64 - 1.
pub fn signed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    if let Some(value) = number.as_i64().or(number.as_u64().map(|value| value as i64)) {
        return Ok(value);
    }
    let near = number.as_f64().filter(|value| value.abs() <= 9_007_199_254_740_992.0 && value.fract() == 0.0);
    near.map(|value| value as i64).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number")))
}

/// Writes a mark as the number 1: since 3.18 iperf3 ignores one that is `true`.
pub fn as_number<S: Serializer>(_: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(1)
}

/// Reads a mark that counts as set if it is there, whatever its value.
pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}
