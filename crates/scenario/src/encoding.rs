//! Percent-encoding of forms and request targets, and the entities of HTML.

use leadline_http::Url;

/// Whether a text holds a character that no header field may have (RFC 9110, 5.5).
pub fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t')
}

/// Returns a text encoded as a form's name or value: a space is `+`, unreserved characters stay.
#[must_use]
pub fn form_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    append_form(text, &mut out);
    out
}

/// Appends a text encoded as a form's name or value.
pub fn append_form(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(byte as char),
            b' ' => out.push('+'),
            other => append_escaped(other, out),
        }
    }
}

/// Appends a request target; characters that a request line cannot have are encoded.
pub fn append_target(text: &str, out: &mut String) {
    for character in text.chars() {
        if character.is_ascii_graphic() && !matches!(character, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}') {
            out.push(character);
        } else {
            character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| append_escaped(byte, out));
        }
    }
}

/// Resolves the reference of a Location field or of a page; characters that a request line cannot have are encoded.
#[must_use]
pub fn join(url: &Url, reference: &str) -> Option<Url> {
    let mut encoded = String::with_capacity(reference.len());
    append_target(reference, &mut encoded);
    url.join(&encoded).ok().map(Url::with_lower_host)
}

/// Returns a form's name or value decoded; malformed escapes stay.
#[must_use]
pub fn form_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (bytes[at], digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn append_escaped(byte: u8, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(DIGITS[usize::from(byte >> 4)] as char);
    out.push(DIGITS[usize::from(byte & 15)] as char);
}

/// Replaces the common entities and numeric references of HTML.
#[must_use]
pub fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(11).position(|byte| byte == b';');
        let character = end.and_then(|end| match &rest[1..end] {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            "nbsp" => Some('\u{a0}'),
            name => {
                let digits = name.strip_prefix('#')?;
                let code = match digits.strip_prefix(['x', 'X']) {
                    Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                    None => digits.parse(),
                };
                code.ok().and_then(char::from_u32)
            }
        });
        match (character, end) {
            (Some(character), Some(end)) => {
                out.push(character);
                rest = &rest[end + 1..];
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded_and_decoded() {
        assert_eq!(form_encode("a b&c=é/~*"), "a+b%26c%3D%C3%A9%2F%7E*");
        assert_eq!(form_decode("a+b%26c%3D%C3%A9%2F%7E*%zz%"), "a b&c=é/~*%zz%");
    }

    #[test]
    fn references_are_encoded_and_their_hosts_put_in_lower_case() {
        let joined = |reference| join(&Url::parse("http://a.test/x/y").unwrap(), reference).map(|url| url.absolute());
        assert_eq!(joined("b c/é").unwrap(), "http://a.test/x/b%20c/%C3%A9");
        assert_eq!(joined("//B.Test/Z").unwrap(), "http://b.test/Z");
        assert_eq!(joined("http://[b]/"), None);
    }

    #[test]
    fn targets_keep_what_a_request_line_can_have() {
        let mut out = String::new();
        append_target("/a b/é?x=1&y=%20\r\n", &mut out);
        assert_eq!(out, "/a%20b/%C3%A9?x=1&y=%20%0D%0A");
    }
}
