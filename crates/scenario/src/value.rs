//! The values of variables and expressions, and how they read as text, number and truth.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use leadline_wire::scenario::Scalar;

/// The value of a variable or an expression. A variable that is not set has `Nothing`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Not set.
    #[default]
    Nothing,
    /// A boolean.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(Arc<str>),
}

impl Value {
    /// Returns the value as text; nothing is empty.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Nothing => Cow::Borrowed(""),
            Self::Boolean(true) => Cow::Borrowed("true"),
            Self::Boolean(false) => Cow::Borrowed("false"),
            Self::Integer(number) => Cow::Owned(number.to_string()),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }

    /// Appends the value as text.
    pub fn append_to(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            other => out.push_str(&other.text()),
        }
    }

    /// Returns the value as a number, if it reads as one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Nothing | Self::Boolean(_) => None,
            Self::Integer(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        }
    }

    /// Returns the value as a whole number, if it reads as one.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
            Self::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// Whether the value is true. False are nothing, `false`, 0, an empty text and the text `false`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Boolean(truth) => *truth,
            Self::Integer(number) => *number != 0,
            Self::Number(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty() && !text.eq_ignore_ascii_case("false"),
        }
    }

    /// Whether the value is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Compares two values: as numbers if both read as numbers, else as texts.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        if let (Some(one), Some(other)) = (self.number(), other.number()) {
            return one.partial_cmp(&other).unwrap_or(Ordering::Equal);
        }
        self.text().cmp(&other.text())
    }
}

impl From<&Scalar> for Value {
    fn from(scalar: &Scalar) -> Self {
        match scalar {
            Scalar::Boolean(truth) => Self::Boolean(*truth),
            Scalar::Integer(number) => Self::Integer(*number),
            Scalar::Number(number) => Self::Number(*number),
            Scalar::Text(text) => Self::Text(text.as_str().into()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Boolean(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_as_numbers_if_both_are_numbers() {
        let text = |text: &str| Value::from(text);
        assert_eq!(text("10").compare(&Value::Integer(9)), Ordering::Greater);
        assert_eq!(text("10").compare(&text("9")), Ordering::Greater);
        assert_eq!(text("10").compare(&text("x9")), Ordering::Less);
        assert_eq!(Value::Number(1.0).compare(&text("1")), Ordering::Equal);
        assert_eq!(Value::Nothing.compare(&text("")), Ordering::Equal);
    }

    #[test]
    fn false_is_what_reads_as_false() {
        for value in [Value::Nothing, false.into(), 0.into(), "".into(), "false".into(), "FALSE".into()] {
            assert!(!value.is_true(), "{value:?}");
        }
        for value in [Value::from(true), 2.into(), "0".into(), "no".into()] {
            assert!(value.is_true(), "{value:?}");
        }
    }
}
