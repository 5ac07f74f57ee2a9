//! A request of a flow: its parts as templates, what is taken from its response, and what is checked.

use serde::{Deserialize, Serialize};

use super::expression::{Expression, Template};
use super::place::SourcePlace;
use crate::schema::JsonSchema;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRequest {
    /// The method.
    pub method: Template,
    /// `http` or `https`; `http` if empty.
    #[serde(default)]
    pub scheme: Template,
    /// The host.
    #[serde(default)]
    pub host: Template,
    /// The port; the scheme's own if empty.
    #[serde(default)]
    pub port: Template,
    /// The path and perhaps a query. If it is an absolute URL when it is sent, it replaces scheme, host and port.
    /// Characters that a request cannot have are percent-encoded; others are sent as they are.
    #[serde(default)]
    pub path: Template,
    /// An element of the user's last pages that gives the request its URL, in place of scheme, host, port and path; of a
    /// form also the method and the fields, which those of the body replace and go on.
    #[serde(default)]
    pub element: Option<PageElement>,
    /// Parameters that are appended to the query.
    #[serde(default)]
    pub query: Vec<Parameter>,
    /// Header fields, in order. `Host`, `Content-Length` and, if absent, `Content-Type` of forms are added.
    #[serde(default)]
    pub headers: Vec<HeaderTemplate>,
    /// The body; none if absent.
    #[serde(default)]
    pub body: Option<RequestBody>,
    /// Sent as `Authorization: Basic`.
    #[serde(default)]
    pub basic_credentials: Option<BasicAuth>,
    /// How many redirects are followed; with 0 the redirect is the response. The request's time and bytes include
    /// them.
    #[serde(default)]
    pub redirects: u32,
    /// Whether redirects and resources of another scheme, host or port get all header fields, as JMeter sends them. If not,
    /// they get no `Authorization`, `Cookie` or `Host` of the plan. Credentials of `basic_credentials` never go there.
    #[serde(default)]
    pub keeps_headers_elsewhere: bool,
    /// Whether the user's cookies are sent, and those of the response kept (RFC 6265).
    #[serde(default)]
    pub uses_cookies: bool,
    /// Whether a fresh response in the user's cache is used instead of a request, and a stale one revalidated. A
    /// fresh one is no sample.
    #[serde(default)]
    pub uses_cache: bool,
    /// Whether the connection is closed after the response.
    #[serde(default)]
    pub closes_connection: bool,
    /// Resources named by a response of HTML, which are fetched too; none if absent.
    #[serde(default)]
    pub embedded: Option<EmbeddedRule>,
    /// Time limit of connecting, ms; the scenario's if absent.
    #[serde(default)]
    pub connect_timeout_ms: Option<u32>,
    /// Time limit from sending to the response's end, ms; the scenario's if absent.
    #[serde(default)]
    pub response_timeout_ms: Option<u32>,
    /// The status codes of a success; 200 to 399 if empty. Others fail as `status_404` and the like.
    #[serde(default)]
    pub ok_status: Vec<StatusRange>,
    /// What is taken from the response, in order.
    #[serde(default)]
    pub extractors: Vec<Extractor>,
    /// What is checked, in order; the first failed one is the cause of the request's failure. Checks see what the
    /// extractors have set.
    #[serde(default)]
    pub checks: Vec<Check>,
}

/// An element of a page. The user's last pages are the last one that a request without a frame got, and those in its frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageElement {
    /// What it is.
    pub kind: PageElementKind,
    /// What it has: attributes and their values, `text`, its text with single spaces, or `field`, the name of a form's field.
    /// URLs may be ends of paths.
    #[serde(default)]
    pub has: Vec<HeaderTemplate>,
    /// Which of several, from 1, over all pages.
    pub number: Expression,
}

/// A kind of elements that lead to another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageElementKind {
    /// A link.
    Link,
    /// An image in a link, or one that submits its form.
    Image,
    /// A form.
    Form,
}

/// A parameter of a query or a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name.
    pub name: Template,
    /// Its value; the name stands alone, without `=`, if absent.
    #[serde(default)]
    pub value: Option<Template>,
    /// Whether name and value are sent as they are. If not, they are percent-encoded.
    #[serde(default)]
    pub is_encoded: bool,
}

