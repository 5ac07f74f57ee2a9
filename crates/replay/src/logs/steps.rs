//! A format of literals and variables, compiled to a sequence of steps: a field, and the literal that ends it. Lines are
//! taken apart by these alone, into ranges, without an allocation. Owns how a field ends; knows no server's language.

use memchr::memchr;

use super::meaning::{Meaning, Slot, Variable};
use super::times::TimePattern;
use crate::recorded::Cause;

/// A part of a format, as the languages of formats are read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Literal(Vec<u8>),
    Variable(Variable),
}

/// A range of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Span {
    /// The range of these positions; lines are far shorter than 4 GiB.
    pub(super) fn new(from: usize, to: usize) -> Self {
        Self { from: from as u32, to: to as u32 }
    }
}

/// A compiled format.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// The literal before the first field.
    start: Vec<u8>,
    steps: Vec<Step>,
    /// Whether a line may go on, after a space.
    is_open: bool,
}

#[derive(Clone, Debug)]
struct Step {
    slot: Option<Slot>,
    extent: Extent,
    /// What follows the field; empty at the format's end.
    literal: Vec<u8>,
}

/// How a field ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// At its literal.
    Literal,
    /// At its literal, which begins with a quote that no backslash stands before.
    Quote,
    /// After this many bytes.
    Fixed(usize),
    /// At its literal that is no part of a list of upstreams.
    List,
    /// At its literal after `HTTP/`: it has spaces.
    Request,
    /// Before a `/` or a space, which belongs to the next field.
    Slash,
    /// In braces, or not there at all.
    Braces,
    /// At a space or the line's end: the last field of a format whose lines may go on.
    Word,
}

impl Steps {
    /// Compiles a format; `is_open` if its lines may have more fields, which are not read.
    ///
    /// # Errors
    /// Which fields have nothing between them.
    pub(super) fn compile(tokens: Vec<Token>, is_open: bool, meaning: &mut Meaning) -> Result<Self, String> {
        let mut tokens = merge(tokens).into_iter().peekable();
        let start = match tokens.peek() {
            Some(Token::Literal(_)) => take_literal(&mut tokens),
            _ => Vec::new(),
        };
        let mut steps: Vec<Step> = Vec::new();
        while let Some(Token::Variable(variable)) = tokens.next() {
            let literal = take_literal(&mut tokens);
            let next = match tokens.peek() {
                Some(Token::Variable(next)) => Some(next),
                _ => None,
            };
            let is_last = literal.is_empty() && next.is_none();
            let extent = if is_open && is_last { Extent::Word } else { choose_extent(&variable, &literal, next)? };
            steps.push(Step { slot: meaning.add(variable), extent, literal });
        }
        Ok(Self { start, steps, is_open })
    }

    /// Takes a line apart.
    ///
    /// # Errors
    /// Why it does not have the format.
    pub(super) fn parse(&self, line: &[u8], spans: &mut [Span]) -> Result<(), Cause> {
        if !line.starts_with(&self.start) {
            return Err(Cause::Malformed);
        }
        let mut at = self.start.len();
        for step in &self.steps {
            let (span, after) = step.find(line, at)?;
            if let Some(slot) = step.slot {
                spans[usize::from(slot)] = span;
            }
            at = after;
        }
        let rest = &line[at..];
        if rest.trim_ascii().is_empty() || self.is_open && matches!(rest[0], b' ' | b',' | b'\t') {
            Ok(())
        } else {
            Err(Cause::Malformed)
        }
    }
}

impl Step {
    /// The range of the field that begins here, and where the next one does.
    #[inline]
    fn find(&self, line: &[u8], at: usize) -> Result<(Span, usize), Cause> {
        let literal = self.literal.as_slice();
        let end = match self.extent {
            Extent::Literal if literal.is_empty() => Some(line.len()),
            Extent::Literal => find_literal(line, at, literal),
            Extent::Quote => Some(find_quoted(line, at, literal)?),
            Extent::Fixed(width) => Some(at + width).filter(|end| has_literal(line, *end, literal)),
            Extent::List => find_after_list(line, at, literal),
            Extent::Request => {
                let version = memchr::memmem::find(&line[at..], b" HTTP/").map_or(at, |found| at + found + 6);
                if literal.is_empty() {
                    Some(line.len())
                } else {
                    find_literal(line, version, literal)
                }
            }
            Extent::Slash => {
                line[at..].iter().position(|byte| matches!(byte, b'/' | b' ' | b'"')).map(|found| at + found)
            }
            Extent::Word => Some(find_byte(b' ', &line[at..]).map_or(line.len(), |found| at + found)),
            Extent::Braces => return self.find_braces(line, at),
        };
        let end = end.ok_or(Cause::Malformed)?;
        Ok((Span::new(at, end), end + literal.len()))
    }

