//! A kernel file that is opened once and read repeatedly from its start.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The initial size of the buffer; larger than most of these files.
const BUFFER_BYTES: usize = 16 * 1024;
/// More than the kernel writes for thousands of CPUs or interfaces; a longer file is refused, not cut.
const BUFFER_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// Half of the smallest page.
const SURELY_WHOLE_BYTES: usize = 2048;

/// An open file.
#[derive(Debug)]
pub struct Reread {
    file: File,
}

impl Reread {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }

    /// Returns the whole current content. The kernel generates it again for a read at offset 0, and may return it in
    /// pieces: only a read of no bytes is the end of a long file.
    pub fn read<'buffer>(&self, buffer: &'buffer mut Buffer) -> io::Result<&'buffer [u8]> {
        let bytes = &mut buffer.bytes;
        let mut length = 0;
        loop {
            if length == bytes.len() {
                if length >= BUFFER_LIMIT_BYTES {
                    return Err(io::Error::from(ErrorKind::FileTooLarge));
                }
                bytes.resize(length * 2, 0);
            }
            match self.file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => return Ok(&bytes[..length]),
                // A piece is cut only if the next record does not fit into the kernel's page, and no record of these
                // files is half a page long: a first piece shorter than that is the whole content.
                Ok(all) if length == 0 && all < SURELY_WHOLE_BYTES => return Ok(&bytes[..all]),
                Ok(more) => length += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A buffer that all files use, one after the other.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: vec![0; BUFFER_BYTES] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_longer_than_the_buffer_is_read_to_its_end() {
        let path = std::env::temp_dir().join(format!("leadline-reread-{}", std::process::id()));
        let content: Vec<u8> = (0..BUFFER_BYTES * 2 + 7).map(|index| (index % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = Reread::open(&path);
        std::fs::remove_file(&path).unwrap();
        let mut buffer = Buffer::default();
        let file = file.unwrap();
        assert_eq!(file.read(&mut buffer).unwrap(), content);
        assert_eq!(file.read(&mut buffer).unwrap(), content);
    }
}
