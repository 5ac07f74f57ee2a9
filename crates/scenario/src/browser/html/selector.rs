//! CSS selectors: types, classes, ids, attributes, the four combinators, and pseudo-classes that need only the tree. Owns
//! which ones are refused. `steps` bounds a search.

use super::steps::Steps;
use super::{Document, Element};
use crate::fault::Fault;

/// The most elements of one search.
const MOST_FOUND: usize = 10_000;
/// The most parts of a selector.
const MOST_PARTS: usize = 100;

/// A compiled selector: alternatives.
#[derive(Debug)]
pub struct Selector(Vec<Chain>);

/// Compounds from right to left, each with how it is related to the one after it.
#[derive(Debug)]
struct Chain(Vec<(Compound, Relation)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Itself,
    Ancestor,
    Parent,
    Previous,
    Before,
}

#[derive(Debug, Default)]
struct Compound(Vec<Simple>);

#[derive(Debug)]
enum Simple {
    Type(String),
    Id(String),
    Class(String),
    /// The attribute's name, how its value is compared, the value, and whether letters' case is ignored.
    Attribute(String, char, String, bool),
    /// Every `step`-th from `offset`, and whether only elements of the same type count.
    Nth(i64, i64, bool),
    LastChild,
    Empty,
    Root,
    Not(Selector),
    Contains(String),
}

impl Selector {
    /// Compiles a selector.
    ///
    /// # Errors
    /// What cannot be read, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0, parts: 0 };
        let selector = parser.list().map_err(|problem| format!("`{text}` is not a selector: {problem}"))?;
        if parser.at < text.len() {
            return Err(format!("`{text}` is not a selector: `{}` is left", &text[parser.at..]));
        }
        Ok(selector)
    }

    /// Returns the numbers of the elements that it selects, in order.
    ///
    /// # Errors
    /// It takes too many steps.
    pub fn find(&self, document: &Document, steps: &Steps) -> Result<Vec<u32>, Fault> {
        let search = Search { document, steps };
        let mut found = Vec::new();
        for (number, element) in document.elements() {
            if search.selects(self, number, element) {
                found.push(number);
            }
            steps.check()?;
            if found.len() >= MOST_FOUND {
                break;
            }
        }
        Ok(found)
    }
}

/// A search in a document.
struct Search<'d> {
    document: &'d Document,
    steps: &'d Steps,
}

impl Search<'_> {
    fn selects(&self, selector: &Selector, number: u32, element: &Element) -> bool {
        selector.0.iter().any(|chain| self.matches(&chain.0, number, element))
    }

    /// Whether a chain ends at an element; its first relation is that to this element.
    fn matches(&self, chain: &[(Compound, Relation)], number: u32, element: &Element) -> bool {
        let Some(((compound, _), rest)) = chain.split_first() else { return true };
        if self.steps.are_over() || !self.is(compound, number, element) {
            return false;
        }
        let Some((_, relation)) = rest.first() else { return true };
        let next = |element: &Element| match relation {
            Relation::Parent | Relation::Ancestor => element.parent,
            _ => element.previous,
        };
        let mut other = next(element);
        while let Some((number, element)) = other.and_then(|other| Some((other, self.document.element(other)?))) {
            self.steps.add(1);
            if self.matches(rest, number, element) {
                return true;
            }
            if matches!(relation, Relation::Parent | Relation::Previous) {
                return false;
            }
            other = next(element);
        }
        false
    }

    fn is(&self, compound: &Compound, number: u32, element: &Element) -> bool {
        self.steps.add(1);
        compound.0.iter().all(|simple| match simple {
            Simple::Type(name) => element.name == *name,
            Simple::Id(id) => element.attribute("id") == Some(id.as_str()),
            Simple::Class(class) => {
                self.attribute(element, "class").is_some_and(|own| own.split_ascii_whitespace().any(|one| one == class))
            }
            Simple::Attribute(name, how, expected, ignores_case) => {
                self.attribute(element, name).is_some_and(|own| compares(own, *how, expected, *ignores_case))
            }
            Simple::Nth(step, offset, by_type) => {
                let place = if *by_type { self.place_by_type(element) } else { i64::from(element.place) };
                let past = place - offset;
                if *step == 0 {
                    past == 0
                } else {
                    past % step == 0 && past / step >= 0
                }
            }
            Simple::LastChild => !element.is_followed,
            Simple::Empty => self.document.content(number).is_empty(),
            Simple::Root => element.parent.is_none(),
            Simple::Not(selector) => !self.selects(selector, number, element),
            // After too many steps `find` fails, whatever this says.
            Simple::Contains(text) => {
                self.document.text(number, self.steps).is_ok_and(|own| own.to_lowercase().contains(text))
            }
        })
    }

    /// The value of an attribute, which is going to be read.
    fn attribute<'e>(&self, element: &'e Element, name: &str) -> Option<&'e str> {
        element.attribute(name).inspect(|value| self.steps.add_text(value))
    }

    fn place_by_type(&self, element: &Element) -> i64 {
        let (mut place, mut previous) = (1, element.previous);
        while let Some(other) = previous.and_then(|previous| self.document.element(previous)) {
            self.steps.add(1);
            place += i64::from(other.name == element.name);
            previous = other.previous;
        }
        place
    }
}

