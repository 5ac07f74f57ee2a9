//! What differs between two answers: their status, the fields of their JSON, or else the length or content of their bodies.
//! Header fields are not compared: nearly all that differ (Date, ETag, Set-Cookie) differ by themselves.

use serde_json::Value;

use super::request::Answer;

/// The longest body that is compared by the fields of its JSON, bytes; longer ones are compared as a whole.
const MAX_JSON_BYTES: usize = 1 << 20;
/// Parts of one answer that are reported.
const MAX_PARTS: usize = 32;
/// The longest example of a value, bytes.
const MAX_EXAMPLE_BYTES: usize = 80;
/// The depth below which JSON is compared as a whole.
const MAX_DEPTH: usize = 32;

/// A part that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// `status`, `length`, `body`, or a field of JSON.
    pub part: String,
    /// What it was, and what it is.
    pub values: (String, String),
}

/// Returns what differs; parts that one of the two does not have are not compared.
pub(super) fn differences(before: &Answer, after: &Answer) -> Vec<Difference> {
    let mut found = Found::default();
    if let (Some(before), Some(after)) = (before.status, after.status) {
        if before != after {
            found.add("status", before.to_string(), after.to_string());
        }
    }
    if let (Some(before), Some(after)) = (&before.body, &after.body) {
        bodies(before, after, &mut found);
    }
    found.0
}

fn bodies(before: &[u8], after: &[u8], found: &mut Found) {
    if before == after {
        return;
    }
    if let (Some(before), Some(after)) = (json(before), json(after)) {
        return fields(&before, &after, &mut String::new(), 0, found);
    }
    if before.len() == after.len() {
        let place = before.iter().zip(after).position(|(before, after)| before != after).unwrap_or(0);
        // No text of it: it may hold secrets.
        let words = |body: &[u8]| format!("{} bytes, at {place}: {:#04x}", body.len(), body.get(place).unwrap_or(&0));
        found.add("body", words(before), words(after));
    } else {
        found.add("length", format!("{} bytes", before.len()), format!("{} bytes", after.len()));
    }
}

fn json(body: &[u8]) -> Option<Value> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if body.len() > MAX_JSON_BYTES || !matches!(first, b'{' | b'[') {
        return None;
    }
    serde_json::from_slice(body).ok()
}

/// Walks two values; the elements of a list have one name, `[]`.
fn fields(before: &Value, after: &Value, path: &mut String, depth: usize, found: &mut Found) {
    if before == after || found.is_full() {
        return;
    }
    let length = path.len();
    match (before, after) {
        (Value::Object(before), Value::Object(after)) if depth < MAX_DEPTH => {
            for (name, value) in before {
                push_name(path, name);
                match after.get(name) {
                    Some(other) => fields(value, other, path, depth + 1, found),
                    None => found.add(path, example(value), "missing".to_owned()),
                }
                path.truncate(length);
            }
            for (name, value) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
                push_name(path, name);
                found.add(path, "missing".to_owned(), example(value));
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if depth < MAX_DEPTH => {
            path.push_str("[]");
            if before.len() == after.len() {
                before.iter().zip(after).for_each(|(one, other)| fields(one, other, path, depth + 1, found));
            } else {
                found.add(path, format!("{} elements", before.len()), format!("{} elements", after.len()));
            }
            path.truncate(length);
        }
        _ => found.add(if path.is_empty() { "body" } else { path }, example(before), example(after)),
    }
}

fn push_name(path: &mut String, name: &str) {
    const MAX_PATH_CHARS: usize = 200;
    if !path.is_empty() {
        path.push('.');
    }
    path.extend(name.chars().take(MAX_PATH_CHARS.saturating_sub(path.len())));
}

fn example(value: &Value) -> String {
    match value {
        Value::Object(_) => return "an object".to_owned(),
        Value::Array(_) => return "a list".to_owned(),
        _ => {}
    }
    let mut text = value.to_string();
    if text.len() > MAX_EXAMPLE_BYTES {
        let end = (0..=MAX_EXAMPLE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    fn is_full(&self) -> bool {
        self.0.len() >= MAX_PARTS
    }

    /// Adds a part, once for each name: of a list's elements the first that differs.
    fn add(&mut self, part: &str, before: String, after: String) {
        if !self.is_full() && !self.0.iter().any(|own| own.part == part) {
            self.0.push(Difference { part: part.to_owned(), values: (before, after) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status: Some(status), head: String::new(), body: Some(body.as_bytes().to_vec()) }
    }

    fn parts(before: &str, after: &str) -> Vec<String> {
        differences(&answer(200, before), &answer(200, after)).into_iter().map(|own| own.part).collect()
    }

    #[test]
    fn fields_of_json_are_named() {
        let before = r#"{"id":1,"items":[{"price":5},{"price":6}],"at":"x","gone":1}"#;
        let after = r#"{"items":[{"price":5},{"price":7}],"at":"y","id":1,"new":[]}"#;
        let mut found = parts(before, after);
        found.sort();
        assert_eq!(found, ["at", "gone", "items[].price", "new"]);
        assert_eq!(parts(r#"{"a":1, "b":2}"#, r#"{"b":2,"a":1}"#), Vec::<String>::new());
        assert_eq!(parts("[1,2]", "[1]"), ["[]"]);
        assert_eq!(parts("[1", "[1]"), ["length"]);
    }

    #[test]
    fn other_bodies_differ_in_length_or_content() {
        assert_eq!(parts("abc", "abcd"), ["length"]);
        let found = differences(&answer(200, "price: 5 EUR"), &answer(500, "price: 6 EUR"));
        assert_eq!(found[0], Difference { part: "status".into(), values: ("200".into(), "500".into()) });
        assert_eq!(found[1].values, ("12 bytes, at 7: 0x35".into(), "12 bytes, at 7: 0x36".into()));
    }

    #[test]
    fn what_one_side_does_not_have_is_not_compared() {
        let unknown = Answer { status: Some(200), ..Answer::default() };
        assert!(differences(&unknown, &answer(200, "x")).is_empty());
    }

    #[test]
    fn hostile_json_is_bounded() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        let other = format!("{}2{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(parts(&deep, &other).len(), 1);
        let wide = |value: u32| {
            let fields: Vec<String> = (0..1000).map(|number| format!("\"f{number}\":{value}")).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert_eq!(parts(&wide(1), &wide(2)).len(), MAX_PARTS);
    }
}
