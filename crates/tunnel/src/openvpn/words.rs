//! The words of an option's line, as OpenVPN splits them in profiles and in what a server pushes: quotes, single quotes,
//! backslashes, comments. It knows no option.

/// The longest word that OpenVPN takes, bytes.
pub const LONGEST_WORD: usize = 255;
/// The most words that OpenVPN takes on a line.
pub const MOST_WORDS: usize = 16;

/// A line that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordsError {
    /// A quote that is never closed.
    #[error("a quotation mark ({0}) is not closed")]
    OpenQuote(char),
    /// A backslash before something that needs none.
    #[error(
        "a backslash stands only before a backslash, a double quotation mark or a space: write \\\\ for one backslash"
    )]
    Backslash,
    /// A word that OpenVPN would refuse too.
    #[error("a word of more than {LONGEST_WORD} bytes")]
    LongWord,
    /// Too many words.
    #[error("more than {MOST_WORDS} words")]
    ManyWords,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Between,
    Bare,
    Quoted,
    SingleQuoted,
}

/// The words of a line; none where it is empty or a comment (`#` or `;` where a word would begin).
///
/// # Errors
/// The line is not one that OpenVPN would take.
pub fn words(line: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut state = State::Between;
    let mut escaped = false;
    for letter in line.chars() {
        if !escaped && letter == '\\' && state != State::SingleQuoted {
            escaped = true;
            continue;
        }
        let ends = match state {
            // Between words a backslash changes neither a space nor a comment.
            State::Between if is_space(letter) => {
                escaped = false;
                continue;
            }
            State::Between if matches!(letter, '#' | ';') => return Ok(words),
            State::Between if !escaped && letter == '"' => {
                state = State::Quoted;
                continue;
            }
            State::Between if !escaped && letter == '\'' => {
                state = State::SingleQuoted;
                continue;
            }
            State::Between => {
                state = State::Bare;
                false
            }
            State::Bare => !escaped && is_space(letter),
            State::Quoted => !escaped && letter == '"',
            State::SingleQuoted => letter == '\'',
        };
        if ends {
            state = State::Between;
            finish(&mut words, &mut word)?;
        } else {
            if escaped && !(matches!(letter, '\\' | '"') || is_space(letter)) {
                return Err(WordsError::Backslash);
            }
            word.push(letter);
            if word.len() > LONGEST_WORD {
                return Err(WordsError::LongWord);
            }
        }
        escaped = false;
    }
    match state {
        State::Quoted => Err(WordsError::OpenQuote('"')),
        State::SingleQuoted => Err(WordsError::OpenQuote('\'')),
        State::Bare if escaped => Err(WordsError::Backslash),
        State::Bare => finish(&mut words, &mut word).map(|()| words),
        State::Between => Ok(words),
    }
}

fn finish(words: &mut Vec<String>, word: &mut String) -> Result<(), WordsError> {
    if words.len() == MOST_WORDS {
        return Err(WordsError::ManyWords);
    }
    words.push(std::mem::take(word));
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
    fn lines_are_split_as_openvpn_splits_them() {
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
            assert_eq!(words(line), Ok(expected.iter().map(ToString::to_string).collect()), "{line}");
        }
        assert_eq!(words("a \"b"), Err(WordsError::OpenQuote('"')));
        assert_eq!(words("a 'b"), Err(WordsError::OpenQuote('\'')));
        assert_eq!(words(r"a C:\key"), Err(WordsError::Backslash));
        assert_eq!(words("a b\\"), Err(WordsError::Backslash));
        assert_eq!(words(&"x".repeat(256)), Err(WordsError::LongWord));
        assert_eq!(words(&"x ".repeat(17)), Err(WordsError::ManyWords));
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(given in proptest::collection::vec("[^\u{0}]{0,40}", 0..16)) {
            let line: Vec<String> =
                given.iter().map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))).collect();
            prop_assert_eq!(words(&line.join(" ")), Ok(given));
        }

        #[test]
        fn any_text_is_split_or_refused(line in any::<String>()) {
            let _ = words(&line).map(|found| assert!(found.len() <= MOST_WORDS));
        }
    }
}
