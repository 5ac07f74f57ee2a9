//! Finds values in texts: regular expressions with a limit of steps back, JSONPath, CSS selectors, boundaries. Owns the
//! caches of patterns, paths and selectors that are made of variables, and their bounds. A response can repeat one long text
//! in many values (elements or objects in each other), so values are made only where they are wanted, up to a number of bytes.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use fancy_regex::{Regex, RegexBuilder};
use serde_json::Value as Json;
use serde_json_path::JsonPath;

use super::browser::html::selector::Selector;
use super::browser::html::steps::Steps;
use super::browser::html::Document;
use super::fault::Fault;

/// The most patterns or paths that are kept compiled.
const MOST_CACHED: usize = 500;
/// The most matches of one extraction.
pub const MOST_MATCHES: usize = 10_000;
/// The most bytes of the values of one extraction: four times the largest body.
pub const MOST_VALUE_BYTES: usize = 64 << 20;

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

    /// Returns the elements of HTML that a selector finds. Their value is their text, or this attribute if it has a name.
    pub fn css(&mut self, html: &str, selector: &str, attribute: &str) -> Result<Elements, Fault> {
        let selector = self.selector(selector)?;
        let (document, steps) = (Document::read(html), Steps::default());
        let numbers = selector.find(&document, &steps)?;
        Ok(Elements { document, numbers, attribute: attribute.to_ascii_lowercase(), steps })
    }
}

/// The elements that a selector found.
#[derive(Debug)]
pub struct Elements {
    document: Document,
    numbers: Vec<u32>,
    /// The attribute that is their value; empty if their text is.
    attribute: String,
    /// The steps of the search and of the values so far.
    steps: Steps,
}

impl Elements {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the values of some of them.
    ///
    /// # Errors
    /// They take too many steps.
    pub fn values(&self, places: Range<usize>) -> Result<Vec<String>, Fault> {
        let numbers = self.numbers.get(places).unwrap_or_default();
        numbers.iter().map(|number| self.value(*number)).collect()
    }

    fn value(&self, number: u32) -> Result<String, Fault> {
        match self.document.element(number) {
            Some(element) if !self.attribute.is_empty() => {
                Ok(element.attribute(&self.attribute).unwrap_or_default().to_owned())
            }
            _ => self.document.text(number, &self.steps),
        }
    }
}

/// Reads a text as JSON; `None` if it is none.
pub fn read_json(text: &str) -> Option<Json> {
    serde_json::from_str(text).ok()
}

/// The nodes that a path found in JSON.
#[derive(Debug)]
pub struct Nodes<'r> {
    nodes: Vec<&'r Json>,
    /// How many bytes further values may have.
    left_bytes: Cell<usize>,
}

impl<'r> Nodes<'r> {
    /// Finds the nodes of a path; none where there is no JSON.
    pub fn find(path: &JsonPath, root: Option<&'r Json>) -> Self {
        let mut nodes = root.map(|root| path.query(root).all()).unwrap_or_default();
        nodes.truncate(MOST_MATCHES);
        Self { nodes, left_bytes: Cell::new(MOST_VALUE_BYTES) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether one of them is null.
    pub fn has_null(&self) -> bool {
        self.nodes.iter().any(|node| node.is_null())
    }

    /// Returns some of them as texts; `None` for null.
    ///
    /// # Errors
    /// They are too long together.
    pub fn values(&self, places: Range<usize>) -> Result<Vec<Option<String>>, Fault> {
        let nodes = self.nodes.get(places).unwrap_or_default();
        nodes.iter().map(|node| Ok(self.text(node)?.map(Cow::into_owned))).collect()
    }

    /// Returns the first one that is not null as a text.
    ///
    /// # Errors
    /// It is too long.
    pub fn first(&self) -> Result<Option<String>, Fault> {
        let first = self.nodes.iter().find(|node| !node.is_null());
        first.map_or(Ok(None), |node| Ok(self.text(node)?.map(Cow::into_owned)))
    }

    /// Whether one of them that is not null passes a test as a text.
    ///
    /// # Errors
    /// They are too long together.
    pub fn any(&self, passes: impl Fn(&str) -> bool) -> Result<bool, Fault> {
        for node in &self.nodes {
            if self.text(node)?.is_some_and(|text| passes(&text)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a node as a text; `None` if it is null.
    fn text<'n>(&self, node: &'n Json) -> Result<Option<Cow<'n, str>>, Fault> {
        let mut made = Bounded { text: String::new(), left_bytes: &self.left_bytes };
        let text = match node {
            Json::Null => return Ok(None),
            Json::String(text) => take(&self.left_bytes, text.len()).map(|()| Cow::Borrowed(text.as_str())),
            other => write!(made, "{other}").map(|()| Cow::Owned(made.text)),
        };
        text.map(Some).map_err(|_| {
            let detail = format!("the values of a JSONPath are longer than {MOST_VALUE_BYTES} bytes");
            Fault { cause: "text_too_long", detail }
        })
    }
}

/// A text that grows as long as there are bytes left.
struct Bounded<'n> {
    text: String,
    left_bytes: &'n Cell<usize>,
}

impl fmt::Write for Bounded<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        take(self.left_bytes, part.len())?;
        self.text.push_str(part);
        Ok(())
    }
}

