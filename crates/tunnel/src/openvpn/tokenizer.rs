//! Splits an option's line into words as OpenVPN does in profiles and in pushed options: quotes, single quotes,
//! backslashes, comments. Knows no option.

/// Maximum length of a word in OpenVPN, bytes.
pub const LONGEST_TOKEN: usize = 255;
/// Maximum number of words in a line in OpenVPN.
pub const MAX_TOKENS: usize = 16;

/// Why a line cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizeError {
    /// A quote is not closed.
    #[error("a quotation mark ({0}) is not closed")]
    OpenQuote(char),
    /// A backslash before a character that needs none.
    #[error(
        "a backslash stands only before a backslash, a double quotation mark or a space: write \\\\ for one backslash"
    )]
    Backslash,
    /// A word is too long.
    #[error("a word of more than {LONGEST_TOKEN} bytes")]
    LongToken,
    /// The line has too many words.
    #[error("more than {MAX_TOKENS} words")]
    ManyTokens,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Between,
    Unquoted,
    Quoted,
    SingleQuoted,
}

/// Splits a line into words; empty for an empty line or a comment (`#` or `;` at the start of a word).
///
/// # Errors
/// OpenVPN would refuse the line.
pub fn tokenize(line: &str) -> Result<Vec<String>, TokenizeError> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut state = State::Between;
    let mut escaped = false;
    for letter in line.chars() {
        if !escaped && letter == '\\' && state != State::SingleQuoted {
            escaped = true;
            continue;
        }
        let ends = match state {
            // Between words, a backslash does not escape a space or a comment.
            State::Between if is_space(letter) => {
                escaped = false;
                continue;
            }
            State::Between if matches!(letter, '#' | ';') => return Ok(tokens),
            State::Between if !escaped && letter == '"' => {
                state = State::Quoted;
                continue;
            }
            State::Between if !escaped && letter == '\'' => {
                state = State::SingleQuoted;
                continue;
            }
            State::Between => {
                state = State::Unquoted;
                false
            }
            State::Unquoted => !escaped && is_space(letter),
            State::Quoted => !escaped && letter == '"',
            State::SingleQuoted => letter == '\'',
        };
        if ends {
            state = State::Between;
            finish(&mut tokens, &mut token)?;
        } else {
            if escaped && !(matches!(letter, '\\' | '"') || is_space(letter)) {
                return Err(TokenizeError::Backslash);
            }
            token.push(letter);
            if token.len() > LONGEST_TOKEN {
                return Err(TokenizeError::LongToken);
            }
        }
        escaped = false;
    }
    match state {
        State::Quoted => Err(TokenizeError::OpenQuote('"')),
        State::SingleQuoted => Err(TokenizeError::OpenQuote('\'')),
        State::Unquoted if escaped => Err(TokenizeError::Backslash),
        State::Unquoted => finish(&mut tokens, &mut token).map(|()| tokens),
        State::Between => Ok(tokens),
    }
}

fn finish(tokens: &mut Vec<String>, token: &mut String) -> Result<(), TokenizeError> {
    if tokens.len() == MAX_TOKENS {
        return Err(TokenizeError::ManyTokens);
    }
    tokens.push(std::mem::take(token));
    Ok(())
}

fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_tokenized_as_openvpn_does() {
        for (line, expected) in [
            ("", &[][..]),
            ("   # all of it", &[]),
            (";remote a", &[]),
            ("remote  vpn.example.net\t1194 udp # the first", &["remote", "vpn.example.net", "1194", "udp"]),
            ("verb#3 a;b", &["verb#3", "a;b"]),
            (r#"auth-user-pass "C:\\a b\\c" 'raw \n'"#, &["auth-user-pass", r"C:\a b\c", r"raw \n"]),
            (r#"one\ word a\"b"#, &["one word", "a\"b"]),
            (r#"setenv UV_X """#, &["setenv", "UV_X", ""]),
            ("ca \"it's\" x", &["ca", "it's", "x"]),
            ("one \\# a comment all the same", &["one"]),
            ("one \\ two", &["one", "two"]),
        ] {
            assert_eq!(tokenize(line), Ok(expected.iter().map(ToString::to_string).collect()), "{line}");
        }
        assert_eq!(tokenize("a \"b"), Err(TokenizeError::OpenQuote('"')));
        assert_eq!(tokenize("a 'b"), Err(TokenizeError::OpenQuote('\'')));
        assert_eq!(tokenize(r"a C:\key"), Err(TokenizeError::Backslash));
        assert_eq!(tokenize("a b\\"), Err(TokenizeError::Backslash));
        assert_eq!(tokenize(&"x".repeat(256)), Err(TokenizeError::LongToken));
        assert_eq!(tokenize(&"x ".repeat(17)), Err(TokenizeError::ManyTokens));
    }

    proptest! {
        #[test]
        fn quoted_tokens_round_trip(inputs in proptest::collection::vec("[^\u{0}]{0,40}", 0..16)) {
            let line: Vec<String> =
                inputs.iter().map(|token| format!("\"{}\"", token.replace('\\', "\\\\").replace('"', "\\\""))).collect();
            prop_assert_eq!(tokenize(&line.join(" ")), Ok(inputs));
        }

        #[test]
        fn arbitrary_line_never_panics(line in any::<String>()) {
            let _ = tokenize(&line).map(|tokens| assert!(tokens.len() <= MAX_TOKENS));
        }
    }
}
