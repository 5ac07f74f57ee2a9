//! The names that servers give to the members of their JSON lines, where a format is not given: a server is recognised
//! by names that no other one uses. Owns these names.

use super::json::Path;
use super::meaning::Variable;
use super::nginx;
use super::times::{TimePattern, MS_NS, SECOND_NS, US_NS};

/// A server whose names are known.
struct Server {
    name: &'static str,
    /// One of these is there.
    marks: &'static [&'static str],
    read: fn(name: &str, value: &str) -> Option<Variable>,
}

const SERVERS: [Server; 5] = [
    Server { name: "Traefik", marks: &["DownstreamStatus", "StartUTC", "RequestPath"], read: read_traefik },
    Server { name: "Envoy", marks: &["response_code", "start_time"], read: read_envoy },
    Server { name: "Caddy", marks: &["request.method"], read: read_caddy },
    Server { name: "HAProxy", marks: &["ci", "client_ip", "date_time"], read: read_haproxy },
    Server { name: "nginx", marks: &[], read: read_nginx },
];

/// The servers whose names some members have, best first, with what their members are.
pub(super) fn match_servers(members: &[(Path, Vec<u8>)]) -> Vec<(&'static str, Vec<(Path, Variable)>)> {
    let texts: Vec<_> = members
        .iter()
        .map(|(path, value)| {
            (String::from_utf8_lossy(&path.join(&b'.')).into_owned(), String::from_utf8_lossy(value).into_owned())
        })
        .collect();
    let has = |mark: &&str| texts.iter().any(|(name, _)| name == mark);
    let servers = SERVERS.iter().filter(|server| server.marks.is_empty() || server.marks.iter().any(has));
    servers
        .map(|server| {
            let variables = members.iter().zip(&texts).filter_map(|((path, _), (name, value))| {
                (server.read)(name, value).map(|variable| (path.clone(), variable))
            });
            (server.name, variables.collect())
        })
        .collect()
}

fn read_traefik(name: &str, _: &str) -> Option<Variable> {
    Some(match name {
        "StartUTC" | "StartLocal" => Variable::time(TimePattern::Iso, false),
        "time" => Variable::time(TimePattern::Iso, true),
        "Duration" => Variable::Duration { unit_ns: 1 },
        "RequestMethod" => Variable::Method,
        "RequestPath" => Variable::Target,
        "RequestHost" => Variable::Host,
        "DownstreamStatus" => Variable::Status,
        "DownstreamContentSize" => Variable::BodyBytes,
        "ClientAddr" => Variable::AddressPort,
        "ClientUsername" => Variable::User,
        _ => Variable::header(name.strip_prefix("request_")?),
    })
}

fn read_envoy(name: &str, _: &str) -> Option<Variable> {
    Some(match name {
        "start_time" => Variable::time(TimePattern::Iso, false),
        "duration" => Variable::Duration { unit_ns: MS_NS },
        "method" => Variable::Method,
        "path" => Variable::Target,
        "authority" => Variable::Host,
        "response_code" => Variable::Status,
        "bytes_sent" => Variable::BodyBytes,
        "x_forwarded_for" | "x-forwarded-for" => Variable::header("X-Forwarded-For"),
        "user_agent" | "user-agent" => Variable::header("User-Agent"),
        "downstream_remote_address" => Variable::AddressPort,
        _ => return None,
    })
}

fn read_caddy(name: &str, value: &str) -> Option<Variable> {
    Some(match name {
        "ts" => Variable::time(guess_time(value)?, true),
        "duration" => Variable::Duration { unit_ns: SECOND_NS },
        "request.method" => Variable::Method,
        "request.uri" => Variable::Target,
        "request.host" => Variable::Host,
        "request.remote_ip" => Variable::Address,
        "request.remote_port" => Variable::Port,
        "user_id" => Variable::User,
        "status" => Variable::Status,
        "size" => Variable::BodyBytes,
        _ => Variable::header(name.strip_prefix("request.headers.")?),
    })
}

/// The names of HAProxy's manual, and its aliases.
fn read_haproxy(name: &str, value: &str) -> Option<Variable> {
    Some(match name {
        "ci" | "client_ip" => Variable::Address,
        "cp" | "client_port" => Variable::Port,
        "tr" | "t" | "date_time" | "request_date" | "accept_date" | "timestamp" => {
            Variable::time(guess_time(value)?, false)
        }
        "r" | "http_request" | "request" => Variable::Request,
        "HM" | "http_method" | "method" => Variable::Method,
        "HU" | "http_uri" | "http_request_uri" | "uri" => Variable::Target,
        "HP" | "http_path" | "path" => Variable::Path,
        "HQ" | "http_query" | "query" => Variable::QueryString,
        "ST" | "status_code" | "http_status" | "status" => Variable::Status,
        "Ta" | "time_active" => Variable::Duration { unit_ns: MS_NS },
        "Tw" | "Tc" | "Tr" => Variable::Latency { unit_ns: MS_NS },
        "host" => Variable::Host,
        "user_agent" => Variable::header("User-Agent"),
        _ => return None,
    })
}

/// nginx's variables under their own names, and the names that hand-made formats commonly give to them.
fn read_nginx(name: &str, value: &str) -> Option<Variable> {
    Some(match name {
        "time" | "timestamp" | "@timestamp" | "ts" | "date" | "time_local" | "time_iso8601" | "msec" => {
            Variable::time(guess_time(value)?, true)
        }
        "request_time" => Variable::Duration { unit_ns: SECOND_NS },
        "method" | "verb" | "request_method" => Variable::Method,
        "url" | "path" | "request_path" => Variable::Target,
        "referer" | "referrer" | "http_referrer" => Variable::header("Referer"),
        "user_agent" | "agent" | "useragent" => Variable::header("User-Agent"),
        "client_ip" | "clientip" | "remote_ip" | "client" => Variable::Address,
        "x_forwarded_for" | "xff" => Variable::header("X-Forwarded-For"),
        "session" | "session_id" | "sessionid" => Variable::Cookie(name.to_owned()),
        _ => match nginx::read_variable(name) {
            Variable::Skip | Variable::List | Variable::QueryMark | Variable::Scheme => return None,
            // Of other formats, whose names these would be too.
            Variable::AddressPort | Variable::Latency { .. } | Variable::Time { .. } => return None,
            variable => variable,
        },
    })
}

/// How a value that is a time is written.
fn guess_time(value: &str) -> Option<TimePattern> {
    let whole = value.split('.').next().unwrap_or(value);
    if !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit()) {
        let unit_ns = match whole.len() {
            9..=10 => SECOND_NS,
            13 => MS_NS,
            16 => US_NS,
            19 => 1,
            _ => return None,
        };
        return Some(TimePattern::Number { unit_ns });
    }
    if value.as_bytes().get(4) == Some(&b'-') {
        return Some(TimePattern::Iso);
    }
    match value.as_bytes().get(20) {
        Some(b'.') => Some(TimePattern::Haproxy),
        Some(b' ') => Some(TimePattern::Clf),
        _ => None,
    }
}