/// Takes bytes; an error if fewer are left.
fn take(left_bytes: &Cell<usize>, bytes: usize) -> fmt::Result {
    left_bytes.set(left_bytes.get().checked_sub(bytes).ok_or(fmt::Error)?);
    Ok(())
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
    use crate::browser::html::steps::BYTES_PER_STEP;

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
        let root = read_json(text);
        let found = |searches: &mut Searches, path: &str| {
            let nodes = Nodes::find(&searches.path(path).unwrap(), root.as_ref());
            nodes.values(0..nodes.count()).unwrap()
        };
        for path in ["$.a.b[1]", "a.b[1]", ".a.b[1]", "$['a']['b'][1]"] {
            assert_eq!(found(&mut searches, path), [Some("two".to_owned())], "{path}");
        }
        assert_eq!(found(&mut searches, "$..c"), [Some("3".to_owned())]);
        assert_eq!(found(&mut searches, "$.n"), [None]);
        assert_eq!(found(&mut searches, "$.a.b[3]"), [Some(r#"{"c":3}"#.to_owned())]);
        assert!(found(&mut searches, "$.x").is_empty());
        assert_eq!(Nodes::find(&searches.path("$.a").unwrap(), read_json("no json").as_ref()).count(), 0);
        assert_eq!(searches.path("$[").unwrap_err().cause, "bad_json_path");
    }

    #[test]
    fn nodes_are_found_one_by_one() {
        let root = read_json(r#"[null, {"b": "x"}, "two"]"#);
        let nodes = Nodes::find(&json_path("$[*]").unwrap(), root.as_ref());
        assert_eq!((nodes.count(), nodes.has_null()), (3, true));
        assert_eq!(nodes.first().unwrap().unwrap(), r#"{"b":"x"}"#);
        assert_eq!(nodes.values(2..3).unwrap(), [Some("two".to_owned())]);
        assert!(nodes.any(|text| text == "two").unwrap() && !nodes.any(str::is_empty).unwrap());
        let none = Nodes::find(&json_path("$.x").unwrap(), root.as_ref());
        assert_eq!((none.first(), none.any(|_| true)), (Ok(None), Ok(false)));
    }

    /// As texts, all nested objects would repeat the innermost text.
    #[test]
    fn values_of_nested_objects_are_bounded_together() {
        let leaf = "x".repeat(2 << 20);
        let text = format!("{}\"{leaf}\"{}", r#"{"a":"#.repeat(126), "}".repeat(126));
        let root = read_json(&text);
        assert!(root.is_some());
        let path = json_path("$..a").unwrap();
        let nodes = Nodes::find(&path, root.as_ref());
        assert_eq!(nodes.values(0..nodes.count()).unwrap_err().cause, "text_too_long");
        assert_eq!(nodes.any(|_| false).unwrap_err().cause, "text_too_long");
        let nodes = Nodes::find(&path, root.as_ref());
        let last = nodes.values(nodes.count() - 1..nodes.count()).unwrap();
        let made_bytes = MOST_VALUE_BYTES - nodes.left_bytes.get();
        assert_eq!((last.as_slice(), made_bytes), ([Some(leaf.clone())].as_slice(), leaf.len()));
        assert!(nodes.first().unwrap().unwrap().len() > leaf.len());
    }

    #[test]
    fn texts_of_nested_elements_are_bounded_together() {
        let leaf = "x".repeat(1 << 20);
        let html = "<div>".repeat(255) + &leaf;
        let mut searches = Searches::default();
        let elements = searches.css(&html, "div", "").unwrap();
        assert_eq!(elements.count(), 255);
        assert_eq!(elements.values(0..255).unwrap_err().cause, "selector_too_slow");
        let elements = searches.css(&html, "div", "").unwrap();
        let before = elements.steps.count();
        assert!(elements.values(0..1).unwrap() == [leaf.as_str()]);
        assert_eq!(elements.steps.count() - before, 255 + (leaf.len() / BYTES_PER_STEP) as u64);
    }

    #[test]
    fn slow_pattern_ends() {
        let pattern = Searches::default().pattern(r"(a|a?)+\1$", false).unwrap();
        assert!(pattern.is_match(&("a".repeat(60) + "b")).is_err());
    }
}
