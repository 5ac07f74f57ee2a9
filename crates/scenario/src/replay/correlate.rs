//! Values that an answer gave in the source and that later requests of the session repeat: tokens, identifiers, cookies.
//! The answer that comes now gives others, at the same place; the requests are sent with those. A value counts as a whole
//! word only, so that no part of another one is replaced.

use memchr::memmem;
use serde_json::Value;

use super::request::Answer;
use crate::encoding::form_encode;

/// The shortest value that is replaced, bytes: shorter ones appear by chance.
const MIN_VALUE_BYTES: usize = 6;
/// The longest value that is replaced, bytes.
const MAX_VALUE_BYTES: usize = 4096;
/// The values of a session that are kept; the oldest one makes room.
const MAX_VALUES: usize = 256;
/// The longest body in which values are looked for, bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The values of a session that later requests are sent with.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<Pair>);

/// A value as it was, and as it is.
type Pair = (Box<[u8]>, Box<[u8]>);

impl Values {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The memory that they occupy, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.iter().map(|(before, now)| before.len() + now.len() + 32).sum()
    }

    /// Learns from an answer, and from what it was in the source.
    pub fn learn(&mut self, before: &Answer, now: &Answer) {
        let cookies = |answer: &Answer| -> Vec<(String, String)> {
            let pairs = answer.values("set-cookie").filter_map(|field| field.split(';').next()?.split_once('='));
            pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
        };
        self.pair(&cookies(before), &cookies(now));
        for (before, now) in before.values("location").zip(now.values("location")) {
            self.pair_parts(before, now);
        }
        if let (Some(before), Some(now)) = (&before.body, &now.body) {
            if before.len() <= MAX_BODY_BYTES && now.len() <= MAX_BODY_BYTES && before != now {
                self.learn_bodies(before, now);
            }
        }
    }

    fn learn_bodies(&mut self, before: &[u8], now: &[u8]) {
        match (serde_json::from_slice::<Value>(before), serde_json::from_slice::<Value>(now)) {
            (Ok(before), Ok(now)) => self.learn_json("", &before, &now, 0),
            (Err(_), Err(_)) => self.pair(&named_values(before), &named_values(now)),
            _ => {}
        }
    }

    fn learn_json(&mut self, name: &str, before: &Value, now: &Value, depth: usize) {
        const MAX_DEPTH: usize = 32;
        match (before, now) {
            (Value::Object(before), Value::Object(now)) if depth < MAX_DEPTH => {
                for (name, value) in before {
                    if let Some(other) = now.get(name) {
                        self.learn_json(name, value, other, depth + 1);
                    }
                }
            }
            (Value::Array(before), Value::Array(now)) if depth < MAX_DEPTH => {
                before.iter().zip(now).for_each(|(one, other)| self.learn_json(name, one, other, depth + 1));
            }
            (Value::String(before), Value::String(now)) if is_token(name, before) => self.add(before, now),
            (Value::Number(before), Value::Number(now)) if has_token_name(name) => {
                self.add(&before.to_string(), &now.to_string());
            }
            _ => {}
        }
    }

    /// Pairs values of the same names, in their order.
    fn pair(&mut self, before: &[(String, String)], now: &[(String, String)]) {
        for (place, (name, value)) in before.iter().enumerate() {
            let nth = before[..place].iter().filter(|(own, _)| own == name).count();
            if let Some((_, other)) = now.iter().filter(|(own, _)| own == name).nth(nth) {
                self.add(value, other);
            }
        }
    }

    /// Pairs the parts of two URLs of the same shape.
    fn pair_parts(&mut self, before: &str, now: &str) {
        let split = |url: &'_ str| -> Vec<String> { url.split(['/', '?', '&', '=', '#']).map(str::to_owned).collect() };
        let (before, now) = (split(before), split(now));
        if before.len() == now.len() {
            let changed = before.iter().zip(&now).filter(|(before, _)| is_token("", before));
            changed.for_each(|(before, now)| self.add(before, now));
        }
    }

    fn add(&mut self, before: &str, now: &str) {
        let is_long_enough = (MIN_VALUE_BYTES..=MAX_VALUE_BYTES).contains(&before.len());
        if before == now
            || !is_long_enough
            || now.len() > MAX_VALUE_BYTES
            || now.bytes().any(|byte| byte.is_ascii_control())
        {
            return;
        }
        self.keep(before.as_bytes(), now.as_bytes());
        let encoded = form_encode(before);
        if encoded != before {
            self.keep(encoded.as_bytes(), form_encode(now).as_bytes());
        }
    }

    fn keep(&mut self, before: &[u8], now: &[u8]) {
        self.0.retain(|(own, _)| &**own != before);
        if self.0.len() >= MAX_VALUES {
            self.0.remove(0);
        }
        self.0.push((before.into(), now.into()));
    }

    /// Returns a text with the values of now, and how many were replaced; `None` if it has none of them.
    pub fn replace(&self, text: &[u8], form: Form) -> Option<(Vec<u8>, u64)> {
        let mut found: Vec<(usize, &Pair)> = Vec::new();
        for pair in &self.0 {
            let places = memmem::find_iter(text, &*pair.0).filter(|place| is_whole(text, *place, pair.0.len()));
            found.extend(places.map(|place| (place, pair)));
        }
        if found.is_empty() {
            return None;
        }
        // At one place, the longest value.
        found.sort_by_key(|(place, (before, _))| (*place, std::cmp::Reverse(before.len())));
        let (mut out, mut at, mut count) = (Vec::with_capacity(text.len() + 64), 0, 0);
        for (place, (before, now)) in found {
            if place >= at {
                out.extend_from_slice(&text[at..place]);
                form.append(now, &mut out);
                (at, count) = (place + before.len(), count + 1);
            }
        }
        out.extend_from_slice(&text[at..]);
        Some((out, count))
    }
}

