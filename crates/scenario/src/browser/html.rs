//! Reads HTML into elements and texts, in one pass and tolerantly: void elements, raw texts, implied and missing ends.
//! Any text gives a tree. `selector` finds elements by CSS, `steps` bounds the work, `resources` finds the URLs that a browser
//! would fetch.

pub mod resources;
pub mod selector;
pub mod steps;

use self::steps::Steps;
use crate::encoding::unescaped;
use crate::fault::Fault;

/// The deepest nesting that is kept; deeper elements are children of the deepest one.
const MOST_DEPTH: usize = 256;
/// The most attributes of an element.
const MOST_ATTRIBUTES: usize = 200;

/// Elements without content.
const VOID: &[&str] = &[
    "area", "base", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];
/// Elements whose content is text alone.
const RAW: &[&str] = &["script", "style", "textarea", "title", "xmp", "noembed"];
/// Elements around whose text words end.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "option",
    "p",
    "pre",
    "section",
    "table",
    "td",
    "th",
    "tr",
    "ul",
];

/// An element.
#[derive(Debug)]
pub struct Element {
    /// Its name, in lower case.
    pub name: String,
    /// Its attributes, names in lower case.
    pub attributes: Vec<(String, String)>,
    /// The element that it is in.
    pub parent: Option<u32>,
    /// The element before it in the same parent.
    pub previous: Option<u32>,
    /// Whether another element follows in the same parent.
    pub is_followed: bool,
    /// Its place among the elements of its parent, from 1.
    pub place: u32,
    /// The node after its content.
    pub end: u32,
}

impl Element {
    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// A node, in the order of the text.
#[derive(Debug)]
pub enum Node {
    /// An element; its content follows.
    Element(Element),
    /// A text.
    Text(String),
}

/// A document.
#[derive(Debug, Default)]
pub struct Document {
    nodes: Vec<Node>,
}

impl Document {
    /// Reads a text.
    pub fn read(text: &str) -> Self {
        let mut builder = Builder { text, at: 0, nodes: Vec::new(), open: Vec::new(), roots: (None, 0) };
        builder.read();
        Self { nodes: builder.nodes }
    }

    /// All elements with their numbers, in order.
    pub fn elements(&self) -> impl Iterator<Item = (u32, &Element)> {
        self.nodes.iter().zip(0..).filter_map(|(node, number)| match node {
            Node::Element(element) => Some((number, element)),
            Node::Text(_) => None,
        })
    }

    /// An element by its number.
    pub fn element(&self, number: u32) -> Option<&Element> {
        match self.nodes.get(number as usize) {
            Some(Node::Element(element)) => Some(element),
            _ => None,
        }
    }

    /// The nodes in an element.
    pub fn content(&self, number: u32) -> &[Node] {
        let end = self.element(number).map_or(number + 1, |element| element.end);
        self.nodes.get(number as usize + 1..end as usize).unwrap_or_default()
    }

    /// The text of an element, with single spaces; scripts and styles are none.
    ///
    /// # Errors
    /// It takes too many steps.
    pub fn text(&self, number: u32, steps: &Steps) -> Result<String, Fault> {
        steps.add(self.content(number).len());
        steps.check()?;
        let (mut out, mut skip_to) = (String::new(), 0);
        for (node, own) in self.content(number).iter().zip(number + 1..) {
            match node {
                _ if own < skip_to => {}
                Node::Element(element) if matches!(element.name.as_str(), "script" | "style") => skip_to = element.end,
                Node::Element(element) if BLOCKS.contains(&element.name.as_str()) => out.push(' '),
                Node::Element(_) => {}
                Node::Text(text) => {
                    steps.add_text(text);
                    steps.check()?;
                    out.push_str(text);
                }
            }
        }
        let mut spaced = String::with_capacity(out.len());
        for word in out.split_whitespace() {
            if !spaced.is_empty() {
                spaced.push(' ');
            }
            spaced.push_str(word);
        }
        Ok(spaced)
    }
}

/// Reads a text.
struct Builder<'t> {
    text: &'t str,
    at: usize,
    nodes: Vec<Node>,
    /// The open elements, each with its last element and their number.
    open: Vec<(u32, Option<u32>, u32)>,
    /// The last element without a parent, and their number.
    roots: (Option<u32>, u32),
}

