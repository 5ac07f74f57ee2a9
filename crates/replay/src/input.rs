//! Input that may be compressed.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER_BYTES: usize = 64 << 10;

/// Returns what a reader has, decompressed if it begins like gzip; members of a file may follow one another.
///
/// # Errors
/// Why its beginning cannot be read.
pub fn open_input<'r>(mut input: impl Read + Send + 'r) -> io::Result<Box<dyn BufRead + Send + 'r>> {
    let mut magic = Vec::with_capacity(GZIP.len());
    input.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
    let is_gzip = magic == GZIP;
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(input));
    if is_gzip {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))));
    }
    Ok(Box::new(whole))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{write::GzEncoder, Compression};

    use super::*;

    fn read(bytes: &[u8]) -> String {
        io::read_to_string(open_input(bytes).unwrap()).unwrap()
    }

    #[test]
    fn compressed_members_and_plain_bytes_are_read() {
        let gzip = |text: &str| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(read(&[gzip("one "), gzip("two")].concat()), "one two");
        assert_eq!((read(b"1 x"), read(b"1"), read(b"")), ("1 x".into(), "1".into(), String::new()));
    }
}
