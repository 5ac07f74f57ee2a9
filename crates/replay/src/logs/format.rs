//! A log's format: named, given in its server's language, or recognised by a log's first lines. Owns the named formats and
//! the choice of the language.

use super::columns::{is_directive, Columns};
use super::entry::Entries;
use super::json::{list_members, Keys, Path};
use super::meaning::{Meaning, Variable};
use super::names::match_servers;
use super::steps::{merge, Span, Steps, Token};
use super::text::Escapes;
use super::{apache, envoy, haproxy, nginx};
use crate::recorded::{Cause, Recorded, SourceError};

const COMMON: &str = "%h %l %u %t \"%r\" %>s %b";
const COMBINED: &str = "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"";
const VHOST_COMBINED: &str = "%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"";
const NGINX_MAIN: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                          \"$http_referer\" \"$http_user_agent\" \"$http_x_forwarded_for\"";
const TRAEFIK: &str = "$remote_addr - $remote_user [$start_clf] \"$request\" $status $body_bytes_sent \
                       \"$http_referer\" \"$http_user_agent\" $skip \"$skip\" \"$skip\" ${duration_ms}ms";
// `domain_name` is that of TLS; the request's URL has the host.
const ALB: &str = "$skip $skip $skip $client $skip $latency_s $latency_s $latency_s $status $skip $skip $skip \
                   \"$request\" \"$http_user_agent\" $skip $skip $skip \"$skip\" \"$skip\" \"$skip\" $skip $start_iso";
/// The names that `LogFormat::parse` knows, for an error.
const NAMES: &str = "common, combined, vhost_combined, nginx-main, haproxy, envoy, istio, traefik, alb, w3c, json";
/// How many lines a format is recognised by.
pub(super) const MAX_FIRST_LINES: usize = 100;

/// The format of a log's lines.
#[derive(Clone, Debug)]
pub struct LogFormat {
    name: String,
    layout: Layout,
    entries: Entries,
    spans: Vec<Span>,
}

/// Where the fields are on a line.
#[derive(Clone, Debug)]
enum Layout {
    Steps(Steps),
    Json(Keys),
    Columns(Columns),
    /// JSON with a server's names, which the first line shows.
    UnseenJson,
}