    fn find_braces(&self, line: &[u8], at: usize) -> Result<(Span, usize), Cause> {
        if line.get(at) != Some(&b'{') {
            // HAProxy writes one space, not two, where nothing is between them.
            let literal = self.literal.strip_prefix(b" ").unwrap_or(&self.literal);
            return if has_literal(line, at, literal) {
                Ok((Span::new(at, at), at + literal.len()))
            } else {
                Err(Cause::Malformed)
            };
        }
        let end = memchr(b'}', &line[at..]).map(|found| at + found).ok_or(Cause::CutOff)?;
        if has_literal(line, end + 1, &self.literal) {
            Ok((Span::new(at + 1, end), end + 1 + self.literal.len()))
        } else {
            Err(Cause::Malformed)
        }
    }
}

fn has_literal(line: &[u8], at: usize, literal: &[u8]) -> bool {
    line.get(at..).is_some_and(|rest| rest.starts_with(literal))
}

#[inline]
fn find_literal(line: &[u8], from: usize, literal: &[u8]) -> Option<usize> {
    let mut at = from;
    loop {
        at += find_byte(literal[0], line.get(at..)?)?;
        if literal.len() == 1 || line[at..].starts_with(literal) {
            return Some(at);
        }
        at += 1;
    }
}

/// The closing quote: nginx writes a quote and a backslash of a value as `\xHH`, Apache a backslash before each.
#[inline]
fn find_quoted(line: &[u8], from: usize, literal: &[u8]) -> Result<usize, Cause> {
    let (mut at, mut missing) = (from, Cause::CutOff);
    loop {
        at += line.get(at..).and_then(|rest| find_byte(b'"', rest)).ok_or(missing)?;
        let escapes = line[from..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            if line[at..].starts_with(literal) {
                return Ok(at);
            }
            // Some servers do not escape quotes.
            missing = Cause::Malformed;
        }
        at += 1;
    }
}

/// The first of a byte: fields are short, so that a few words are compared before memchr is called.
#[inline]
fn find_byte(byte: u8, bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let pattern = ONES * u64::from(byte);
    let mut at = 0;
    while at < 24 {
        let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk) else { break };
        let word = u64::from_le_bytes(*chunk) ^ pattern;
        // The lowest byte that is marked is a zero of `word`; those above it may be marked wrongly.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr(byte, &bytes[at..]).map(|found| at + found)
}

/// Past `0.004, 0.010 : 0.2`.
fn find_after_list(line: &[u8], from: usize, literal: &[u8]) -> Option<usize> {
    if literal.is_empty() {
        return Some(line.len());
    }
    let mut at = from;
    loop {
        at = find_literal(line, at, literal)?;
        let (before, after) = (&line[from..at], &line[at..]);
        let is_inside = before.ends_with(b",") || before.ends_with(b" :") || after.starts_with(b" : ");
        if !(literal[0] == b' ' && is_inside) {
            return Some(at);
        }
        at += 1;
    }
}

fn choose_extent(variable: &Variable, literal: &[u8], next: Option<&Variable>) -> Result<Extent, String> {
    if let Variable::Captures(_) = variable {
        return Ok(Extent::Braces);
    }
    if let Variable::Time { pattern, .. } = variable {
        if let Some(width) = pattern.width() {
            return Ok(Extent::Fixed(width));
        }
    }
    if !literal.is_empty() || next.is_none() {
        return Ok(match variable {
            Variable::List => Extent::List,
            Variable::Request if literal.first() != Some(&b'"') => Extent::Request,
            _ if literal.first() == Some(&b'"') => Extent::Quote,
            _ => Extent::Literal,
        });
    }
    match next {
        Some(Variable::Target | Variable::DashedTarget | Variable::Path) => Ok(Extent::Slash),
        _ => Err(format!("nothing is between {} and the variable after it", describe(variable))),
    }
}

