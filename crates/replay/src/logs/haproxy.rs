//! HAProxy's language of log formats: `%ci:%cp [%tr] ... %{+Q}r`, and that of 3.0 whose lines are JSON objects,
//! `%{+json}o %(client)ci ...`. `HTTPLOG` is what `option httplog` and `option httpslog` write.

use super::json::Path;
use super::meaning::Variable;
use super::steps::Token;
use super::times::{TimePattern, MS_NS, SECOND_NS};

/// `option httplog`; `option httpslog` appends further fields.
pub(super) const HTTPLOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc \
                                  %sq/%bq %hr %hs %{+Q}r";

/// One item of a format.
struct Item<'t> {
    name: Option<&'t str>,
    alias: &'t str,
    is_quoted: bool,
}

/// Whether a format has directives that no other server has.
pub(super) fn is_format(text: &str) -> bool {
    ["%ci", "%[", "%{+", "%tr", "%HM", "%HU", "%ST", "%ft"].iter().any(|alias| text.contains(alias))
}

/// Reads a format; `captures` are the names of the captured fields.
///
/// # Errors
/// What it has that is no format.
pub(super) fn read_format(text: &str, captures: &[String]) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut was_number = false;
    read_items(text, |literal, item| {
        let is_plain = item.as_ref().is_some_and(|item| is_number(item));
        if is_plain && literal == "/" && was_number {
            // `1/1/0/0/0` as one field that is not needed: none of its parts has a space.
            return;
        }
        was_number = is_plain;
        tokens.push(Token::Literal(literal.as_bytes().to_vec()));
        let Some(item) = item else { return };
        let variable = match item.alias {
            "hr" => Variable::Captures(captures.to_vec()),
            // In braces too, but not the request's.
            "hs" => Variable::Captures(Vec::new()),
            alias => read_alias(alias),
        };
        let quote = || Token::Literal(b"\"".to_vec());
        tokens.extend(item.is_quoted.then(quote));
        tokens.push(Token::Variable(variable));
        tokens.extend(item.is_quoted.then(quote));
    })?;
    Ok(tokens)
}

/// Reads a format whose lines are JSON objects: the members by name. `None` if it is another one.
///
/// # Errors
/// What it has that is no format.
pub(super) fn read_json_format(text: &str) -> Option<Result<Vec<(Path, Variable)>, String>> {
    let text = text.trim();
    if !text.starts_with("%{+json") {
        return None;
    }
    let mut members: Vec<(Path, Variable)> = Vec::new();
    let read = read_items(text, |_, item| {
        if let Some(Item { name: Some(name), alias, .. }) = item {
            members.push((vec![name.as_bytes().to_vec()], read_alias(alias)));
        }
    });
    Some(read.map(|()| members))
}

/// Passes each item with the literal before it, and at last the literal behind them.
fn read_items<'t>(text: &'t str, mut take: impl FnMut(&str, Option<Item<'t>>)) -> Result<(), String> {
    let mut rest = text.trim();
    let mut are_all_quoted = false;
    while let Some(percent) = rest.find('%') {
        let literal = rest[..percent].replace('\\', "");
        let mut after = &rest[percent + 1..];
        if let Some(behind) = after.strip_prefix('%') {
            take(&format!("{literal}%"), None);
            rest = behind;
            continue;
        }
        let (mut name, mut is_quoted) = (None, are_all_quoted);
        loop {
            if let Some(inner) = after.strip_prefix('(') {
                let (text, behind) = inner.split_once(')').ok_or("a name `%(` without its `)`")?;
                // `%(name:type)`
                name = Some(text.split(':').next().unwrap_or(text));
                after = behind;
            } else if let Some(inner) = after.strip_prefix('{') {
                let (flags, behind) = inner.split_once('}').ok_or("flags `%{` without their `}`")?;
                is_quoted = is_quoted && !flags.contains("-Q") || flags.contains("+Q");
                after = behind;
            } else {
                break;
            }
        }
        let (alias, behind) = split_alias(after)?;
        if alias == "o" {
            are_all_quoted = is_quoted;
            take(&literal, None);
            rest = behind.trim_start();
            continue;
        }
        take(&literal, Some(Item { name, alias, is_quoted }));
        rest = behind;
    }
    take(&rest.replace('\\', ""), None);
    Ok(())
}

/// An alias, or an expression in brackets, and what is behind it.
fn split_alias(text: &str) -> Result<(&str, &str), String> {
    if text.starts_with('[') {
        let mut depth = 0;
        for (at, character) in text.char_indices() {
            depth += i32::from(character == '[') - i32::from(character == ']');
            if depth == 0 {
                return Ok(text.split_at(at + 1));
            }
        }
        return Err("an expression `%[` without its `]`".to_owned());
    }
    let end = text.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(text.len());
    if end == 0 {
        return Err("a `%` without a directive".to_owned());
    }
    Ok(text.split_at(end))
}

/// Whether an item is a number that a replay does not need.
fn is_number(item: &Item<'_>) -> bool {
    !item.is_quoted && ["ac", "fc", "bc", "sc", "rc", "sq", "bq"].contains(&item.alias)
}

/// What an alias is; those that a replay does not need, and unknown ones, are passed over.
pub(super) fn read_alias(alias: &str) -> Variable {
    match alias {
        "ci" => Variable::Address,
        "cp" => Variable::Port,
        "tr" | "t" => Variable::time(TimePattern::Haproxy, false),
        "trl" | "trg" | "T" | "Tl" => Variable::time(TimePattern::Clf, false),
        "Ts" => Variable::time(TimePattern::Number { unit_ns: SECOND_NS }, false),
        "ms" => Variable::time(TimePattern::Fraction { digits: 3 }, false),
        "Tw" | "Tc" | "Tr" => Variable::Latency { unit_ns: MS_NS },
        "Ta" => Variable::Duration { unit_ns: MS_NS },
        "ST" => Variable::Status,
        "CC" => Variable::CookiePair,
        "r" => Variable::Request,
        "HM" => Variable::Method,
        "HU" => Variable::Target,
        "HP" | "HPO" => Variable::Path,
        "HQ" => Variable::QueryString,
        _ => Variable::Skip,
    }
}
