//! What the fields of a log mean, whichever language its format is written in. Owns the variables and which slot of a
//! parsed line has which; leaves to `steps`, `json` and `columns` where on the line they are.

use super::times::{Moment, TimePattern, SECOND_NS};

/// The index of a field of a line.
pub(super) type Slot = u8;
/// How many fields of a line are kept; further ones are passed over.
const MAX_SLOTS: usize = 64;

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// Something that a replay does not need.
    Skip,
    /// nginx's list of upstreams, `0.004, 0.010 : 0.2`: not needed, but it has spaces.
    List,
    /// `GET /path?query HTTP/1.1`.
    Request,
    Method,
    /// Path and query, or an absolute URL.
    Target,
    /// A host with a path and query right after it.
    HostTarget,
    Path,
    /// nginx's path and query, where a `-` stands for a query that is not there: `/path-`, `/path?-`.
    DashedTarget,
    /// The `?` before a query, if there is one.
    QueryMark,
    /// A query without its `?`.
    Query,
    /// A query with its `?`, or nothing.
    QueryString,
    Scheme,
    Host,
    /// The server's own name, where the request's host is not logged.
    ServerName,
    Status,
    /// The bytes of the answer's body.
    BodyBytes,
    /// A time, or a part of one.
    Time {
        pattern: TimePattern,
        /// Whether it is that of the request's end.
        is_end: bool,
    },
    /// From the request's start to its end.
    Duration {
        unit_ns: i64,
    },
    /// A part of the time until the answer began; the parts add up.
    Latency {
        unit_ns: i64,
    },
    User,
    /// The value of a cookie of this name.
    Cookie(String),
    /// A cookie that HAProxy captured, `name=value`, possibly cut off.
    CookiePair,
    Address,
    Port,
    /// `192.0.2.1:5000`.
    AddressPort,
    /// A number of the connection.
    Connection,
    /// A field of the request, by its name.
    Header(String),
    /// HAProxy's captured fields of the request, `{a|b}`, or nothing at all; their names, as far as they are known.
    Captures(Vec<String>),
}

impl Variable {
    /// A field of the request; the fields that have a meaning of their own have it.
    pub(super) fn header(name: &str) -> Self {
        if name.eq_ignore_ascii_case("host") {
            Self::Host
        } else {
            Self::Header(name.to_owned())
        }
    }

    /// A time that is written at once.
    pub(super) fn time(pattern: TimePattern, is_end: bool) -> Self {
        Self::Time { pattern, is_end }
    }
}

/// Which slot has which field.
#[derive(Clone, Debug, Default)]
pub(super) struct Meaning {
    slots: usize,
    pub(super) request: Option<Slot>,
    pub(super) method: Option<Slot>,
    pub(super) target: Option<Slot>,
    pub(super) host_target: Option<Slot>,
    pub(super) path: Option<Slot>,
    pub(super) query: Option<Slot>,
    pub(super) dashed_target: Option<Slot>,
    pub(super) host: Option<Slot>,
    pub(super) server_name: Option<Slot>,
    pub(super) status: Option<Slot>,
    pub(super) body_bytes: Option<Slot>,
    pub(super) duration: Option<(Slot, i64)>,
    pub(super) latency: Vec<(Slot, i64)>,
    pub(super) user: Option<Slot>,
    /// The cookie that names a session: its name and slot.
    pub(super) cookie: Option<(String, Slot)>,
    pub(super) cookie_pair: Option<Slot>,
    pub(super) address: Option<Slot>,
    pub(super) port: Option<Slot>,
    pub(super) address_port: Option<Slot>,
    pub(super) connection: Option<Slot>,
    pub(super) headers: Vec<(String, Slot)>,
    pub(super) captures: Option<(Vec<String>, Slot)>,
    start: Vec<(TimePattern, Slot)>,
    end: Vec<(TimePattern, Slot)>,
}

impl Meaning {
    /// How many slots it uses.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Takes up a field and returns its slot; `None` if it is not kept: not needed, or there already.
    pub(super) fn add(&mut self, variable: Variable) -> Option<Slot> {
        if self.slots == MAX_SLOTS {
            return None;
        }
        let slot = self.slots as Slot;
        let role = match variable {
            Variable::Skip | Variable::List | Variable::QueryMark | Variable::Scheme => return None,
            Variable::Request => &mut self.request,
            Variable::Method => &mut self.method,
            Variable::Target => &mut self.target,
            Variable::HostTarget => &mut self.host_target,
            Variable::Path => &mut self.path,
            Variable::Query | Variable::QueryString => &mut self.query,
            Variable::DashedTarget => &mut self.dashed_target,
            Variable::Host => &mut self.host,
            Variable::ServerName => &mut self.server_name,
            Variable::CookiePair => &mut self.cookie_pair,
            Variable::Status => &mut self.status,
            Variable::BodyBytes => &mut self.body_bytes,
            Variable::User => &mut self.user,
            Variable::Address => &mut self.address,
            Variable::Port => &mut self.port,
            Variable::AddressPort => &mut self.address_port,
            Variable::Connection => &mut self.connection,
            other => return self.add_with_value(other, slot),
        };
        if role.is_some() {
            return None;
        }
        *role = Some(slot);
        self.slots += 1;
        Some(slot)
    }