/// A variable in words, for an error.
fn describe(variable: &Variable) -> String {
    match variable {
        Variable::Skip => "a variable that is not needed".to_owned(),
        Variable::Header(name) => format!("the field {name}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn take_literal(tokens: &mut std::iter::Peekable<impl Iterator<Item = Token>>) -> Vec<u8> {
    match tokens.next_if(|token| matches!(token, Token::Literal(_))) {
        Some(Token::Literal(literal)) => literal,
        _ => Vec::new(),
    }
}

/// Joins what one field is, though the format writes it as several: a URL, a path and its query, an address and its
/// port; and literals side by side.
pub(super) fn merge(tokens: Vec<Token>) -> Vec<Token> {
    let mut merged: Vec<Token> = Vec::with_capacity(tokens.len());
    for token in tokens {
        match (token, merged.last_mut()) {
            (Token::Literal(more), Some(Token::Literal(literal))) => literal.extend(more),
            (Token::Literal(literal), _) if literal.is_empty() => {}
            (token, _) => merged.push(token),
        }
        while merge_last(&mut merged) {}
    }
    merged
}

/// Joins the last tokens, if they are parts of one field.
fn merge_last(tokens: &mut Vec<Token>) -> bool {
    use Token::Variable as V;
    use Variable::{
        Address, AddressPort, DashedTarget, Host, HostTarget, Path, Port, Query, QueryMark, QueryString, Scheme, Skip,
        Target,
    };
    let is = |token: &Token, text: &[u8]| matches!(token, Token::Literal(literal) if literal == text);
    let (count, joined) = match tokens.as_slice() {
        [.., V(Scheme), mark, V(Host), V(Target | Path)] if is(mark, b"://") => (4, Target),
        [.., V(Scheme), mark, V(Host), colon, V(Port | Skip), V(Target | Path)]
            if is(mark, b"://") && is(colon, b":") =>
        {
            (6, Target)
        }
        [.., V(Scheme), mark, V(HostTarget)] if is(mark, b"://") => (3, Target),
        [.., V(Path), V(QueryMark), V(Query)] => (3, DashedTarget),
        [.., V(Path), question, V(Query)] if is(question, b"?") => (3, DashedTarget),
        [.., V(Path), V(QueryString)] => (2, Target),
        [.., V(QueryMark), V(Query)] => (2, Query),
        [.., V(Address), colon, V(Port)] if is(colon, b":") => (3, AddressPort),
        [.., V(Host), V(Target)] => (2, HostTarget),
        _ => return false,
    };
    tokens.truncate(tokens.len() - count);
    tokens.push(V(joined));
    true
}

/// The decimals of a second that a format writes after a time of whole seconds.
pub(super) fn time_token(pattern: TimePattern, is_end: bool) -> Token {
    Token::Variable(Variable::time(pattern, is_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Token {
        Token::Literal(text.as_bytes().to_vec())
    }

    fn parse<'l>(tokens: Vec<Token>, line: &'l str, spans: &mut [Span; 8]) -> Result<Vec<&'l str>, Cause> {
        let mut meaning = Meaning::default();
        let steps = Steps::compile(tokens, false, &mut meaning).expect("it compiles");
        steps.parse(line.as_bytes(), spans)?;
        Ok(spans[..meaning.slots()].iter().map(|span| &line[span.from as usize..span.to as usize]).collect())
    }

    #[test]
    fn fields_end_at_their_literals() {
        let mut spans = [Span::default(); 8];
        let quoted = || vec![literal("\""), V(Variable::Request), literal("\" "), V(Variable::Status)];
        use Token::Variable as V;
        assert_eq!(parse(quoted(), r#""a \" b" 200"#, &mut spans), Ok(vec![r#"a \" b"#, "200"]));
        assert_eq!(parse(quoted(), r#""a \\" 200"#, &mut spans), Ok(vec![r"a \\", "200"]));
        assert_eq!(parse(quoted(), r#""a b"#, &mut spans), Err(Cause::CutOff));
        assert_eq!(parse(quoted(), r#""a"b" 200"#, &mut spans), Ok(vec![r#"a"b"#, "200"]));
        assert_eq!(parse(quoted(), r#""a"200"#, &mut spans), Err(Cause::Malformed));
        let list = || vec![V(Variable::List), literal(" "), V(Variable::Status)];
        for upstreams in ["0.004, 0.010 : 0.2", "-", "0.1", "-, 0.2", "- : 0.1"] {
            assert_eq!(parse(list(), &format!("{upstreams} 200"), &mut spans), Ok(vec!["200"]), "{upstreams}");
        }
        let bare = || vec![V(Variable::Request), literal(" "), V(Variable::Status)];
        assert_eq!(parse(bare(), "GET /a HTTP/1.1 200", &mut spans), Ok(vec!["GET /a HTTP/1.1", "200"]));
    }

    #[test]
    fn bytes_are_found_at_every_position() {
        for length in 0..50 {
            for place in 0..length {
                let mut bytes = vec![b'!'; length];
                bytes[place] = b' ';
                assert_eq!(find_byte(b' ', &bytes), Some(place));
                assert_eq!(find_byte(b'"', &bytes), None);
            }
        }
    }

    #[test]
    fn parts_of_one_field_are_one() {
        use Token::Variable as V;
        let url = vec![V(Variable::Scheme), literal("://"), V(Variable::Host), V(Variable::Target)];
        assert_eq!(merge(url), [V(Variable::Target)]);
        let parts = vec![V(Variable::Path), V(Variable::QueryMark), V(Variable::Query), literal(" "), literal("x")];
        assert_eq!(merge(parts), [V(Variable::DashedTarget), literal(" x")]);
        assert_eq!(merge(vec![V(Variable::Path), V(Variable::QueryString)]), [V(Variable::Target)]);
        assert_eq!(merge(vec![V(Variable::Host), V(Variable::Target)]), [V(Variable::HostTarget)]);
        let address = vec![V(Variable::Address), literal(":"), V(Variable::Port)];
        assert_eq!(merge(address), [V(Variable::AddressPort)]);
        let side_by_side = vec![V(Variable::Status), V(Variable::Method)];
        assert!(Steps::compile(side_by_side, false, &mut Meaning::default()).is_err());
    }
}
