//! Apache's language of log formats: `%h %l %u %t "%r" %>s %b`, as the text alone or as the whole `LogFormat` directive.

use super::meaning::Variable;
use super::steps::{time_token, Token};
use super::times::{parse_strftime, TimePattern, MS_NS, SECOND_NS, US_NS};

/// Reads a format.
///
/// # Errors
/// What it has that is no format.
pub(super) fn read_format(text: &str) -> Result<Vec<Token>, String> {
    let text = strip_directive(text)?;
    let mut tokens = Vec::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            tokens.push(Token::Literal(character.to_string().into_bytes()));
            continue;
        }
        // %>s and %!200,304{User-agent}i: conditions leave `-` where they do not hold.
        let condition = rest.as_str().len()
            - rest
                .as_str()
                .trim_start_matches(['<', '>', '!', ',', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
                .len();
        rest = rest.as_str()[condition..].chars();
        let argument = if rest.as_str().starts_with('{') {
            let (argument, after) = rest.as_str()[1..].split_once('}').ok_or("a directive `%{` without its `}`")?;
            rest = after.chars();
            Some(argument)
        } else {
            None
        };
        let name = rest.next().ok_or("a `%` at the format's end")?;
        if name == '^' {
            // Directives of two letters: of trailers, and of the first byte's time.
            rest.next();
            rest.next();
        }
        push_directive(name, argument, &mut tokens)?;
    }
    Ok(tokens)
}

/// The text of `LogFormat "..." name`, without its escapes.
fn strip_directive(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (text, is_quoted) = match text.strip_prefix("LogFormat").map(str::trim_start) {
        Some(rest) => (rest, rest.starts_with('"')),
        None => (text, false),
    };
    let mut plain = String::new();
    let mut characters = text.chars().skip(usize::from(is_quoted));
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted => return Ok(plain),
            '\\' => match characters.next() {
                Some('t') => plain.push('\t'),
                Some('n') | None => {}
                Some(other) => plain.push(other),
            },
            other => plain.push(other),
        }
    }
    if is_quoted {
        Err("the directive's text does not end with a quote".to_owned())
    } else {
        Ok(plain)
    }
}

fn push_directive(name: char, argument: Option<&str>, tokens: &mut Vec<Token>) -> Result<(), String> {
    let variable = match (name, argument) {
        ('%', _) => {
            tokens.push(Token::Literal(b"%".to_vec()));
            return Ok(());
        }
        ('t', None) => {
            // Not `[...]` as one field: it has a space.
            tokens.push(Token::Literal(b"[".to_vec()));
            tokens.push(time_token(TimePattern::Clf, false));
            tokens.push(Token::Literal(b"]".to_vec()));
            return Ok(());
        }
        ('t', Some(format)) => {
            let (format, is_end) = match format.split_once(':') {
                Some(("begin", format)) => (format, false),
                Some(("end", format)) => (format, true),
                _ => (format, false),
            };
            tokens.push(time_token(read_time(format)?, is_end));
            return Ok(());
        }
        ('q', _) => Variable::QueryString,
        ('h', _) | ('a', None) => Variable::Address,
        ('p', Some("remote")) => Variable::Port,
        ('u', _) => Variable::User,
        ('r', _) => Variable::Request,
        ('m', _) => Variable::Method,
        ('U', _) => Variable::Path,
        ('s', _) => Variable::Status,
        ('b' | 'B', _) => Variable::BodyBytes,
        ('D', _) | ('T', Some("us")) => Variable::Duration { unit_ns: US_NS },
        ('T', Some("ms")) => Variable::Duration { unit_ns: MS_NS },
        ('T', _) => Variable::Duration { unit_ns: SECOND_NS },
        ('v' | 'V', _) => Variable::ServerName,
        ('i', Some(field)) => Variable::header(field),
        ('C', Some(cookie)) => Variable::Cookie(cookie.to_owned()),
        (other, _) if other.is_ascii_alphabetic() || other == '^' => Variable::Skip,
        (other, _) => return Err(format!("`%{other}` is no directive of Apache")),
    };
    tokens.push(Token::Variable(variable));
    Ok(())
}

fn read_time(format: &str) -> Result<TimePattern, String> {
    Ok(match format {
        "sec" => TimePattern::Number { unit_ns: SECOND_NS },
        "msec" => TimePattern::Number { unit_ns: MS_NS },
        "usec" => TimePattern::Number { unit_ns: US_NS },
        "msec_frac" => TimePattern::Fraction { digits: 3 },
        "usec_frac" => TimePattern::Fraction { digits: 6 },
        "" => TimePattern::Clf,
        _ => parse_strftime(format)?,
    })
}
