//! Lines that are JSON objects, read without a tree: each member that the format knows leaves its range. Tolerates what
//! hand-made formats write (a bare `-`, lists without brackets, `\xHH`) and what is before the object.

use memchr::{memchr, memchr2};

use super::meaning::{Meaning, Slot, Variable};
use super::steps::Span;
use crate::recorded::Cause;

/// How deep objects are read.
const MAX_DEPTH: usize = 8;

/// The names of a member and of the objects around it, from the outermost one.
pub(super) type Path = Vec<Vec<u8>>;

/// The members that a format knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    members: Vec<(Vec<u8>, Node)>,
}

#[derive(Clone, Debug)]
enum Node {
    Slot(Slot),
    Object(Keys),
}

/// A member of an object.
struct JsonMember {
    key: Span,
    value: JsonValue,
}

enum JsonValue {
    /// A text or a bare value, and where it ends.
    Plain(Span, usize),
    /// An object, and where its members begin.
    Object(usize),
}

impl Keys {
    /// Takes up what the members with these paths are.
    pub(super) fn new(members: impl IntoIterator<Item = (Path, Variable)>, meaning: &mut Meaning) -> Self {
        let mut keys = Self::default();
        for (path, variable) in members {
            if let Some(slot) = meaning.add(variable) {
                keys.insert(&path, slot);
            }
        }
        keys
    }

    fn insert(&mut self, path: &[Vec<u8>], slot: Slot) {
        let Some((key, rest)) = path.split_first() else { return };
        if rest.is_empty() {
            self.members.push((key.clone(), Node::Slot(slot)));
            return;
        }
        let found = self.members.iter().position(|(other, node)| other == key && matches!(node, Node::Object(_)));
        let index = found.unwrap_or_else(|| {
            self.members.push((key.clone(), Node::Object(Self::default())));
            self.members.len() - 1
        });
        if let Node::Object(inner) = &mut self.members[index].1 {
            inner.insert(rest, slot);
        }
    }

    /// Takes a line apart.
    ///
    /// # Errors
    /// Why it is no such object.
    pub(super) fn parse(&self, line: &[u8], spans: &mut [Span]) -> Result<(), Cause> {
        spans.fill(Span::default());
        let begin = memchr(b'{', line).ok_or(Cause::Malformed)?;
        let end = self.parse_object(line, begin + 1, spans, 0)?;
        if line[end..].trim_ascii().is_empty() {
            Ok(())
        } else {
            Err(Cause::Malformed)
        }
    }

    fn parse_object(&self, line: &[u8], from: usize, spans: &mut [Span], depth: usize) -> Result<usize, Cause> {
        let (mut at, mut next) = (from, 0);
        loop {
            let member = match read_member(line, at)? {
                Ok(member) => member,
                Err(end) => return Ok(end),
            };
            let node = self.find(&line[member.key.from as usize..member.key.to as usize], &mut next);
            at = match member.value {
                JsonValue::Plain(span, end) => {
                    if let Some(Node::Slot(slot)) = node {
                        spans[usize::from(*slot)] = span;
                    }
                    end
                }
                JsonValue::Object(_) if depth == MAX_DEPTH => return Err(Cause::Malformed),
                JsonValue::Object(begin) => match node {
                    Some(Node::Object(keys)) => keys.parse_object(line, begin, spans, depth + 1)?,
                    _ => Self::default().parse_object(line, begin, spans, depth + 1)?,
                },
            };
        }
    }

    /// The member with a name. Lines usually have the same members in the same order: the search begins behind the
    /// member that was found last.
    fn find(&self, key: &[u8], next: &mut usize) -> Option<&Node> {
        let (before, after) = self.members.split_at((*next).min(self.members.len()));
        let index = after.iter().chain(before).position(|(name, _)| name == key)?;
        let index = (index + *next) % self.members.len();
        *next = index + 1;
        Some(&self.members[index].1)
    }
}

/// All members of an object with their paths and values as text, for formats that are read from an example.
///
/// # Errors
/// Why it is no object.
pub(super) fn list_members(text: &[u8]) -> Result<Vec<(Path, Vec<u8>)>, Cause> {
    let begin = memchr(b'{', text).ok_or(Cause::Malformed)?;
    let mut members = Vec::new();
    list_object(text, begin + 1, &mut Vec::new(), &mut members)?;
    Ok(members)
}

fn list_object(text: &[u8], from: usize, path: &mut Path, members: &mut Vec<(Path, Vec<u8>)>) -> Result<usize, Cause> {
    let mut at = from;
    loop {
        let member = match read_member(text, at)? {
            Ok(member) => member,
            Err(end) => return Ok(end),
        };
        path.push(text[member.key.from as usize..member.key.to as usize].to_vec());
        at = match member.value {
            JsonValue::Plain(span, end) => {
                members.push((path.clone(), text[span.from as usize..span.to as usize].to_vec()));
                end
            }
            JsonValue::Object(_) if path.len() > MAX_DEPTH => return Err(Cause::Malformed),
            JsonValue::Object(begin) => list_object(text, begin, path, members)?,
        };
        path.pop();
    }
}

