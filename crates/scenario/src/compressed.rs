//! Bodies that a server compressed: extractors and checks read what they contain.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};

use super::fault::{fault, Fault};

/// The longest decompressed body, bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Returns a body without its `Content-Encoding`.
///
/// # Errors
/// An encoding other than gzip and deflate, a damaged or cut body, or one that is too long.
pub fn decompressed<'b>(head: &str, body: &'b [u8]) -> Result<Cow<'b, [u8]>, Fault> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let encoding =
        fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding")).map(|(_, value)| value.trim());
    let names: Vec<String> = encoding.map(str::to_ascii_lowercase).filter(|name| name != "identity").collect();
    match names.join(", ").as_str() {
        "" => Ok(Cow::Borrowed(body)),
        _ if body.is_empty() => Ok(Cow::Borrowed(body)),
        "gzip" | "x-gzip" => inflate(MultiGzDecoder::new(body)),
        "deflate" => inflate(ZlibDecoder::new(body)),
        other => fault("unknown_encoding", format!("a body in {other}; gzip and deflate can be read")),
    }
}

fn inflate(decoder: impl Read) -> Result<Cow<'static, [u8]>, Fault> {
    let mut text = Vec::new();
    if let Err(error) = decoder.take(MOST_BYTES + 1).read_to_end(&mut text) {
        return fault("bad_compression", format!("the compressed body cannot be read: {error}"));
    }
    if text.len() as u64 > MOST_BYTES {
        return fault("bad_compression", format!("the compressed body holds more than {} MiB", MOST_BYTES >> 20));
    }
    Ok(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::{GzEncoder, ZlibEncoder};
    use flate2::Compression;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_bodies_are_read() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"deflated").unwrap();
        let zlib = zlib.finish().unwrap();
        assert_eq!(&*decompressed("Content-Encoding: gzip\n", &gzip(b"zipped")).unwrap(), b"zipped");
        assert_eq!(&*decompressed("content-encoding: Deflate\n", &zlib).unwrap(), b"deflated");
        assert_eq!(&*decompressed("Content-Encoding: identity\n", b"plain").unwrap(), b"plain");
        assert_eq!(&*decompressed("Content-Encoding: gzip\n", b"").unwrap(), b"", "the answer to a HEAD has no body");
    }

    #[test]
    fn bodies_that_cannot_be_read_are_named() {
        let cause = |encoding: &str, body: &[u8]| {
            decompressed(&format!("Content-Encoding: {encoding}\n"), body).unwrap_err().cause
        };
        assert_eq!(cause("br", b"x"), "unknown_encoding");
        assert_eq!(cause("gzip, br", b"x"), "unknown_encoding");
        assert_eq!(cause("gzip", b"not gzip"), "bad_compression");
        let whole = gzip(b"a body that was cut");
        assert_eq!(cause("gzip", &whole[..whole.len() - 9]), "bad_compression");
        assert_eq!(cause("gzip", &gzip(&vec![0; MOST_BYTES as usize + 1])), "bad_compression", "a bomb");
    }
}
