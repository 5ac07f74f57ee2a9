//! Templates and expressions over a user's variables. A value is a text, a number, a boolean or nothing; texts that
//! read as numbers are compared as numbers with numbers.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A text with inserted values: its parts are joined. The syntax of placeholders (`${x}`, `{{x}}`) belongs to each
/// format and does not occur here.
pub type Template = Vec<TemplatePart>;

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TemplatePart {
    /// A text as it is.
    Text(String),
    /// The value of an expression as text. If it is a variable that is not set and has no fallback, what contains the
    /// template fails as `undefined_variable`.
    Expression(Expression),
}

/// An expression: an operation with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    /// The operation, which says what the other fields mean.
    pub op: Op,
    /// A variable's name; other operations' names as they say.
    #[serde(default)]
    pub name: Option<String>,
    /// The value of a literal; the fallback of a variable that is not set.
    #[serde(default)]
    pub value: Option<Scalar>,
    /// The arguments, in order.
    #[serde(default)]
    pub arguments: Vec<Expression>,
}

/// A value in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// A boolean.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// The operation of an expression. Arguments are named in brackets; `?` marks those that may be absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// `value`; nothing if it is absent.
    Literal,
    /// The user's variable `name`, or the shared one of that name; `value` if neither is set.
    Variable,
    /// The variable whose name is the argument (name, fallback?). JMeter's `__V`.
    VariableNamed,
    /// Whether the variable `name` is set.
    IsSet,
    /// All arguments, joined as text.
    Join,
    /// The first argument that is set and not empty.
    FirstOf,

    /// Not (condition). False are: nothing, `false`, 0, an empty text and the text `false`.
    Not,
    /// Whether all arguments are true; the first false one ends the evaluation.
    And,
    /// Whether an argument is true; the first true one ends the evaluation.
    Or,
    /// The second argument if the first one is true, else the third.
    If,

    /// Equal (a, b): as numbers if both read as numbers, else as texts.
    Equal,
    /// The opposite of `equal`.
    NotEqual,
    /// Equal as texts (a, b).
    SameText,
    /// Less (a, b): as numbers if both read as numbers, else as texts.
    Less,
    /// Less or equal.
    LessEqual,
    /// Greater.
    Greater,
    /// Greater or equal.
    GreaterEqual,

    /// Sum of the arguments, which must be numbers.
    Add,
    /// Difference (a, b).
    Subtract,
    /// Product of the arguments.
    Multiply,
    /// Quotient (a, b); whole if both are whole and it divides evenly.
    Divide,
    /// Whole quotient (a, b), rounded towards zero.
    DivideWhole,
    /// Remainder (a, b), with the sign of a.
    Modulo,
    /// Opposite number (a).
    Negate,
    /// Absolute value (a).
    Absolute,
    /// Smallest of the arguments.
    Minimum,
    /// Largest of the arguments.
    Maximum,
    /// Rounded (a, digits?); halves away from zero.
    Round,
    /// Largest whole number that is not greater (a).
    Floor,
    /// Smallest whole number that is not less (a).
    Ceiling,
    /// A whole number (text); fails as `not_a_number` if it is none.
    ToInteger,
    /// A number (text); fails as `not_a_number` if it is none.
    ToNumber,
    /// A text (value).
    ToText,

    /// Number of characters (text).
    Length,
    /// Whether the text is empty or not set (text).
    IsEmpty,
    /// Characters from `from` (from 0) up to `to` (text, from, to?), within the text's bounds.
    Substring,
    /// The position (from 0) of a text in another one (text, part), -1 if it is not there.
    IndexOf,
    /// Whether a text contains another one (text, part).
    Contains,
    /// Whether a text starts with another one (text, part).
    StartsWith,
    /// Whether a text ends with another one (text, part).
    EndsWith,
    /// Whether two texts are equal but for upper and lower case (a, b).
    EqualIgnoringCase,
    /// Whether a regular expression matches the whole text (text, pattern).
    Matches,
    /// Whether a regular expression matches a part of the text (text, pattern).
    Finds,
    /// A group of the first match (text, pattern, group?): 1 if absent, or 0 if the pattern has none. Nothing if
    /// there is no match.
    Group,
    /// Replaces each occurrence of a text (text, part, replacement).
    Replace,
    /// Replaces each match of a regular expression (text, pattern, replacement).
    ReplacePattern,
    /// A part of a text (text, separator, index from 0). Nothing if there are fewer parts.
    SplitPart,
    /// Upper case (text).
    Upper,
    /// Lower case (text).
    Lower,
    /// Without spaces at both ends (text).
    Trim,
    /// Value at a JSONPath (text, path) as text. Nothing if there is none.
    JsonValue,
    /// Percent-encoded as in a form (text).
    UrlEncode,
    /// Percent-decoded as in a form (text).
    UrlDecode,
    /// Base64 (text).
    Base64Encode,
    /// Text of base64 (text).
    Base64Decode,
    /// SHA-256 in hexadecimal digits (text).
    Sha256,
    /// MD5 in hexadecimal digits (text).
    Md5,
    /// With `&`, `<`, `>` and `"` as entities (text).
    HtmlEscape,
    /// Without entities (text).
    HtmlUnescape,

    /// A random whole number (from, to), both inclusive.
    RandomInteger,
    /// A random number (from, to), to exclusive.
    RandomNumber,
    /// Random characters (length, characters?): letters and digits if absent.
    RandomText,
    /// One of the arguments at random.
    RandomOf,
    /// A random UUID (version 4).
    Uuid,
    /// Milliseconds since 1970.
    TimeMs,
    /// Seconds since 1970.
    TimeS,
    /// A date (pattern, shift in ms?, ms since 1970?) in UTC. The pattern is Java's: `yyyy-MM-dd'T'HH:mm:ss.SSSX`.
    Date,
    /// The next number of the counter `name` (start?, step?, end?), from 1 if absent. All users share it; after
    /// `end` follows `start`.
    Counter,
    /// The same, with a counter for each user.
    UserCounter,

    /// Number of the user in its population, from 1.
    UserNumber,
    /// Number of the user's iteration, from 0.
    Iteration,
    /// Number of the iteration in its population, from 0.
    PopulationIteration,
    /// Name of the population.
    Population,
    /// Users of the population now.
    ActiveUsers,
    /// Status code of the last response; 0 if there was none.
    LastStatus,
    /// Whether the last request succeeded; true if there was none.
    LastOk,
    /// Body of the last response.
    LastBody,
    /// URL of the last request, after redirects.
    LastUrl,
    /// Field of the last response (name). Nothing if it is absent.
    LastHeader,
    /// Time from sending the last request to its response's end, ms.
    LastDurationMs,
    /// Whether the last request failed by its time limit.
    LastTimedOut,
    /// Value of a cookie that the user has (name). Nothing if it is absent.
    Cookie,
}