/// Where a value stands, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A request's target: what it cannot have is percent-encoded.
    Target,
    /// JSON: what a string cannot have is escaped.
    Json,
    /// Anything else.
    Plain,
}

impl Form {
    /// The form of a body.
    pub fn of_body(body: &[u8]) -> Self {
        match body.trim_ascii_start().first() {
            Some(b'{' | b'[') => Self::Json,
            _ => Self::Plain,
        }
    }

    fn append(self, value: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend_from_slice(value),
            Self::Target => {
                for byte in value {
                    // An escape of the value itself, which stood for the recorded one's.
                    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'+') {
                        out.push(*byte);
                    } else {
                        out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                    }
                }
            }
            Self::Json => {
                let text = serde_json::to_string(&String::from_utf8_lossy(value)).unwrap_or_default();
                out.extend_from_slice(text.trim_matches('"').as_bytes());
            }
        }
    }
}

/// Whether the name of a value says that it identifies something.
fn has_token_name(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "id", "token", "csrf", "xsrf", "key", "code", "session", "nonce", "state", "ticket", "guid", "uuid", "jwt",
        "auth",
    ];
    let lower = name.to_ascii_lowercase();
    let words = lower.split(|end: char| !end.is_ascii_alphanumeric());
    name.ends_with("Id")
        || words.into_iter().any(|word| NAMES.iter().any(|own| word == *own || (own.len() > 2 && word.ends_with(own))))
}

/// Whether a value identifies something: by its name, or because it is no word and no number.
fn is_token(name: &str, value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    let has_spaces = value.contains(char::is_whitespace);
    has_token_name(name)
        || (!has_spaces && (value.len() >= 20 || (digits > 0 && letters > 0) || (name.is_empty() && letters == 0)))
}

/// Whether what is at a place does not continue a word.
fn is_whole(text: &[u8], place: usize, length: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let before = place.checked_sub(1).and_then(|before| text.get(before));
    let continues_escape = place >= 3 && text[place - 3] == b'%';
    (!before.is_some_and(is_word) || continues_escape) && !text.get(place + length).is_some_and(is_word)
}

