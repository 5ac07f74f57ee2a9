//! The header fields that determine where a message ends and whether its connection stays open. Owns their syntax
//! (RFC 9110, 5 and RFC 9112, 6 and 9.3). Other fields are checked for syntax and dropped.

use crate::scan::holds_return_or_nul;
use crate::Malformed;

/// What the header section has declared so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) length: Option<u64>,
    pub(crate) coding: Coding,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) hosts: u8,
    /// Whether the last line was a framing field, which must not be continued.
    last_was_framing: bool,
}

/// A field line, split into name and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    /// The field name, a token; empty if the line continues the previous one.
    pub(crate) name: &'a [u8],
    /// The value, without surrounding white space.
    pub(crate) value: &'a [u8],
}

/// The last transfer coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coding {
    /// No transfer coding.
    #[default]
    None,
    /// Chunked.
    Chunked,
    /// Another coding: only the end of the connection ends the body.
    Other,
}

impl Fields {
    /// Reads one line of the header section, without its line end.
    #[inline]
    pub(crate) fn take<'l>(&mut self, line: &'l [u8]) -> Result<Field<'l>, Malformed> {
        if holds_return_or_nul(line) {
            return Err(Malformed::ControlCharacter);
        }
        if matches!(line.first(), Some(b' ' | b'\t')) {
            if self.last_was_framing {
                return Err(Malformed::FoldedField);
            }
            return Ok(Field { name: &[], value: trim(line) });
        }
        // The character after the token has to be the colon.
        let colon = line.iter().position(|&byte| !TOKEN[usize::from(byte)]).unwrap_or(line.len());
        if colon == 0 || line.get(colon) != Some(&b':') {
            return Err(Malformed::FieldLine);
        }
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        self.last_was_framing = true;
        // The length excludes nearly all other names before any byte is compared.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts = self.hosts.saturating_add(1),
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            10 if name.eq_ignore_ascii_case(b"connection") => self.take_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.take_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.take_coding(value)?,
            _ => self.last_was_framing = false,
        }
        Ok(Field { name, value })
    }

    /// Whether the connection stays open after this message (RFC 9112, 9.3).
    pub(crate) fn persists(&self, minor_version: u8) -> bool {
        !self.close && (minor_version >= 1 || self.keep_alive)
    }

    /// Checks the rules that apply to requests and responses alike.
    pub(crate) fn check(&self, minor_version: u8) -> Result<(), Malformed> {
        match (self.coding, self.length) {
            (Coding::None, _) => Ok(()),
            (_, Some(_)) => Err(Malformed::LengthAndCoding),
            // RFC 9112, 6.1: "A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding
            // header field MUST treat the message as if the framing is faulty".
            (_, None) if minor_version == 0 => Err(Malformed::TransferEncodingInHttp10),
            (_, None) => Ok(()),
        }
    }

    fn take_connection(&mut self, value: &[u8]) {
        match value {
            b"keep-alive" => return self.keep_alive = true,
            b"close" => return self.close = true,
            _ => {}
        }
        for option in value.split(|&byte| byte == b',').map(trim) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112, 6.3: a list of equal values counts as one value.
    fn take_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if let (None, Some(length)) = (self.length, decimal(value)) {
            self.length = Some(length);
            return Ok(());
        }
        for item in value.split(|&byte| byte == b',').map(trim) {
            let length = decimal(item).ok_or(Malformed::ContentLength)?;
            if self.length.is_some_and(|earlier| earlier != length) {
                return Err(Malformed::ContentLengthConflict);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn take_coding(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for coding in value.split(|&byte| byte == b',').map(trim).filter(|coding| !coding.is_empty()) {
            // RFC 9112, 6.1: "A sender MUST NOT apply the chunked transfer coding more than once", and it is the last.
            if self.coding == Coding::Chunked {
                return Err(Malformed::TransferEncoding);
            }
            self.coding = if coding.eq_ignore_ascii_case(b"chunked") { Coding::Chunked } else { Coding::Other };
        }
        Ok(())
    }
}

/// Parses decimal digits into a 64-bit number; `None` if there is any other character or an overflow.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Removes surrounding optional white space (RFC 9110, 5.6.3).
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Whether the text is a token (RFC 9110, 5.6.2).
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| TOKEN[usize::from(byte)])
}

/// The minor version of `HTTP/1.x`; `None` if the text is not an HTTP/1 version.
pub(crate) fn minor_version(text: &[u8]) -> Option<Result<u8, Malformed>> {
    match text {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => Some(Ok(minor - b'0')),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Some(Err(Malformed::Version)),
        _ => None,
    }
}

static TOKEN: [bool; 256] = token_table();

const fn token_table() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{decimal, Coding, Fields};
    use crate::Malformed;

    fn taken(lines: &[&str]) -> Result<Fields, Malformed> {
        let mut fields = Fields::default();
        for line in lines {
            fields.take(line.as_bytes())?;
        }
        Ok(fields)
    }

    #[test]
    fn content_lengths_are_parsed() {
        assert_eq!(taken(&["Content-Length: 42, 42", "CONTENT-LENGTH:42"]).unwrap().length, Some(42));
        assert_eq!(taken(&["Content-Length: 42", "Content-Length: 43"]), Err(Malformed::ContentLengthConflict));
        for bad in ["", "+1", "-1", "0x1", "1 2", "1,", "18446744073709551616"] {
            assert_eq!(taken(&[&format!("Content-Length: {bad}")]), Err(Malformed::ContentLength), "{bad}");
        }
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn transfer_codings_are_parsed() {
        assert_eq!(taken(&["Transfer-Encoding: gzip, Chunked"]).unwrap().coding, Coding::Chunked);
        assert_eq!(taken(&["Transfer-Encoding: gzip"]).unwrap().coding, Coding::Other);
        assert_eq!(taken(&["Transfer-Encoding: chunked, gzip"]), Err(Malformed::TransferEncoding));
        assert_eq!(
            taken(&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]),
            Err(Malformed::TransferEncoding)
        );
        let both = taken(&["Transfer-Encoding: chunked", "Content-Length: 1"]).unwrap();
        assert_eq!(both.check(1), Err(Malformed::LengthAndCoding));
        let old = taken(&["Transfer-Encoding: chunked"]).unwrap();
        assert_eq!(old.check(0), Err(Malformed::TransferEncodingInHttp10));
    }

    #[test]
    fn persistence_follows_rfc_9112() {
        assert!(taken(&[]).unwrap().persists(1));
        assert!(!taken(&[]).unwrap().persists(0));
        assert!(taken(&["Connection: x, Keep-Alive"]).unwrap().persists(0));
        assert!(!taken(&["Connection: keep-alive, close"]).unwrap().persists(1));
    }

    #[test]
    fn field_syntax_is_checked() {
        for bad in ["no colon", ": value", "a b: c", "a : c", "\u{e9}: c"] {
            assert_eq!(taken(&[bad]), Err(Malformed::FieldLine), "{bad}");
        }
        assert_eq!(taken(&["a: b\rc"]), Err(Malformed::ControlCharacter));
        assert_eq!(taken(&["a: b\0c"]), Err(Malformed::ControlCharacter));
        assert_eq!(taken(&["Content-Length: 1", " 2"]), Err(Malformed::FoldedField));
        assert!(taken(&["X: 1", "\t2"]).is_ok());
    }
}
