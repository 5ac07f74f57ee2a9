//! Hosts and targets out of URLs as they were recorded. Lenient: what a recording has was sent once.

/// The parts of a URL that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlParts {
    /// Host, with its port if it has one.
    pub(crate) host: Vec<u8>,
    /// Path and query.
    pub(crate) target: Vec<u8>,
}

/// Splits a URL of http or https; `None` if it is none.
pub(crate) fn split_url(url: &[u8]) -> Option<UrlParts> {
    let end = url.iter().position(|byte| *byte == b':')?;
    let (scheme, rest) = url.split_at(end);
    let is_http = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
    let rest = rest.strip_prefix(b"://").filter(|_| is_http)?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
    if host.is_empty() || !host.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    let mut target = slash.to_vec();
    push_readable(&mut target, path);
    Some(UrlParts { host: host.to_vec(), target })
}

/// Appends a target with bytes that no request line may have percent-encoded.
pub(crate) fn push_readable(target: &mut Vec<u8>, path: &[u8]) {
    for byte in path {
        if byte.is_ascii_graphic() {
            target.push(*byte);
        } else {
            push_encoded(target, *byte);
        }
    }
}

/// Appends a name or value of a form (application/x-www-form-urlencoded).
pub(crate) fn push_form(text: &mut Vec<u8>, part: &[u8]) {
    for byte in part {
        match byte {
            b' ' => text.push(b'+'),
            b'*' | b'-' | b'.' | b'_' => text.push(*byte),
            _ if byte.is_ascii_alphanumeric() => text.push(*byte),
            _ => push_encoded(text, *byte),
        }
    }
}

fn push_encoded(target: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    target.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> Option<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        split_url(url.as_bytes()).map(|place| (text(place.host), text(place.target)))
    }

    #[test]
    fn urls_are_split() {
        let cases = [
            ("http://a/b?c#d", "a", "/b?c"),
            ("HTTPS://user:pw@a:8443", "a:8443", "/"),
            ("http://[::1]:80?x", "[::1]:80", "/?x"),
            ("http://a/ü b", "a", "/%C3%BC%20b"),
        ];
        for (url, host, target) in cases {
            assert_eq!(split(url), Some((host.to_owned(), target.to_owned())), "{url}");
        }
        for url in ["", "/a", "ws://a/", "data:x", "http:///", "http://a b/", "http:/a"] {
            assert_eq!(split(url), None, "{url}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        let mut text = Vec::new();
        push_form(&mut text, "a b&c=é".as_bytes());
        assert_eq!(text, b"a+b%26c%3D%C3%A9");
    }
}
