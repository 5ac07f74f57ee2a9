//! Names of requests by their method and path, and patterns that choose requests.

/// The longest name, bytes.
const MAX_NAME_BYTES: usize = 120;

/// Returns the name under which a request counts: its method and path, with `*` for segments that are numbers or other
/// identifiers, so that the pages of one kind have one name.
#[must_use]
pub fn label_of(method: &[u8], target: &[u8]) -> String {
    let path = target.split(|byte| matches!(byte, b'?' | b';')).next().unwrap_or_default();
    let mut name = String::from_utf8_lossy(method).into_owned();
    name.push(' ');
    for (number, segment) in path.split(|byte| *byte == b'/').enumerate() {
        if number > 0 {
            name.push('/');
        }
        if is_identifier(segment) {
            name.push('*');
        } else {
            name.push_str(&String::from_utf8_lossy(segment));
        }
    }
    if name.len() > MAX_NAME_BYTES {
        let end = (0..=MAX_NAME_BYTES).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
    name
}

/// Whether a segment names one thing of many: a number, or a long mixture of digits and letters.
fn is_identifier(segment: &[u8]) -> bool {
    let digits = segment.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_word = segment.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    digits > 0 && (digits == segment.len() || (is_word && segment.len() >= 8 && 4 * digits >= segment.len()))
}

/// A pattern of requests: `METHOD TARGET`, or a target alone; `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    method: Option<Box<[u8]>>,
    target: Box<[u8]>,
}

impl Pattern {
    /// Reads a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.split_once(' ') {
            Some((method, target)) => {
                Self { method: Some(method.as_bytes().into()), target: target.trim().as_bytes().into() }
            }
            None => Self { method: None, target: text.as_bytes().into() },
        }
    }

    /// Whether a request fits.
    #[must_use]
    pub fn fits(&self, method: &[u8], target: &[u8]) -> bool {
        self.method.as_ref().is_none_or(|own| fits(own, method)) && fits(&self.target, target)
    }
}

/// Whether a text fits a pattern with `*`: the last star is tried at each further place, so that the time is at most the
/// product of both lengths.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place, mut star) = (0, 0, None);
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == text[place] => (at, place) = (at + 1, place + 1),
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    (at, place) = (star_at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_one_name() {
        let of = |target: &str| label_of(b"GET", target.as_bytes());
        assert_eq!(of("/orders/123/items?page=2"), "GET /orders/*/items");
        assert_eq!(of("/u/3f2504e0-4f89-11d3-9a0c-0305e82c3301"), "GET /u/*");
        assert_eq!(of("/v2/static/app.css"), "GET /v2/static/app.css");
        assert_eq!(of("/accounts"), "GET /accounts");
        assert_eq!(of("/a;jsessionid=1F"), "GET /a");
        assert!(of(&"/x".repeat(500)).len() < 130);
    }

    #[test]
    fn patterns_choose_methods_and_targets() {
        let fits = |pattern: &str, target: &str| Pattern::new(pattern).fits(b"GET", target.as_bytes());
        assert!(fits("/api/*", "/api/x?y=1") && !fits("/api/*", "/static/x"));
        assert!(fits("GET /a*c", "/abc") && !fits("POST /a*c", "/abc") && fits("* /*b*", "/abc"));
        assert!(fits("*", "") && !fits("/a", "/ab") && fits("/a*b*c", "/aXbYbZc"));
        assert!(!fits(&"*a".repeat(50), &"a".repeat(40)));
    }
}