fn compares(own: &str, how: char, expected: &str, ignores_case: bool) -> bool {
    let lowered;
    let own = if ignores_case {
        lowered = own.to_ascii_lowercase();
        &lowered
    } else {
        own
    };
    match how {
        ' ' => true,
        '=' => own == expected,
        '~' => own.split_ascii_whitespace().any(|one| one == expected),
        '|' => own.strip_prefix(expected).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')),
        '^' => !expected.is_empty() && own.starts_with(expected),
        '$' => !expected.is_empty() && own.ends_with(expected),
        '!' => own != expected,
        _ => !expected.is_empty() && own.contains(expected),
    }
}

/// Reads a selector.
struct Parser<'t> {
    text: &'t str,
    at: usize,
    parts: usize,
}

impl Parser<'_> {
    fn list(&mut self) -> Result<Selector, String> {
        let mut alternatives = vec![self.chain()?];
        while self.take(',') {
            alternatives.push(self.chain()?);
        }
        Ok(Selector(alternatives))
    }

    fn chain(&mut self) -> Result<Chain, String> {
        self.skip_spaces();
        let mut chain = vec![(self.compound()?, Relation::Itself)];
        loop {
            let spaced = self.skip_spaces();
            let relation = match self.peek() {
                None | Some(',' | ')') => break,
                Some('>') => Relation::Parent,
                Some('+') => Relation::Previous,
                Some('~') => Relation::Before,
                Some(_) if spaced => Relation::Ancestor,
                Some(other) => return Err(format!("`{other}` is out of place")),
            };
            if relation != Relation::Ancestor {
                self.at += 1;
                self.skip_spaces();
            }
            // From right to left: the relation stands with the compound that is looked for.
            if let Some(last) = chain.last_mut() {
                last.1 = relation;
            }
            chain.push((self.compound()?, Relation::Itself));
        }
        chain.reverse();
        Ok(Chain(chain))
    }

    fn compound(&mut self) -> Result<Compound, String> {
        let mut parts = Vec::new();
        while let Some(next) = self.peek() {
            self.parts += 1;
            if self.parts > MOST_PARTS {
                return Err(format!("it has more than {MOST_PARTS} parts"));
            }
            match next {
                '*' => {
                    self.at += 1;
                    // It restricts nothing.
                    if parts.is_empty() {
                        parts.push(Simple::Not(Selector(Vec::new())));
                    }
                }
                '#' => {
                    self.at += 1;
                    parts.push(Simple::Id(self.name()?));
                }
                '.' => {
                    self.at += 1;
                    parts.push(Simple::Class(self.name()?));
                }
                '[' => parts.push(self.attribute()?),
                ':' => parts.push(self.pseudo_class()?),
                other if is_name(other) && parts.is_empty() => {
                    parts.push(Simple::Type(self.name()?.to_ascii_lowercase()));
                }
                _ => break,
            }
        }
        if parts.is_empty() {
            return Err("a name, `*`, `#`, `.`, `[` or `:` is missing".to_owned());
        }
        Ok(Compound(parts))
    }

    fn attribute(&mut self) -> Result<Simple, String> {
        self.at += 1;
        self.skip_spaces();
        let name = self.name()?.to_ascii_lowercase();
        self.skip_spaces();
        if self.take(']') {
            return Ok(Simple::Attribute(name, ' ', String::new(), false));
        }
        let how = self.next().unwrap_or(' ');
        if !"=~|^$*!".contains(how) || (how != '=' && !self.take('=')) {
            return Err(format!("`{how}` does not compare an attribute"));
        }
        self.skip_spaces();
        let value = match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote)?,
            _ => self.name()?,
        };
        self.skip_spaces();
        let ignores_case = self.take('i') || self.take('I');
        self.skip_spaces();
        if !self.take(']') {
            return Err("`]` is missing".to_owned());
        }
        let value = if ignores_case { value.to_ascii_lowercase() } else { value };
        Ok(Simple::Attribute(name, how, value, ignores_case))
    }

    fn pseudo_class(&mut self) -> Result<Simple, String> {
        self.at += 1;
        let name = self.name()?.to_ascii_lowercase();
        if !self.take('(') {
            return match name.as_str() {
                "first-child" => Ok(Simple::Nth(0, 1, false)),
                "first-of-type" => Ok(Simple::Nth(0, 1, true)),
                "last-child" => Ok(Simple::LastChild),
                "empty" => Ok(Simple::Empty),
                "root" => Ok(Simple::Root),
                _ => Err(format!("`:{name}` cannot be executed")),
            };
        }
        self.skip_spaces();
        let simple = if name == "not" {
            Simple::Not(self.list()?)
        } else {
            let end = self.text[self.at..].find(')').ok_or("`)` is missing")?;
            let inner = self.text[self.at..self.at + end].trim();
            self.at += end;
            let number = || inner.parse::<i64>().map_err(|_| format!("`{inner}` is not a number"));
            match name.as_str() {
                "nth-child" => nth(inner, false)?,
                "nth-of-type" => nth(inner, true)?,
                "eq" => Simple::Nth(0, number()?.clamp(-1, 1_000_000_000) + 1, false),
                "contains" => Simple::Contains(inner.trim_matches(['"', '\'']).to_lowercase()),
                _ => return Err(format!("`:{name}()` cannot be executed")),
            }
        };
        self.skip_spaces();
        if self.take(')') {
            Ok(simple)
        } else {
            Err("`)` is missing".to_owned())
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        self.at += 1;
        let end = self.text[self.at..].find(quote).ok_or("a quotation mark is missing")?;
        let value = self.text[self.at..self.at + end].to_owned();
        self.at += end + 1;
        Ok(value)
    }

    fn name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        while let Some(next) = self.peek() {
            if next == '\\' {
                self.at += 1;
                name.extend(self.next());
            } else if is_name(next) {
                name.extend(self.next());
            } else {
                break;
            }
        }
        if name.is_empty() {
            Err("a name is missing".to_owned())
        } else {
            Ok(name)
        }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        self.at += if is_next { expected.len_utf8() } else { 0 };
        is_next
    }

    fn skip_spaces(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let spaces = rest.len() - rest.trim_start().len();
        self.at += spaces;
        spaces > 0
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '\\') || !character.is_ascii()
}

