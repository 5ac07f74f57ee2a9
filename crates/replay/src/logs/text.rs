//! What servers do to the texts that they log, undone: escapes, and targets that no request line may have. Owns the
//! bytes of one field.

use std::borrow::Cow;

/// How a format escapes what it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// `\xHH` and `\"` and those of C and JSON: nginx, Apache, JSON.
    Backslash,
    /// `#HH`: HAProxy.
    Hash,
    /// `%HH`, and `+` for a space: IIS and CloudFront, outside of paths and queries.
    Url,
}

impl Escapes {
    /// The text without its escapes; what is no escape stays as it is.
    pub(super) fn undo(self, text: &[u8]) -> Cow<'_, [u8]> {
        let mark = match self {
            Self::Backslash => b'\\',
            Self::Hash => b'#',
            Self::Url => return undo_url(text),
        };
        let Some(first) = memchr::memchr(mark, text) else { return Cow::Borrowed(text) };
        let mut plain = Vec::with_capacity(text.len());
        plain.extend_from_slice(&text[..first]);
        let mut rest = &text[first..];
        while let Some((&byte, after)) = rest.split_first() {
            rest = if byte != mark {
                plain.push(byte);
                after
            } else if self == Self::Hash {
                push_hex(after, byte, &mut plain)
            } else {
                undo_backslash(after, &mut plain)
            };
        }
        Cow::Owned(plain)
    }
}

/// What follows a backslash; returns what is behind it.
fn undo_backslash<'t>(text: &'t [u8], plain: &mut Vec<u8>) -> &'t [u8] {
    let Some((&kind, after)) = text.split_first() else {
        plain.push(b'\\');
        return text;
    };
    let byte = match kind {
        b'x' if after.first_chunk().is_some_and(|pair| read_hex(*pair).is_some()) => {
            return push_hex(after, b'\\', plain)
        }
        b'u' => return undo_unicode(after, plain),
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'b' => 0x08,
        b'"' | b'\\' | b'/' | b'\'' => kind,
        _ => {
            plain.push(b'\\');
            kind
        }
    };
    plain.push(byte);
    after
}

/// `\u0041`, and pairs of surrogates.
fn undo_unicode<'t>(text: &'t [u8], plain: &mut Vec<u8>) -> &'t [u8] {
    let Some(first) = read_unit(text) else {
        plain.extend_from_slice(b"\\u");
        return text;
    };
    let second = text.get(4..).and_then(|rest| rest.strip_prefix(b"\\u")).and_then(read_unit);
    let (code, bytes) = match second {
        Some(low) if (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&low) => {
            (0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00), 10)
        }
        _ => (first, 4),
    };
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    &text[bytes..]
}

fn read_unit(text: &[u8]) -> Option<u32> {
    let digits: &[u8; 4] = text.first_chunk()?;
    let (high, low) = (read_hex([digits[0], digits[1]])?, read_hex([digits[2], digits[3]])?);
    Some(u32::from(high) << 8 | u32::from(low))
}

/// Two hexadecimal digits, or the mark itself.
fn push_hex<'t>(text: &'t [u8], mark: u8, plain: &mut Vec<u8>) -> &'t [u8] {
    match text.first_chunk().and_then(|pair| read_hex(*pair)) {
        Some(byte) => {
            plain.push(byte);
            &text[2..]
        }
        None => {
            plain.push(mark);
            text
        }
    }
}

fn read_hex([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

fn undo_url(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'%' => push_hex(after, byte, &mut plain),
            b'+' => {
                plain.push(b' ');
                after
            }
            _ => {
                plain.push(byte);
                after
            }
        };
    }
    Cow::Owned(plain)
}

/// Appends a target with its unreadable bytes percent-encoded: controls, spaces and what is not ASCII.
pub(super) fn push_target(text: &[u8], target: &mut Vec<u8>) {
    let is_plain = |byte: &u8| (0x21..0x7f).contains(byte);
    // As a whole, not until the first: this is done many bytes at a time.
    if !text.iter().fold(false, |found, byte| found | !is_plain(byte)) {
        target.extend_from_slice(text);
        return;
    }
    for byte in text {
        if is_plain(byte) {
            target.push(*byte);
        } else {
            target.push(b'%');
            target.extend([byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]));
        }
    }
}

/// Appends the line of a header field, without controls: a log may hold a line end that was escaped.
pub(super) fn push_field(name: &[u8], value: &[u8], fields: &mut Vec<u8>) {
    fields.extend_from_slice(name);
    fields.extend_from_slice(b": ");
    let is_text = |byte: &u8| *byte >= b' ' && *byte != 0x7f || *byte == b'\t';
    if !value.iter().fold(false, |found, byte| found | (*byte < b' ') | (*byte == 0x7f)) {
        fields.extend_from_slice(value.trim_ascii());
    } else {
        fields.extend(value.trim_ascii().iter().copied().filter(is_text));
    }
    fields.extend_from_slice(b"\r\n");
}

/// An absolute URL as its host, without a port that its scheme implies, and the rest from the path on; `None` for what
/// is no URL of HTTP.
pub(super) fn split_url(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let strip = |scheme: &[u8]| {
        let (head, rest) = text.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let (rest, port): (_, &[u8]) = match strip(b"http://") {
        Some(rest) => (rest, b":80"),
        None => (strip(b"https://")?, b":443"),
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let host = memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..]);
    Some((host.strip_suffix(port).unwrap_or(host), target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        for (escapes, text, plain) in [
            (Escapes::Backslash, r#"a\x22b\x5Cx\xD0\xB0"#, "a\"b\\xа".as_bytes()),
            (Escapes::Backslash, r#"a\"b\\c\tд"#, "a\"b\\c\tд".as_bytes()),
            (Escapes::Backslash, "\\u0041\\ud83d\\ude00\\/\\ud800", "A😀/\u{fffd}".as_bytes()),
            (Escapes::Backslash, r"\q\xZZ\x4\u12", br"\q\xZZ\x4\u12"),
            (Escapes::Backslash, "\\", b"\\"),
            (Escapes::Hash, "/a#22#7D#zz#", b"/a\"}#zz#"),
            (Escapes::Url, "Mozilla/5.0%20(X;+Y)%zz%", b"Mozilla/5.0 (X; Y)%zz%"),
        ] {
            assert_eq!(escapes.undo(text.as_bytes()), plain, "{text}");
        }
    }

    #[test]
    fn urls_are_split() {
        for (url, host, target) in [
            ("http://a.example:80/b?c=d", "a.example", "/b?c=d"),
            ("HTTPS://a.example:443/", "a.example", "/"),
            ("https://user@[2001:db8::1]:8443?x", "[2001:db8::1]:8443", "?x"),
            ("http://a.example", "a.example", ""),
        ] {
            assert_eq!(split_url(url.as_bytes()), Some((host.as_bytes(), target.as_bytes())), "{url}");
        }
        assert_eq!(split_url(b"ftp://a/"), None);
        assert_eq!(split_url(b"/http://a/"), None);
    }

    #[test]
    fn no_line_end_gets_into_a_request() {
        let (mut target, mut fields) = (Vec::new(), Vec::new());
        push_target("/a b\r\nä".as_bytes(), &mut target);
        assert_eq!(target, b"/a%20b%0D%0A%C3%A4");
        push_field(b"A", b"b\r\nC: d\0", &mut fields);
        assert_eq!(fields, b"A: bC: d\r\n");
    }
}