/// Returns the values of HTML's inputs and metas by their names.
fn named_values(body: &[u8]) -> Vec<(String, String)> {
    const MAX_TAGS: usize = 2_000;
    const MAX_TAG_BYTES: usize = 4_096;
    let text = String::from_utf8_lossy(body);
    let (mut found, mut looked) = (Vec::new(), 0);
    let starts = memmem::find_iter(text.as_bytes(), b"<");
    for start in starts.filter(|start| matches!(text.as_bytes().get(start + 1), Some(b'i' | b'I' | b'm' | b'M'))) {
        let rest = &text[start + 1..];
        let rest =
            &rest[..(0..=rest.len().min(MAX_TAG_BYTES)).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(0)];
        let is_tag = ["input", "meta"]
            .iter()
            .any(|name| rest.get(..name.len()).is_some_and(|own| own.eq_ignore_ascii_case(name)));
        if !is_tag {
            continue;
        }
        looked += 1;
        if looked > MAX_TAGS {
            break;
        }
        let tag = &rest[..rest.find('>').unwrap_or(rest.len())];
        if let (Some(name), Some(value)) =
            (attribute(tag, "name"), attribute(tag, "value").or_else(|| attribute(tag, "content")))
        {
            found.push((name.to_owned(), crate::encoding::unescaped(value)));
        }
    }
    found
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let mut rest = tag;
    while let Some(at) = rest.find(name) {
        let is_start = rest[..at].ends_with(|before: char| before.is_ascii_whitespace());
        let after = rest[at + name.len()..].trim_start();
        if let Some(value) = after.strip_prefix('=').filter(|_| is_start) {
            let value = value.trim_start();
            return match value.chars().next() {
                Some(quote @ ('"' | '\'')) => value[1..].split(quote).next(),
                _ => value.split(|end: char| end.is_ascii_whitespace()).next(),
            };
        }
        rest = &rest[at + name.len()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: &str, body: &str) -> Answer {
        Answer { status: Some(200), head: head.to_owned(), body: Some(body.as_bytes().to_vec()) }
    }

    fn replaced(before: &Answer, now: &Answer, text: &str) -> String {
        let mut values = Values::default();
        values.learn(before, now);
        let (out, _) = values.replace(text.as_bytes(), Form::Plain).unwrap_or_else(|| (text.as_bytes().to_vec(), 0));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn tokens_of_json_cookies_forms_and_locations_are_replaced() {
        let (before, now) =
            (answer("", r#"{"a":[{"token":"old-token+1"}]}"#), answer("", r#"{"a":[{"token":"new"}]}"#));
        assert_eq!(replaced(&before, &now, "t=old-token%2B1&u=old-token+1"), "t=new&u=new");
        let (before, now) = (answer("Set-Cookie: sid=abcdef; Path=/\n", ""), answer("set-cookie: sid=ghi\n", ""));
        assert_eq!(replaced(&before, &now, "sid=abcdef; x=xabcdef"), "sid=ghi; x=xabcdef");
        let html = |value: &str| answer("", &format!("<p>x<INPUT type=hidden value='{value}' name=\"csrf\">"));
        assert_eq!(replaced(&html("1234567"), &html("7654321&amp;"), "csrf=1234567"), "csrf=7654321&");
        let (before, now) =
            (answer("Location: /orders/100001?x=1\n", ""), answer("Location: /orders/200002?x=1\n", ""));
        assert_eq!(replaced(&before, &now, "/orders/100001/pay"), "/orders/200002/pay");
    }

    #[test]
    fn short_and_unchanged_values_stay() {
        let (before, now) =
            (answer("", r#"{"id":"12345","same":"unchanged"}"#), answer("", r#"{"id":"54321","same":"unchanged"}"#));
        assert_eq!(replaced(&before, &now, "/12345/unchanged"), "/12345/unchanged");
    }

    #[test]
    fn values_that_would_split_a_request_are_not_taken() {
        let (before, now) = (answer("", r#"{"t":"token-1"}"#), answer("", "{\"t\":\"x\\r\\nHost: other\"}"));
        assert_eq!(replaced(&before, &now, "token-1"), "token-1");
    }

    #[test]
    fn amounts_and_words_are_no_tokens() {
        let (before, now) = (
            answer("", r#"{"balance":100000,"status":"pending","orderId":100001,"name":"Ada Lovelace"}"#),
            answer("", r#"{"balance":250000,"status":"shipped","orderId":200002,"name":"Bob Babbage"}"#),
        );
        let text = "amount=100000&status=pending&order=100001&name=Ada Lovelace";
        assert_eq!(replaced(&before, &now, text), "amount=100000&status=pending&order=200002&name=Ada Lovelace");
    }

    #[test]
    fn values_are_written_as_their_place_wants_it() {
        let mut values = Values::default();
        values.add("token1", "a b&c#\"d");
        let form = |form, text: &str| String::from_utf8(values.replace(text.as_bytes(), form).unwrap().0).unwrap();
        assert_eq!(form(Form::Target, "/x?t=token1"), "/x?t=a%20b%26c%23%22d");
        assert_eq!(form(Form::Json, r#"{"t":"token1"}"#), r#"{"t":"a b&c#\"d"}"#);
    }

    #[test]
    fn page_of_tags_without_end_costs_little() {
        let page = "<input ".repeat(100_000);
        assert!(named_values(page.as_bytes()).is_empty());
    }

    #[test]
    fn values_are_bounded() {
        let mut values = Values::default();
        (0..1000).for_each(|number| values.add(&format!("value-{number:04}"), "x"));
        assert_eq!(values.0.len(), MAX_VALUES);
        assert!(
            values.replace(b"value-0001", Form::Plain).is_none()
                && values.replace(b"value-0999", Form::Plain).is_some()
        );
    }
}