/// Reads `odd`, `even`, `3`, `2n` or `2n+1`.
fn nth(text: &str, by_type: bool) -> Result<Simple, String> {
    let compact: String = text.to_ascii_lowercase().split_whitespace().collect();
    let wrong = || format!("`{text}` is not a place, as in 3, odd or 2n+1");
    let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
    let (step, offset) = match compact.as_str() {
        "odd" => (2, 1),
        "even" => (2, 0),
        other => match other.split_once('n') {
            None => (0, number(other)?),
            Some((step, offset)) => {
                let step = match step {
                    "" | "+" => 1,
                    "-" => -1,
                    step => number(step)?,
                };
                (step, if offset.is_empty() { 0 } else { number(offset)? })
            }
        },
    };
    let is_small = |number: i64| number.abs() <= 1_000_000_000;
    if is_small(step) && is_small(offset) {
        Ok(Simple::Nth(step, offset, by_type))
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, Selector, Steps};
    use crate::browser::html::steps::{BYTES_PER_STEP, MOST_STEPS};

    const PAGE: &str = "<html><body id=top><div class='a b'><p>1</p><p lang=en-GB>2</p><span>3</span></div>\
        <form action=/x><input name=csrf value=t0ken type=hidden><input name=q></form><div><p>4</p></div></body></html>";

    fn selected(selector: &str) -> String {
        let (document, steps) = (Document::read(PAGE), Steps::default());
        let found = Selector::parse(selector).unwrap().find(&document, &steps).unwrap();
        let show = |number| match document.element(number).unwrap() {
            one if one.name == "input" => one.attribute("name").unwrap().to_owned(),
            one if one.name == "p" || one.name == "span" => document.text(number, &steps).unwrap(),
            one => one.name.clone(),
        };
        found.into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn selectors_find_elements() {
        for (selector, expected) in [
            ("p", "1 2 4"),
            ("P", "1 2 4"),
            ("div.a > p", "1 2"),
            ("#top .b p + p", "2"),
            ("p ~ span", "3"),
            ("body p, input[name=q]", "1 2 q 4"),
            ("input[name='csrf'][value]", "csrf"),
            ("input[name^=c], input[value$=ken], [action*=x]", "form csrf"),
            ("[lang|=en]", "2"),
            ("[lang|=EN]", ""),
            ("[lang|=EN i]", "2"),
            ("[lang=\"EN-gb\" i]", "2"),
            ("div > :first-child", "1 4"),
            ("div > *:last-child", "3 4"),
            ("p:nth-child(2)", "2"),
            ("div:first-child > :nth-child(odd)", "1 3"),
            ("p:nth-of-type(2n)", "2"),
            ("div p:not(.x):not(:first-child)", "2"),
            ("p:contains(4)", "4"),
            ("p:eq(0)", "1 4"),
            ("div div", ""),
            ("div > p span", ""),
        ] {
            assert_eq!(selected(selector), expected, "{selector}");
        }
    }

    #[test]
    fn others_are_refused() {
        for selector in
            ["", ">", "p >", "p:hover", "p::before", "a[", "a[b", "a[b=", "p:nth-child(x)", "a,,b", "a)", "p:not(a"]
        {
            assert!(Selector::parse(selector).is_err(), "{selector}");
        }
        let long = ".a".repeat(200);
        assert!(Selector::parse(&long).is_err());
    }

    #[test]
    fn slow_selector_ends() {
        let document = Document::read(&"<div>".repeat(250));
        let selector = Selector::parse(&format!("p {}", "div ".repeat(30))).unwrap();
        assert_eq!(selector.find(&document, &Steps::default()).unwrap_err().cause, "selector_too_slow");
    }

    /// A text in the innermost of nested elements would be read once for each of them.
    #[test]
    fn steps_count_the_texts_that_a_selector_reads() {
        let leaf = "x".repeat(1 << 20);
        let (document, steps) = (Document::read(&("<div>".repeat(250) + &leaf)), Steps::default());
        let found = Selector::parse("div:contains(no)").unwrap().find(&document, &steps);
        assert_eq!(found.unwrap_err().cause, "selector_too_slow");
        // No text was copied after the last step that is allowed.
        assert!(steps.count() <= MOST_STEPS + (leaf.len() / BYTES_PER_STEP) as u64 + 250, "{}", steps.count());
        let document = Document::read(&format!("<div class='{leaf}' title='{leaf}'>{}", "<b>x</b>".repeat(200)));
        for selector in ["[title*=no i] b", ".no b"] {
            let found = Selector::parse(selector).unwrap().find(&document, &Steps::default());
            assert_eq!(found.unwrap_err().cause, "selector_too_slow", "{selector}");
        }
    }
}
