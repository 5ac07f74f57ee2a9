//! nginx's language of log formats: `'$remote_addr [$time_local] "$request"'`, as the text alone or as the whole
//! `log_format` directive with its several literals. Other servers' formats are written in it too, with variables of our
//! own: `$skip`, `$client` (address and port), `$start_clf`, `$start_iso`, `$duration_ms`, `$latency_s`.

use super::meaning::Variable;
use super::steps::Token;
use super::times::{TimePattern, MS_NS, SECOND_NS, US_NS};

/// Reads a format.
///
/// # Errors
/// What it has that is no format.
pub(super) fn read_format(text: &str) -> Result<Vec<Token>, String> {
    // With these nginx writes nothing for what is not there, else a `-`.
    let has_dashes = !["escape=json", "escape=none"].iter().any(|escape| text.contains(escape));
    let text = join_literals(text)?;
    let mut tokens = Vec::new();
    let mut rest = text.as_str();
    while let Some(dollar) = rest.find('$') {
        tokens.push(Token::Literal(rest.as_bytes()[..dollar].to_vec()));
        let after = &rest[dollar + 1..];
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        let (name, behind) = if let Some(inner) = after.strip_prefix('{') {
            inner.split_once('}').ok_or("a variable `${` without its `}`")?
        } else {
            after.split_at(after.find(|character| !is_name(character)).unwrap_or(after.len()))
        };
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(format!("`${name}` is no variable of nginx"));
        }
        match read_variable(name) {
            Variable::QueryMark if !has_dashes => {}
            Variable::Query if !has_dashes => tokens.push(Token::Variable(Variable::QueryString)),
            variable => tokens.push(Token::Variable(variable)),
        }
        rest = behind;
    }
    tokens.push(Token::Literal(rest.as_bytes().to_vec()));
    Ok(tokens)
}

/// The text of a directive's literals; a text that is no directive is itself.
pub(super) fn join_literals(text: &str) -> Result<String, String> {
    let text = text.trim();
    let directive = text.strip_prefix("log_format").filter(|rest| rest.starts_with(char::is_whitespace));
    let (mut rest, is_directive) = match directive {
        Some(rest) => (rest.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest), true),
        None => (text, false),
    };
    if !is_directive && !text.starts_with('\'') {
        return Ok(text.to_owned());
    }
    let mut joined = String::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix("escape=") {
            rest = after.trim_start_matches(|character: char| character.is_ascii_alphanumeric());
            continue;
        }
        let Some(quote) = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"')) else { break };
        rest = read_literal(&rest[1..], quote, &mut joined)?;
    }
    match rest.trim() {
        "" | ";" => Ok(joined),
        other => Err(format!("the text {other:?} is in no quotes")),
    }
}

/// The text until the quote; returns what is behind it.
fn read_literal<'t>(text: &'t str, quote: char, joined: &mut String) -> Result<&'t str, String> {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => joined.push('\n'),
                Some((_, 't')) => joined.push('\t'),
                Some((_, 'r')) => joined.push('\r'),
                Some((_, other)) if matches!(other, '\'' | '"' | '\\') => joined.push(other),
                Some((_, other)) => joined.extend(['\\', other]),
                None => break,
            },
            _ if character == quote => return Ok(&text[at + 1..]),
            _ => joined.push(character),
        }
    }
    Err(format!("a text that begins with {quote} does not end"))
}

/// What a variable is; those that a replay does not need, and unknown ones, are passed over.
pub(super) fn read_variable(name: &str) -> Variable {
    let seconds = TimePattern::Number { unit_ns: SECOND_NS };
    match name {
        "remote_addr" => Variable::Address,
        "remote_port" => Variable::Port,
        "client" => Variable::AddressPort,
        "remote_user" => Variable::User,
        "time_local" => Variable::time(TimePattern::Clf, true),
        "time_iso8601" => Variable::time(TimePattern::IsoSeconds, true),
        "msec" => Variable::time(seconds, true),
        "start_clf" => Variable::time(TimePattern::Clf, false),
        "start_iso" => Variable::time(TimePattern::Iso, false),
        "request" => Variable::Request,
        "request_method" => Variable::Method,
        "request_uri" => Variable::Target,
        "uri" | "document_uri" => Variable::Path,
        "args" | "query_string" => Variable::Query,
        "is_args" => Variable::QueryMark,
        "scheme" => Variable::Scheme,
        "host" | "http_host" => Variable::Host,
        "server_name" => Variable::ServerName,
        "status" => Variable::Status,
        "body_bytes_sent" => Variable::BodyBytes,
        "request_time" => Variable::Duration { unit_ns: SECOND_NS },
        "request_time_msec" | "duration_ms" => Variable::Duration { unit_ns: MS_NS },
        "request_time_usec" => Variable::Duration { unit_ns: US_NS },
        "latency_s" => Variable::Latency { unit_ns: SECOND_NS },
        "connection" => Variable::Connection,
        "content_length" => Variable::header("Content-Length"),
        "content_type" => Variable::header("Content-Type"),
        "uid_got" => Variable::Cookie("uid".to_owned()),
        _ => {
            if let Some(field) = name.strip_prefix("http_") {
                Variable::header(&name_field(field))
            } else if let Some(cookie) = name.strip_prefix("cookie_") {
                Variable::Cookie(cookie.to_owned())
            } else if name.starts_with("upstream_") || name == "proxy_add_x_forwarded_for" {
                Variable::List
            } else {
                Variable::Skip
            }
        }
    }
}

/// `x_forwarded_for` as the name of a field: `X-Forwarded-For`.
pub(super) fn name_field(variable: &str) -> String {
    let words = variable.split(['_', '-']).map(|word| {
        let mut characters = word.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(characters).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_a_directive_are_one_text() {
        let text = "log_format main escape=json '$remote_addr - ' \"a\\\"b\"\n  '$request';";
        assert_eq!(join_literals(text).as_deref(), Ok("$remote_addr - a\"b$request"));
        assert_eq!(join_literals("'$a ' '$b'").as_deref(), Ok("$a $b"));
        assert_eq!(join_literals("$a \"$b\"").as_deref(), Ok("$a \"$b\""));
        for wrong in ["log_format main '$a", "log_format main '$a' b;", "'$a"] {
            assert!(join_literals(wrong).is_err(), "{wrong}");
        }
        assert!(read_format("$a $ b").is_err());
        assert!(read_format("${a").is_err());
        assert_eq!(name_field("x_forwarded_for"), "X-Forwarded-For");
    }
}