/// A header field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderTemplate {
    /// Its name.
    pub name: Template,
    /// Its value.
    pub value: Template,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum RequestBody {
    /// A text, in UTF-8.
    #[schemars(title = "TextBody")]
    Text {
        /// The text.
        text: Template,
    },
    /// `application/x-www-form-urlencoded`.
    #[schemars(title = "FormBody")]
    Form {
        /// The fields.
        parameters: Vec<Parameter>,
    },
    /// `multipart/form-data`.
    #[schemars(title = "MultipartBody")]
    Multipart {
        /// The parts.
        parts: Vec<MultipartPart>,
    },
    /// The content of a file.
    #[schemars(title = "FileBody")]
    File {
        /// The file's name in the plan.
        file: String,
    },
}

/// A part of a multipart body: a text or a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultipartPart {
    /// The field's name.
    pub name: Template,
    /// The text, if it is no file.
    #[serde(default)]
    pub text: Template,
    /// The file's name in the plan, if it is one.
    #[serde(default)]
    pub file: Option<String>,
    /// The name of the file as it is sent; none if empty.
    #[serde(default)]
    pub file_name: Template,
    /// Its `Content-Type`; none if empty.
    #[serde(default)]
    pub content_type: Template,
}

/// A user and a password.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// The user.
    pub user: Template,
    /// The password.
    pub password: Template,
}

/// Which resources of a page are fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedRule {
    /// Only URLs that this regular expression matches as a whole; all if absent.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Requests at once.
    pub at_once: u32,
    /// Whether the page passes although a resource is missing.
    #[serde(default)]
    pub may_fail: bool,
}

/// A range of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRange {
    /// The first.
    pub from: u16,
    /// The last.
    pub to: u16,
}

/// The text that an extractor or a check reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum Subject {
    /// The response's body.
    #[schemars(title = "BodySubject")]
    Body {},
    /// The response's header fields, as lines `Name: value`.
    #[schemars(title = "HeadersSubject")]
    Headers {},
    /// The response's header fields, an empty line, and its body.
    #[schemars(title = "AnswerSubject")]
    Answer {},
    /// The status code.
    #[schemars(title = "StatusSubject")]
    Status {},
    /// The reason phrase.
    #[schemars(title = "ReasonSubject")]
    Reason {},
    /// The URL of the request, after redirects.
    #[schemars(title = "UrlSubject")]
    Url {},
    /// The header fields of the request.
    #[schemars(title = "RequestHeadersSubject")]
    RequestHeaders {},
    /// The body of the request.
    #[schemars(title = "RequestBodySubject")]
    RequestBody {},
    /// A variable.
    #[schemars(title = "VariableSubject")]
    Variable {
        /// Its name.
        name: String,
    },
}

/// Takes a value from a response into a variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extractor {
    /// The variable. With [`Match::All`], the values are in `variable_1` and so on, and their number in
    /// `variable_matchNr`.
    pub variable: String,
    /// Where it looks.
    pub subject: Subject,
    /// What it looks for.
    pub find: Find,
    /// Which of several it takes.
    pub pick: Match,
    /// What happens if there is none.
    pub on_miss: MissRule,
    /// Whether a regular expression's groups are set too, as `variable_g0` (the whole match), `variable_g1` and so
    /// on, and their number as `variable_g`.
    #[serde(default)]
    pub sets_groups: bool,
    /// The largest value, bytes; longer ones are not found.
    #[serde(default)]
    pub max_bytes: Option<u32>,
    /// Where it is defined.
    #[serde(default)]
    pub source: Option<SourcePlace>,
}

/// What an extractor looks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum Find {
    /// Matches of a regular expression.
    #[schemars(title = "FindRegex")]
    Regex {
        /// The expression.
        pattern: Template,
        /// The value, made of texts and groups; the first group, or the match if there is none, if empty.
        #[serde(default)]
        output: Vec<OutputPart>,
    },
    /// Nodes of a JSON text by JSONPath (RFC 9535); the root's `$` may be absent.
    #[schemars(title = "FindJsonPath")]
    JsonPath {
        /// The path.
        path: Template,
    },
    /// Values of a response's header field; the subject is ignored.
    #[schemars(title = "FindHeader")]
    Header {
        /// The field's name.
        name: Template,
    },
    /// The value of a cookie that the user has after the response; the subject is ignored.
    #[schemars(title = "FindCookie")]
    Cookie {
        /// The cookie's name.
        name: Template,
    },
    /// What is between two texts; an empty text is the subject's beginning or end.
    #[schemars(title = "FindBoundary")]
    Boundary {
        /// The text before.
        left: Template,
        /// The text after.
        right: Template,
    },
    /// Elements of HTML by a CSS selector.
    #[schemars(title = "FindCss")]
    Css {
        /// The selector.
        selector: Template,
        /// The attribute; the element's text if empty.
        #[serde(default)]
        attribute: Template,
    },
    /// Nodes of XML or HTML by XPath.
    #[schemars(title = "FindXPath")]
    #[serde(rename = "xpath")]
    XPath {
        /// The path.
        path: Template,
    },
    /// The whole subject.
    #[schemars(title = "FindWhole")]
    Whole {},
}