/// The member that begins here, or where the object ends.
fn read_member(line: &[u8], from: usize) -> Result<Result<JsonMember, usize>, Cause> {
    let mut at = from;
    while let b' ' | b'\t' | b',' | b'\r' | b'\n' = *line.get(at).ok_or(Cause::CutOff)? {
        at += 1;
    }
    match line[at] {
        b'}' => return Ok(Err(at + 1)),
        b'"' => {}
        _ => return Err(Cause::Malformed),
    }
    let key = read_text(line, at)?;
    at = skip_spaces(line, key.to as usize + 1);
    if *line.get(at).ok_or(Cause::CutOff)? != b':' {
        return Err(Cause::Malformed);
    }
    at = skip_spaces(line, at + 1);
    let value = match *line.get(at).ok_or(Cause::CutOff)? {
        b'"' => {
            let span = read_text(line, at)?;
            JsonValue::Plain(span, span.to as usize + 1)
        }
        b'{' => JsonValue::Object(at + 1),
        b'[' => read_array(line, at)?,
        _ => read_bare(line, at)?,
    };
    Ok(Ok(JsonMember { key, value }))
}

/// The text between quotes, of which the first is here.
fn read_text(line: &[u8], from: usize) -> Result<Span, Cause> {
    let mut at = from + 1;
    loop {
        at += line.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)).ok_or(Cause::CutOff)?;
        if line[at] == b'"' {
            return Ok(Span::new(from + 1, at));
        }
        at += 2;
    }
}

/// An array as its first value that is no array or object.
fn read_array(line: &[u8], from: usize) -> Result<JsonValue, Cause> {
    let (mut at, mut depth, mut first) = (from, 0_u32, None);
    loop {
        match *line.get(at).ok_or(Cause::CutOff)? {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(JsonValue::Plain(first.unwrap_or_default(), at + 1));
                }
            }
            b'"' => {
                let span = read_text(line, at)?;
                first = first.or((depth == 1).then_some(span));
                at = span.to as usize;
            }
            _ => {}
        }
        at += 1;
    }
}

/// A value without quotes: until a comma that a member's name follows, or the object's end.
fn read_bare(line: &[u8], from: usize) -> Result<JsonValue, Cause> {
    let mut at = from;
    loop {
        at += line.get(at..).and_then(|rest| memchr2(b',', b'}', rest)).ok_or(Cause::CutOff)?;
        let next = line.get(skip_spaces(line, at + 1));
        if line[at] == b'}' || matches!(next, Some(b'"' | b'}') | None) {
            let text = line[from..at].trim_ascii_end();
            return Ok(JsonValue::Plain(Span::new(from, from + text.len()), at));
        }
        at += 1;
    }
}

fn skip_spaces(line: &[u8], from: usize) -> usize {
    let spaces = |rest: &[u8]| rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    from + line.get(from..).map_or(0, spaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Result<Vec<(String, String)>, Cause> {
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        let members = list_members(text.as_bytes())?;
        Ok(members.into_iter().map(|(path, value)| (text_of(path.join(&b'.')), text_of(value))).collect())
    }

    fn expect(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, Cause> {
        Ok(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_hand_made_formats_write_is_read() {
        assert_eq!(
            members(r#"prefix {"a": "b\"c", "d": -, "e": 0.004, 0.010 : 0.2, "f":7,"g":{"h":["i","j"]}, "k":[[1]],}"#),
            expect(&[("a", r#"b\"c"#), ("d", "-"), ("e", "0.004, 0.010 : 0.2"), ("f", "7"), ("g.h", "i"), ("k", "")])
        );
        assert_eq!(members("{}"), expect(&[]));
        for text in [r#"{"a"#, r#"{"a":"#, r#"{"a":"b\"#, r#"{"a":1"#, r#"{"a":["#, "{"] {
            assert_eq!(members(text), Err(Cause::CutOff), "{text}");
        }
        for text in ["", "a", "{a:1}", r#"{"a" 1}"#] {
            assert_eq!(members(text), Err(Cause::Malformed), "{text}");
        }
        let deep = r#"{"a":"#.repeat(50_000);
        assert_eq!(members(&deep), Err(Cause::Malformed));
        assert_eq!(members(&format!(r#"{{"a":{}"#, "[".repeat(50_000))), Err(Cause::CutOff));
    }

    #[test]
    fn members_are_found_in_any_order() {
        let mut meaning = Meaning::default();
        let path = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let keys = Keys::new(
            [
                (path(&["r", "m"]), Variable::Method),
                (path(&["r", "t"]), Variable::Target),
                (path(&["s"]), Variable::Status),
            ],
            &mut meaning,
        );
        let mut spans = vec![Span::default(); meaning.slots()];
        for line in
            [r#"{"r":{"m":"GET","t":"/a"},"s":200}"#, r#"{"s":200,"x":{"m":"PUT"},"r":{"t":"/a","y":1,"m":"GET"}}"#]
        {
            assert_eq!(keys.parse(line.as_bytes(), &mut spans), Ok(()));
            let texts: Vec<_> = spans.iter().map(|span| &line[span.from as usize..span.to as usize]).collect();
            assert_eq!(texts, ["GET", "/a", "200"]);
        }
        assert_eq!(keys.parse(b"{} x", &mut spans), Err(Cause::Malformed));
        assert_eq!(keys.parse(b"{}", &mut spans), Ok(()));
        assert!(spans.iter().all(|span| *span == Span::default()));
    }
}
