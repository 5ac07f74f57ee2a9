//! The error of a refused profile: the line and the reason.

use std::fmt;

/// Why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError {
    /// Line number, from 1; 0 if something is missing from the whole profile.
    pub line: usize,
    /// What is wrong and what is correct; contains no secret.
    pub message: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => formatter.write_str(&self.message),
            line => write!(formatter, "line {line}: {}", self.message),
        }
    }
}

impl ProfileError {
    pub(super) fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}