/// A part of a value that is made of a match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OutputPart {
    /// A group's number; 0 is the whole match.
    Group(u32),
    /// A text.
    Text(String),
}

/// Which of several values is taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum Match {
    /// The one with this number, from 1. If the number is 0 when it is computed: a random one; if -1: all.
    #[schemars(title = "MatchNumber")]
    Number {
        /// The number.
        number: Expression,
    },
    /// The last one.
    #[schemars(title = "MatchLast")]
    Last {},
    /// A random one.
    #[schemars(title = "MatchRandom")]
    Random {},
    /// All.
    #[schemars(title = "MatchAll")]
    All {},
    /// The number of values.
    #[schemars(title = "MatchCount")]
    Count {},
}

/// What happens if an extractor finds nothing. Each miss is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum MissRule {
    /// The variable keeps its value. JMeter's extractors without a default.
    #[schemars(title = "MissKeeps")]
    Keep {},
    /// The variable is unset.
    #[schemars(title = "MissUnsets")]
    Unset {},
    /// The variable is set to this text.
    #[schemars(title = "MissDefault")]
    Default {
        /// The text.
        text: Template,
    },
    /// The variable is unset, and the request fails as `extraction_failed`.
    #[schemars(title = "MissFails")]
    Fail {},
}

/// A check of a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Its name in figures; what it checks, in words, if absent.
    #[serde(default)]
    pub label: Option<String>,
    /// What it reads; ignored by tests that say what they read.
    pub subject: Subject,
    /// The tests.
    pub tests: Vec<CheckTest>,
    /// Whether one of the tests is enough.
    #[serde(default)]
    pub any: bool,
    /// Whether each test must fail instead.
    #[serde(default)]
    pub is_negated: bool,
    /// What a failed check means.
    pub severity: Severity,
    /// The message of a failure; the agent's own if empty.
    #[serde(default)]
    pub message: Template,
    /// Where it is defined.
    #[serde(default)]
    pub source: Option<SourcePlace>,
}

/// What a failed check means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The request fails as `check_failed`.
    Fail,
    /// It is counted. k6's checks.
    Count,
}

/// A test of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(extend("discriminator" = {"propertyName": "kind"}))]
pub enum CheckTest {
    /// The status code is in a range.
    #[schemars(title = "CheckStatus")]
    Status {
        /// The ranges.
        ranges: Vec<StatusRange>,
    },
    /// The subject contains a text.
    #[schemars(title = "CheckContains")]
    Contains {
        /// The text.
        text: Template,
    },
    /// The subject equals a text.
    #[schemars(title = "CheckEquals")]
    Equals {
        /// The text.
        text: Template,
    },
    /// A regular expression matches a part of the subject.
    #[schemars(title = "CheckFinds")]
    Finds {
        /// The expression.
        pattern: Template,
    },
    /// A regular expression matches the whole subject.
    #[schemars(title = "CheckMatches")]
    Matches {
        /// The expression.
        pattern: Template,
    },
    /// A JSONPath has a value.
    #[schemars(title = "CheckJson")]
    Json {
        /// The path.
        path: Template,
        /// The value that one of the found nodes must have, as text; any value if absent.
        #[serde(default)]
        equals: Option<Template>,
        /// Whether `equals` is a regular expression for the whole value.
        #[serde(default)]
        is_pattern: bool,
        /// Whether the value must be null.
        #[serde(default)]
        is_null: bool,
    },
    /// The size of the response's body is in a range.
    #[schemars(title = "CheckSize")]
    Size {
        /// The smallest size, bytes.
        #[serde(default)]
        at_least: Option<u64>,
        /// The largest size, bytes.
        #[serde(default)]
        at_most: Option<u64>,
    },
    /// The response was complete within a time from sending.
    #[schemars(title = "CheckDuration")]
    Duration {
        /// The time, ms.
        at_most_ms: Expression,
    },
    /// A condition is true.
    #[schemars(title = "CheckCondition")]
    Condition {
        /// The condition.
        condition: Expression,
    },
}