impl LogFormat {
    /// The format with a name (`combined`, `haproxy`, `alb` ...; `haproxy {host|user-agent}` names the captured fields),
    /// or given as text in the language of nginx, Apache, HAProxy or Envoy, or as a JSON object whose values are such
    /// variables: `{"time": "$msec", "request": "$request"}`.
    ///
    /// # Errors
    /// What it has that is no format, and what would be one.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        Self::read(text.trim()).map_err(|error| {
            let text: String = text.trim().chars().take(60).collect();
            SourceError::Format(format!("the log format {text:?} cannot be read: {error}"))
        })
    }

    /// The format that most of a log's first lines have; only the first 100 are looked at.
    ///
    /// # Errors
    /// That none fits: which were tried, and how to give one.
    pub fn recognise(lines: &[&[u8]]) -> Result<Self, SourceError> {
        let lines = &lines[..lines.len().min(MAX_FIRST_LINES)];
        if lines.iter().any(|line| line.starts_with(b"#Fields:")) {
            return Ok(Self::new_w3c());
        }
        let lines: Vec<&[u8]> = lines.iter().filter(|line| !line.trim_ascii().is_empty()).copied().collect();
        let named =
            ["haproxy", "alb", "istio", "envoy", "traefik", "nginx-main", "vhost_combined", "combined", "common"];
        let named = named.iter().filter_map(|name| Self::read(name).ok());
        let mut best: Option<(usize, Self)> = None;
        for mut format in Self::recognise_json(&lines).into_iter().chain(named) {
            let fits = lines.iter().filter(|line| matches!(format.read_line(line), Ok(_) | Err(Cause::NoRequest)));
            let fits = fits.count();
            if best.as_ref().map_or(0, |(most, _)| *most) < fits {
                best = Some((fits, format));
            }
        }
        match best {
            Some((fits, format)) if fits * 2 >= lines.len() => Ok(format),
            _ => Err(SourceError::Format(format!(
                "the log's format is not known: none of {NAMES} fits half of its first {} lines; give the server's own \
                 format string, as in --format '$remote_addr [$time_local] \"$request\" $status'",
                lines.len()
            ))),
        }
    }

    /// What the format is called, for the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which requests belong to one session, for the user.
    #[must_use]
    pub fn session_basis(&self) -> String {
        self.entries.describe_session()
    }

    /// What the starts of requests are taken from, for the user.
    #[must_use]
    pub fn start_basis(&self) -> String {
        self.entries.describe_start()
    }

    /// Takes a line apart without making a request of it, and allocates nothing.
    ///
    /// # Errors
    /// Why it does not have the format.
    pub fn split_line(&mut self, line: &[u8]) -> Result<(), Cause> {
        match &self.layout {
            Layout::Steps(steps) => steps.parse(line, &mut self.spans),
            Layout::Json(keys) => keys.parse(line, &mut self.spans),
            Layout::Columns(columns) => columns.parse(line, &mut self.spans),
            Layout::UnseenJson => Err(Cause::Malformed),
        }
    }

    /// The request of a line without its line end; `None` of an empty line, and of a directive, which is obeyed.
    ///
    /// # Errors
    /// Why it gives no request.
    pub fn read_line(&mut self, line: &[u8]) -> Result<Option<Recorded>, Cause> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        match &self.layout {
            Layout::Columns(_) if is_directive(line) => {
                self.read_directive(line);
                return Ok(None);
            }
            Layout::UnseenJson => {
                let found = Self::recognise_json(&[line]).into_iter().next().ok_or(Cause::Malformed)?;
                *self = found;
            }
            _ => {}
        }
        self.split_line(line).map_err(|cause| self.entries.refine_cause(cause, line))?;
        self.entries.read(line, &self.spans).map(Some)
    }

    fn read_directive(&mut self, line: &[u8]) {
        let mut meaning = Meaning::default();
        if let Some(columns) = Columns::read_directive(line, &mut meaning) {
            self.entries = Entries::new(meaning, Escapes::Url, !columns.is_cloudfront);
            self.spans = vec![Span::default(); self.entries.slots()];
            self.layout = Layout::Columns(columns);
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let name = lower.split('{').next().unwrap_or_default().trim();
        let named =
            |format: &str, tokens: Vec<Token>, is_open| Self::new(name, tokens, format_escapes(format), is_open);
        match name {
            "common" | "clf" => named(COMMON, apache::read_format(COMMON)?, false),
            "combined" => named(COMBINED, apache::read_format(COMBINED)?, true),
            "vhost_combined" => named(VHOST_COMBINED, apache::read_format(VHOST_COMBINED)?, true),
            "nginx-main" => named(NGINX_MAIN, nginx::read_format(NGINX_MAIN)?, true),
            "traefik" => named(TRAEFIK, nginx::read_format(TRAEFIK)?, false),
            "alb" => named(ALB, nginx::read_format(ALB)?, true),
            "envoy" => named(envoy::DEFAULT, envoy::read_format(envoy::DEFAULT)?, false),
            "istio" => named(envoy::ISTIO, envoy::read_format(envoy::ISTIO)?, true),
            "haproxy" | "httplog" | "httpslog" => {
                let captures = text.split_once('{').map_or("", |(_, captures)| captures.trim_end_matches('}'));
                let captures: Vec<_> = captures.split('|').map(|name| name.trim().to_owned()).collect();
                named(haproxy::HTTPLOG, haproxy::read_format(haproxy::HTTPLOG, &captures)?, true)
            }
            "w3c" | "iis" | "cloudfront" => Ok(Self::new_w3c()),
            "json" => {
                let entries = Entries::new(Meaning::default(), Escapes::Backslash, false);
                Ok(Self { name: lower, layout: Layout::UnseenJson, entries, spans: Vec::new() })
            }
            _ => Self::read_string(text),
        }
    }

    /// A format in a server's language.
    fn read_string(text: &str) -> Result<Self, String> {
        if let Some(members) = haproxy::read_json_format(text) {
            return Self::new_json("the JSON format given", members?);
        }
        let joined = nginx::join_literals(text)?;
        if joined.trim_start().starts_with('{') {
            return Self::new_json("the JSON format given", read_json_pattern(&joined)?);
        }
        let (name, tokens) = if envoy::is_format(text) {
            ("the Envoy format given", envoy::read_format(text)?)
        } else if haproxy::is_format(text) {
            ("the HAProxy format given", haproxy::read_format(text, &[])?)
        } else if joined.contains('$') {
            ("the nginx format given", nginx::read_format(text)?)
        } else if text.contains('%') {
            ("the Apache format given", apache::read_format(text)?)
        } else {
            return Err(format!("it is none of the names {NAMES}, and has no variable ($request, %r) of a server"));
        };
        Self::new(name, tokens, format_escapes(text), false)
    }

    fn new(name: &str, tokens: Vec<Token>, escapes: Escapes, is_open: bool) -> Result<Self, String> {
        let mut meaning = Meaning::default();
        let steps = Steps::compile(tokens, is_open, &mut meaning)?;
        meaning.check()?;
        Ok(Self::assemble(name, Layout::Steps(steps), meaning, escapes))
    }

    fn new_json(name: &str, members: Vec<(Path, Variable)>) -> Result<Self, String> {
        let mut meaning = Meaning::default();
        let keys = Keys::new(members, &mut meaning);
        meaning.check()?;
        Ok(Self::assemble(name, Layout::Json(keys), meaning, Escapes::Backslash))
    }

    fn new_w3c() -> Self {
        Self::assemble("w3c", Layout::Columns(Columns::default()), Meaning::default(), Escapes::Url)
    }

    fn assemble(name: &str, layout: Layout, meaning: Meaning, escapes: Escapes) -> Self {
        let entries = Entries::new(meaning, escapes, false);
        let spans = vec![Span::default(); entries.slots()];
        Self { name: name.to_owned(), layout, entries, spans }
    }

    /// JSON lines by the names that all of them together have.
    fn recognise_json(lines: &[&[u8]]) -> Vec<Self> {
        let mut members: Vec<(Path, Vec<u8>)> = Vec::new();
        for (path, value) in lines.iter().filter_map(|line| list_members(line).ok()).flatten() {
            if !members.iter().any(|(other, _)| *other == path) && members.len() < 256 {
                members.push((path, value));
            }
        }
        let servers = match_servers(&members).into_iter();
        servers.filter_map(|(name, members)| Self::new_json(&format!("JSON by {name}'s names"), members).ok()).collect()
    }
}

