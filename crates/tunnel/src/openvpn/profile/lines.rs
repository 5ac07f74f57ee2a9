//! Splits a profile's text into options with their lines and inline blocks. Knows the syntax of blocks, but no
//! option.

use zeroize::Zeroizing;

use super::error::ProfileError;
use super::option_table::{support, OptionSupport};
use crate::openvpn::tokenizer::tokenize;

/// An option in a profile.
pub(super) struct Directive {
    /// Line number, from 1.
    pub line: usize,
    /// Name and parameters; a block's name without its brackets.
    pub tokens: Vec<String>,
    /// A block's text without its tags.
    pub block: Option<Zeroizing<String>>,
}

impl Directive {
    pub fn name(&self) -> &str {
        &self.tokens[0]
    }

    pub fn parameters(&self) -> Vec<&str> {
        self.tokens[1..].iter().map(String::as_str).collect()
    }

    /// The option's support if no part of the parser reads it. A block counts as one parameter, the name of its file.
    pub fn support(&self) -> OptionSupport {
        support(self.name(), if self.block.is_some() { 1 } else { self.tokens.len() - 1 })
    }
}

/// Splits a text whose first line is `first` into options.
pub(super) fn directives(text: &str, first: usize) -> Result<Vec<Directive>, ProfileError> {
    let mut directives_found = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().zip(first..);
    while let Some((content, line)) = lines.next() {
        let mut tokens = tokenize(content).map_err(|error| ProfileError::at(line, error.to_string()))?;
        let Some(name) = tokens.first_mut() else { continue };
        // OpenVPN accepts the dashes of a command line in a file, too.
        if let Some(stripped) = name.strip_prefix("--").filter(|stripped| !stripped.is_empty()) {
            *name = stripped.to_owned();
        }
        let mut block = None;
        if let Some(stripped) = name.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
            *name = stripped.to_owned();
            if tokens.len() > 1 {
                return Err(ProfileError::at(line, "nothing may follow a block's opening tag"));
            }
            block = Some(block_text(&mut lines, line, &format!("</{}>", tokens[0]))?);
        }
        directives_found.push(Directive { line, tokens, block });
    }
    Ok(directives_found)
}

fn block_text<'t>(
    lines: &mut impl Iterator<Item = (&'t str, usize)>,
    line: usize,
    closing: &str,
) -> Result<Zeroizing<String>, ProfileError> {
    let mut text = Zeroizing::new(String::new());
    for (content, _) in lines {
        if content.trim_start().starts_with(closing) {
            return Ok(text);
        }
        text.push_str(content);
        text.push('\n');
    }
    Err(ProfileError::at(line, format!("the block is not closed: `{closing}` is missing")))
}