impl<'t> Builder<'t> {
    fn read(&mut self) {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let Some(tag) = rest.find('<') else {
                self.text_node(rest);
                break;
            };
            self.text_node(&rest[..tag]);
            self.at += tag;
            self.markup();
        }
        while !self.open.is_empty() {
            self.close_last();
        }
    }

    fn text_node(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = if text.contains('&') { unescaped(text) } else { text.to_owned() };
        self.nodes.push(Node::Text(text));
    }

    /// Reads what begins with `<`.
    fn markup(&mut self) {
        let rest = &self.text[self.at..];
        let second = rest.as_bytes().get(1).copied().unwrap_or(b' ');
        let third = rest.as_bytes().get(2).copied().unwrap_or(b' ');
        if let Some(comment) = rest.strip_prefix("<!--") {
            self.at += comment.find("-->").map_or(rest.len(), |end| end + 7);
        } else if second == b'!' || second == b'?' {
            self.at += rest.find('>').map_or(rest.len(), |end| end + 1);
        } else if second == b'/' && third.is_ascii_alphabetic() {
            let end = rest.find('>').unwrap_or(rest.len());
            let name = rest[2..end].split(|c: char| c.is_ascii_whitespace() || c == '/').next().unwrap_or_default();
            let name = name.to_ascii_lowercase();
            self.at += (end + 1).min(rest.len());
            self.close(&name);
        } else if second.is_ascii_alphabetic() {
            self.start_tag();
        } else {
            self.nodes.push(Node::Text("<".to_owned()));
            self.at += 1;
        }
    }

    fn start_tag(&mut self) {
        self.at += 1;
        let name =
            self.take_until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>')).to_ascii_lowercase();
        let attributes = self.attributes();
        self.close_implied(&name);
        let number = self.nodes.len() as u32;
        let parent = self.open.last().map(|(parent, ..)| *parent);
        let (previous, count) = match self.open.last_mut() {
            Some((_, last, count)) => (last.replace(number), count),
            None => (self.roots.0.replace(number), &mut self.roots.1),
        };
        *count += 1;
        let place = *count;
        if let Some(before) = previous {
            if let Node::Element(before) = &mut self.nodes[before as usize] {
                before.is_followed = true;
            }
        }
        let (is_void, is_raw) = (VOID.contains(&name.as_str()), RAW.contains(&name.as_str()));
        let raw_end = is_raw.then(|| self.raw_end(&name));
        let element = Element { name, attributes, parent, previous, is_followed: false, place, end: number + 1 };
        let keeps_entities = matches!(element.name.as_str(), "script" | "style" | "xmp" | "noembed");
        self.nodes.push(Node::Element(element));
        if let Some(end) = raw_end {
            let content = &self.text[self.at..end];
            if keeps_entities && !content.is_empty() {
                self.nodes.push(Node::Text(content.to_owned()));
            } else {
                self.text_node(content);
            }
            self.end_at(number);
            let rest = &self.text[end..];
            self.at = end + rest.find('>').map_or(rest.len(), |close| close + 1);
        } else if !is_void && self.open.len() < MOST_DEPTH {
            self.open.push((number, None, 0));
        }
    }

    /// Where the end tag of an element of text alone begins.
    fn raw_end(&self, name: &str) -> usize {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        while let Some(found) = self.text[at..].find("</") {
            let start = at + found;
            let after = bytes.get(start + 2..start + 2 + name.len());
            if after.is_some_and(|after| after.eq_ignore_ascii_case(name.as_bytes())) {
                return start;
            }
            at = start + 2;
        }
        self.text.len()
    }

    fn attributes(&mut self) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        loop {
            self.take_until(|byte| !byte.is_ascii_whitespace() && byte != b'/');
            match self.text.as_bytes().get(self.at) {
                None => return found,
                Some(b'>') => {
                    self.at += 1;
                    return found;
                }
                Some(_) => {}
            }
            let start = self.at;
            self.take_until(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'='));
            if self.at == start {
                // A name cannot be empty: `=` begins one.
                self.at += 1;
            }
            let name = self.text[start..self.at].to_ascii_lowercase();
            let value = self.value();
            if found.len() < MOST_ATTRIBUTES && found.iter().all(|(other, _)| *other != name) {
                found.push((name, value));
            }
        }
    }

    fn value(&mut self) -> String {
        let name_end = self.at;
        self.take_until(|byte| !byte.is_ascii_whitespace());
        if self.text.as_bytes().get(self.at) != Some(&b'=') {
            self.at = name_end;
            return String::new();
        }
        self.at += 1;
        self.take_until(|byte| !byte.is_ascii_whitespace());
        let value = match self.text.as_bytes().get(self.at).copied() {
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let value = self.take_until(|byte| byte == quote);
                self.at = (self.at + 1).min(self.text.len());
                value
            }
            _ => self.take_until(|byte| byte.is_ascii_whitespace() || byte == b'>'),
        };
        if value.contains('&') {
            unescaped(value)
        } else {
            value.to_owned()
        }
    }

    /// Takes bytes up to an ASCII one that ends them.
    fn take_until(&mut self, ends: impl Fn(u8) -> bool) -> &'t str {
        let text = self.text;
        let rest = &text.as_bytes()[self.at..];
        // What ends is ASCII, or the beginning of a character.
        let length = rest.iter().position(|byte| (*byte < 0x80 || *byte >= 0xC0) && ends(*byte)).unwrap_or(rest.len());
        let taken = &text[self.at..self.at + length];
        self.at += length;
        taken
    }

    /// Ends the elements that an element of this name cannot be in.
    fn close_implied(&mut self, name: &str) {
        let (closed, bounds): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol", "menu"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "option" | "optgroup" => (&["option"], &["select", "datalist"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "tr" => (&["tr"], &["table"]),
            "tbody" | "thead" | "tfoot" => (&["tbody", "thead", "tfoot"], &["table"]),
            _ if BLOCKS.contains(&name) && name != "br" => (&["p"], &["div", "td", "th", "li", "body", "button"]),
            _ => return,
        };
        for depth in (0..self.open.len()).rev() {
            let Some(own) = self.name_of(depth) else { return };
            if bounds.contains(&own) {
                return;
            }
            if closed.contains(&own) {
                while self.open.len() > depth {
                    self.close_last();
                }
                return;
            }
        }
    }

    /// Handles an end tag; one without a start is ignored.
    fn close(&mut self, name: &str) {
        if let Some(depth) = (0..self.open.len()).rev().find(|depth| self.name_of(*depth) == Some(name)) {
            while self.open.len() > depth {
                self.close_last();
            }
        }
    }

    fn name_of(&self, depth: usize) -> Option<&str> {
        match &self.nodes[self.open[depth].0 as usize] {
            Node::Element(element) => Some(&element.name),
            Node::Text(_) => None,
        }
    }

    fn close_last(&mut self) {
        if let Some((number, ..)) = self.open.pop() {
            self.end_at(number);
        }
    }

    fn end_at(&mut self, number: u32) {
        let end = self.nodes.len() as u32;
        if let Node::Element(element) = &mut self.nodes[number as usize] {
            element.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{selector::Selector, steps::Steps, Document};

    fn texts(html: &str, selector: &str) -> Vec<String> {
        let (document, steps) = (Document::read(html), Steps::default());
        let found = Selector::parse(selector).unwrap().find(&document, &steps).unwrap();
        found.into_iter().map(|number| document.text(number, &steps).unwrap()).collect()
    }

    #[test]
    fn ends_may_be_missing() {
        assert_eq!(texts("<ul><li>a<li>b <b>c</b></ul>d", "li"), ["a", "b c"]);
        assert_eq!(texts("<p>one<p>two<div>three</div>", "p"), ["one", "two"]);
        assert_eq!(texts("<table><tr><td>1<td>2<tr><td>3</table>", "tr"), ["1 2", "3"]);
        assert_eq!(texts("<select><option>x<option selected>y</select>", "option[selected]"), ["y"]);
        assert_eq!(texts("a <b>c</i></b> < d <", "b"), ["c"]);
    }

    #[test]
    fn texts_and_attributes_are_decoded() {
        assert_eq!(texts("<p title='a &amp; b'>x &lt;&#65;  \n y</p>", "p[title='a & b']"), ["x <A y"]);
        assert_eq!(texts("<p>a<script>if (1 < 2) '</p>'</script>b</p>", "p"), ["ab"]);
        assert_eq!(texts("<TITLE>A &amp; B</Title>", "title"), ["A & B"]);
        assert_eq!(texts("<!-- <p>no</p> --><!DOCTYPE html><p/>yes</p>", "p"), ["yes"]);
        assert_eq!(texts("<a = b=1 c>t</a>", "a[b='1'][c]"), ["t"]);
    }

    #[test]
    fn any_text_gives_a_tree() {
        let pieces = ["<", "</", "<a", " b='", "\"", ">", "&", "ü", "<!--", "<script>", "</script", "=", "/", "<p>"];
        let mut state = 1u64;
        for _ in 0..2000 {
            let mut text = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            let document = Document::read(&text);
            document.elements().for_each(|(number, _)| drop(document.text(number, &Steps::default()).unwrap()));
        }
        let deep = "<div>".repeat(100_000);
        assert_eq!(Document::read(&deep).elements().count(), 100_000);
    }
}