/// HAProxy's way to escape, or that of the others.
fn format_escapes(text: &str) -> Escapes {
    if haproxy::is_format(text) && !envoy::is_format(text) {
        Escapes::Hash
    } else {
        Escapes::Backslash
    }
}

/// A JSON object whose values are variables of a server.
fn read_json_pattern(text: &str) -> Result<Vec<(Path, Variable)>, String> {
    let members = list_members(text.as_bytes()).map_err(|_| "it is no JSON object".to_owned())?;
    let mut variables = Vec::new();
    for (path, value) in members {
        let value = String::from_utf8_lossy(&value).into_owned();
        let tokens = if envoy::is_format(text) {
            envoy::read_format(&value)?
        } else if haproxy::is_format(text) {
            haproxy::read_format(&value, &[])?
        } else if value.contains('$') {
            nginx::read_format(&value)?
        } else {
            apache::read_format(&value)?
        };
        match merge(tokens).as_slice() {
            [Token::Variable(variable)] => variables.push((path, variable.clone())),
            // `[29/Nov/...]`, which the pattern of the time reads as a whole.
            [Token::Literal(_), Token::Variable(time @ Variable::Time { .. }), Token::Literal(_)] => {
                variables.push((path, time.clone()));
            }
            tokens if tokens.iter().any(|token| matches!(token, Token::Variable(_))) => {
                let name = String::from_utf8_lossy(&path.join(&b'.')).into_owned();
                return Err(format!("the member {name:?} has more than one variable: {value:?}"));
            }
            _ => {}
        }
    }
    Ok(variables)
}