    fn add_with_value(&mut self, variable: Variable, slot: Slot) -> Option<Slot> {
        match variable {
            Variable::Time { pattern, is_end: false } => self.start.push((pattern, slot)),
            Variable::Time { pattern, is_end: true } => self.end.push((pattern, slot)),
            // The finest of several.
            Variable::Duration { unit_ns } if self.duration.is_none_or(|(_, other_ns)| unit_ns < other_ns) => {
                self.duration = Some((slot, unit_ns));
            }
            Variable::Latency { unit_ns } => self.latency.push((slot, unit_ns)),
            Variable::Cookie(name) if is_session_name(name.as_bytes()) && self.cookie.is_none() => {
                self.cookie = Some((name, slot));
            }
            Variable::Header(name) if !self.headers.iter().any(|(other, _)| name.eq_ignore_ascii_case(other)) => {
                self.headers.push((name, slot));
            }
            Variable::Captures(names) if self.captures.is_none() => self.captures = Some((names, slot)),
            _ => return None,
        }
        self.slots += 1;
        Some(slot)
    }

    /// Whether requests can be made out of it.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn check(&self) -> Result<(), String> {
        let has_target = self.target.or(self.host_target).or(self.dashed_target).or(self.path).is_some();
        if self.request.is_none() && !(self.method.is_some() && has_target) {
            return Err("it has neither the request's line nor its method and target".to_owned());
        }
        if self.stamp().is_none() {
            return Err("it has no time of the request".to_owned());
        }
        Ok(())
    }

    /// The time of a line: its parts, and whether it is that of the request's end. The start if the log has it, unless
    /// the end is finer and a duration is there that is no coarser than the start.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let start = choose_parts(&self.start, false);
        let end = choose_parts(&self.end, true);
        let duration_ns = self.duration.map_or(i64::MAX, |(_, unit_ns)| unit_ns);
        match (start, end) {
            (Some(start), Some(end)) if end.precision_ns.max(duration_ns) < start.precision_ns => Some(end),
            (Some(start), _) => Some(start),
            (None, end) => end,
        }
    }
}

/// A time of a line.
#[derive(Clone, Debug)]
pub(super) struct Stamp {
    pub(super) parts: Vec<(TimePattern, Slot)>,
    pub(super) is_end: bool,
    /// How exact it usually is, ns.
    pub(super) precision_ns: i64,
}

/// The finest time that is there as a whole, with decimals that are written apart; else one that is written in parts.
fn choose_parts(times: &[(TimePattern, Slot)], is_end: bool) -> Option<Stamp> {
    let is_part = |pattern: &TimePattern| matches!(pattern, TimePattern::Parts(_) | TimePattern::Fraction { .. });
    let is_in_seconds =
        |pattern: &TimePattern| matches!(pattern, TimePattern::Clf | TimePattern::Number { unit_ns: SECOND_NS });
    let whole = times.iter().filter(|(pattern, _)| !is_part(pattern));
    let whole = whole.min_by_key(|(pattern, _)| pattern.usual_precision_ns());
    let fraction = times.iter().find(|(pattern, _)| matches!(pattern, TimePattern::Fraction { .. }));
    let parts: Vec<_> = match (whole, fraction) {
        (Some(whole), Some(fraction)) if is_in_seconds(&whole.0) => vec![whole, fraction],
        (Some(whole), _) => vec![whole],
        (None, _) => times.iter().collect(),
    };
    let parts: Vec<_> = parts.into_iter().cloned().collect();
    let precision_ns = parts.iter().map(|(pattern, _)| pattern.usual_precision_ns()).min()?;
    Some(Stamp { parts, is_end, precision_ns })
}

impl Stamp {
    /// Reads it by the text of each slot; `None` if it is no time.
    pub(super) fn read<'l>(&self, text: impl Fn(Slot) -> Option<&'l [u8]>) -> Option<(i64, u32)> {
        let mut moment = Moment::default();
        for (pattern, slot) in &self.parts {
            pattern.read(text(*slot)?, &mut moment)?;
        }
        Some((moment.ns()?, u32::try_from(moment.precision_ns).ok()?.max(1)))
    }
}

/// Whether a cookie's name says that it names a session or a user. A cookie that many users have alike would make one
/// user of them.
pub(super) fn is_session_name(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    ["sess", "sid", "uid", "user", "auth", "token", "login", "visitor", "_ga", "client_id"]
        .iter()
        .any(|part| memchr::memmem::find(&name, part.as_bytes()).is_some())
        && memchr::memmem::find(&name, b"csrf").is_none()
}
