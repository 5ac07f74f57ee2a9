//! Finds values in texts: regular expressions with a limit of steps back, JSONPath, CSS selectors, boundaries. Owns the
//! caches of patterns, paths and selectors that are made of variables, and their bounds.

use std::collections::HashMap;
use std::sync::Arc;

use fancy_regex::{Regex, RegexBuilder};
use serde_json_path::JsonPath;

use super::fault::Fault;
use super::html::selector::Selector;
use super::html::Document;

/// The most patterns or paths that are kept compiled.
const MOST_CACHED: usize = 500;
/// The most matches of one extraction.
pub const MOST_MATCHES: usize = 10_000;

/// The most steps back of one match; a pattern that needs more fails as `pattern_too_slow`.
const BACKTRACK_LIMIT: usize = 1_000_000;
/// Compiles a regular expression, which matches a part of a text or, with `whole`, all of it.
pub fn regex(pattern: &str, whole: bool) -> Result<Regex, String> {
    let anchored;
    let pattern = if whole {
        anchored = format!(r"\A(?:{pattern})\z");
        &anchored
    } else {
        pattern
    };
    let built = RegexBuilder::new(pattern).backtrack_limit(BACKTRACK_LIMIT).build();
    built.map_err(|error| format!("`{pattern}` is not a regular expression: {error}"))
}

/// Compiled patterns and paths.
#[derive(Debug, Default)]
pub struct Searches {
    patterns: HashMap<(Box<str>, bool), Arc<Regex>>,
    paths: HashMap<Box<str>, Arc<JsonPath>>,
    selectors: HashMap<Box<str>, Arc<Selector>>,
}

impl Searches {
    /// Returns a compiled pattern.
    pub fn pattern(&mut self, text: &str, whole: bool) -> Result<Arc<Regex>, Fault> {
        let key = (Box::from(text), whole);
        if let Some(found) = self.patterns.get(&key) {
            return Ok(Arc::clone(found));
        }
        let built = regex(text, whole).map_err(|detail| Fault { cause: "bad_pattern", detail })?;
        if self.patterns.len() >= MOST_CACHED {
            self.patterns.clear();
        }
        Ok(Arc::clone(self.patterns.entry(key).or_insert_with(|| Arc::new(built))))
    }

    /// Returns a compiled path.
    pub fn path(&mut self, text: &str) -> Result<Arc<JsonPath>, Fault> {
        if let Some(found) = self.paths.get(text) {
            return Ok(Arc::clone(found));
        }
        let built = json_path(text).map_err(|detail| Fault { cause: "bad_json_path", detail })?;
        if self.paths.len() >= MOST_CACHED {
            self.paths.clear();
        }
        Ok(Arc::clone(self.paths.entry(text.into()).or_insert_with(|| Arc::new(built))))
    }

    /// Returns a compiled selector.
    fn selector(&mut self, text: &str) -> Result<Arc<Selector>, Fault> {
        if let Some(found) = self.selectors.get(text) {
            return Ok(Arc::clone(found));
        }
        let built = Selector::parse(text).map_err(|detail| Fault { cause: "bad_selector", detail })?;
        if self.selectors.len() >= MOST_CACHED {
            self.selectors.clear();
        }
        Ok(Arc::clone(self.selectors.entry(text.into()).or_insert_with(|| Arc::new(built))))
    }

    /// Returns the texts of the elements of HTML that a selector finds, or an attribute of theirs.
    pub fn css(&mut self, html: &str, selector: &str, attribute: &str) -> Result<Vec<String>, Fault> {
        let selector = self.selector(selector)?;
        let document = Document::read(html);
        let attribute = attribute.to_ascii_lowercase();
        let value = |number: u32| match document.element(number) {
            Some(element) if !attribute.is_empty() => element.attribute(&attribute).unwrap_or_default().to_owned(),
            _ => document.text(number),
        };
        Ok(selector.find(&document)?.into_iter().map(value).collect())
    }

    /// Returns the nodes of a path in a JSON text, as texts; nothing in a text that is no JSON.
    pub fn json(&mut self, text: &str, path: &str) -> Result<Vec<Option<String>>, Fault> {
        let path = self.path(path)?;
        let Ok(root) = serde_json::from_str::<serde_json::Value>(text) else { return Ok(Vec::new()) };
        let nodes = path.query(&root).all();
        Ok(nodes.into_iter().take(MOST_MATCHES).map(json_text).collect())
    }
}

/// Compiles a JSONPath; the root's `$` may be absent.
pub fn json_path(text: &str) -> Result<JsonPath, String> {
    let text = text.trim();
    let rooted;
    let text = match text.as_bytes().first() {
        Some(b'$') => text,
        Some(b'[' | b'.') => {
            rooted = format!("${text}");
            &rooted
        }
        _ => {
            rooted = format!("$.{text}");
            &rooted
        }
    };
    JsonPath::parse(text).map_err(|error| format!("`{text}` is not a JSONPath: {error}"))
}

/// Returns a JSON value as text; `None` if it is null.
fn json_text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns what is between two texts, one after another. An empty text is the beginning or the end.
pub fn between<'t>(text: &'t str, left: &str, right: &str) -> Vec<&'t str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while found.len() < MOST_MATCHES {
        let start = if left.is_empty() { Some(0) } else { rest.find(left).map(|at| at + left.len()) };
        let Some(start) = start else { break };
        let inner = &rest[start..];
        let Some(end) = (if right.is_empty() { Some(inner.len()) } else { inner.find(right) }) else { break };
        found.push(&inner[..end]);
        if left.is_empty() || right.is_empty() {
            break;
        }
        rest = &inner[end + right.len()..];
    }
    found
}

/// Returns the fault of a pattern that takes too many steps.
pub fn too_slow(error: &fancy_regex::Error) -> Fault {
    Fault { cause: "pattern_too_slow", detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_enclose_values() {
        assert_eq!(between("<a>1</a><a>2</a><a>3", "<a>", "</a>"), ["1", "2"]);
        assert_eq!(between("key=value", "key=", ""), ["value"]);
        assert_eq!(between("key=value", "", "="), ["key"]);
        assert!(between("abc", "x", "y").is_empty());
    }

    #[test]
    fn json_paths_may_lack_their_root() {
        let mut searches = Searches::default();
        let text = r#"{"a":{"b":[1,"two",null,{"c":3}]},"n":null}"#;
        let found = |searches: &mut Searches, path: &str| searches.json(text, path).unwrap();
        for path in ["$.a.b[1]", "a.b[1]", ".a.b[1]", "$['a']['b'][1]"] {
            assert_eq!(found(&mut searches, path), [Some("two".to_owned())], "{path}");
        }
        assert_eq!(found(&mut searches, "$..c"), [Some("3".to_owned())]);
        assert_eq!(found(&mut searches, "$.n"), [None]);
        assert_eq!(found(&mut searches, "$.a.b[3]"), [Some(r#"{"c":3}"#.to_owned())]);
        assert!(found(&mut searches, "$.x").is_empty());
        assert!(searches.json("no json", "$.a").unwrap().is_empty());
        assert_eq!(searches.path("$[").unwrap_err().cause, "bad_json_path");
    }

    #[test]
    fn slow_pattern_ends() {
        let pattern = Searches::default().pattern(r"(a|a?)+\1$", false).unwrap();
        assert!(pattern.is_match(&("a".repeat(60) + "b")).is_err());
    }
}
