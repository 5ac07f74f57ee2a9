//! Bytes of a capture in order, with their position. What is skipped takes no memory.

use std::io::{self, BufRead, BufReader, Read};

use super::error::CaptureError;

const BUFFER_BYTES: usize = 256 << 10;

/// A stream that knows how far it is.
#[derive(Debug)]
pub(super) struct Source<R> {
    input: BufReader<R>,
    at: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: BufReader::with_capacity(BUFFER_BYTES, input), at: 0 }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn into_inner(self) -> R {
        self.input.into_inner()
    }

    /// Reads what has to be there.
    pub(super) fn read(&mut self, into: &mut [u8], within: &'static str) -> Result<(), CaptureError> {
        let read = self.read_up_to(into)?;
        if read < into.len() {
            return Err(CaptureError::Ends { at: self.at, within });
        }
        Ok(())
    }

    /// Reads a head; returns false at the end of the capture, which may lie before a head but not within it.
    pub(super) fn read_head(&mut self, into: &mut [u8], within: &'static str) -> Result<bool, CaptureError> {
        match self.read_up_to(into)? {
            0 => Ok(false),
            read if read < into.len() => Err(CaptureError::Ends { at: self.at, within }),
            _ => Ok(true),
        }
    }

    /// Passes over bytes that have to be there.
    pub(super) fn skip(&mut self, mut bytes: u64, within: &'static str) -> Result<(), CaptureError> {
        while bytes > 0 {
            let available = match self.input.fill_buf() {
                Ok(buffer) => buffer.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if available == 0 {
                return Err(CaptureError::Ends { at: self.at, within });
            }
            let step = usize::try_from(bytes).map_or(available, |bytes| bytes.min(available));
            self.input.consume(step);
            self.at += step as u64;
            bytes -= step as u64;
        }
        Ok(())
    }

    fn read_up_to(&mut self, into: &mut [u8]) -> Result<usize, CaptureError> {
        let mut read = 0;
        while read < into.len() {
            match self.input.read(&mut into[read..]) {
                Ok(0) => break,
                Ok(bytes) => (read, self.at) = (read + bytes, self.at + bytes as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }
}

/// The byte order of a file's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Reads the two bytes at `at`, which the caller has.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let word = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(word),
            Self::Big => u16::from_be_bytes(word),
        }
    }

    /// Reads the four bytes at `at`, which the caller has.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(word),
            Self::Big => u32::from_be_bytes(word),
        }
    }
}
