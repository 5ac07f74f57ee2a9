//! Frames on the control connection: a magic line once, then length (u32, big-endian) and that many bytes of JSON.

use serde::de::DeserializeOwned;
use serde::Serialize;

/// The first bytes of a control connection; the number is the session protocol's version.
pub const MAGIC: &[u8] = b"LEADLINE/2\n";

/// Maximum length of a frame on either side, bytes: enough for a report on about ten thousand flows.
pub const FRAME_LIMIT_BYTES: usize = 4 << 20;

/// Why a control connection is invalid.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame longer than the limit.
    #[error("a frame of {length} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Length, bytes.
        length: usize,
        /// Maximum length, bytes.
        limit: usize,
    },
    /// A frame without a message that this version knows.
    #[error("a frame without a valid message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a message as a frame.
pub fn encode_frame(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= FRAME_LIMIT_BYTES);
    frame[..4].copy_from_slice(&prefix.ok_or(FrameError::TooLong { length, limit: FRAME_LIMIT_BYTES })?.to_be_bytes());
    Ok(frame)
}

/// Reassembles frames from pieces of any size; holds at most one frame and the bytes that arrived with its end.
#[derive(Debug)]
pub struct FrameDecoder {
    pending: Vec<u8>,
    limit_bytes: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::with_limit(FRAME_LIMIT_BYTES)
    }
}

impl FrameDecoder {
    /// Creates a decoder for frames of at most this length, bytes.
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self { pending: Vec::new(), limit_bytes }
    }

    /// Changes the limit from the next frame on.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Takes received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, unparsed, for the proofs that cover its bytes.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some(end) = self.frame_end()? else { return Ok(None) };
        let frame = self.pending[4..end].to_vec();
        self.pending.drain(..end);
        Ok(Some(frame))
    }

    /// Returns the next complete message, if there is one. After an error the connection is unusable.
    pub fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>, FrameError> {
        let Some(end) = self.frame_end()? else { return Ok(None) };
        let message = serde_json::from_slice(&self.pending[4..end])?;
        self.pending.drain(..end);
        Ok(Some(message))
    }

    /// The end of the first frame, if the frame is complete.
    fn frame_end(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.pending.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > self.limit_bytes {
            return Err(FrameError::TooLong { length, limit: self.limit_bytes });
        }
        Ok(Some(4 + length).filter(|end| *end <= self.pending.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_split_gives_the_same_messages(messages in proptest::collection::vec("[a-z]{0,40}", 0..6), cut in 1usize..20) {
            let stream: Vec<u8> = messages.iter().flat_map(|message| encode_frame(message).unwrap()).collect();
            let mut decoder = FrameDecoder::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                decoder.feed(piece);
                while let Some(message) = decoder.next_message::<String>().unwrap() { seen.push(message); }
            }
            prop_assert_eq!(seen, messages);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = FrameDecoder::default();
            decoder.feed(&bytes);
            let _ = decoder.next_message::<String>();
        }
    }

    #[test]
    fn long_frame_is_refused_before_it_is_stored() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(&u32::MAX.to_be_bytes());
        assert!(matches!(decoder.next_message::<String>(), Err(FrameError::TooLong { .. })));
    }
}
