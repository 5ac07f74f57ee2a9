//! `leadline-agent serve`: the server without a control plane, for a host that has only this file. Owns its options;
//! `serve` checks their values.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leadline_http::duration_ns;
use leadline_sys::process;
use leadline_sys::reason::reason;
use leadline_wire::{DelayShape, ErrorReport, HttpAnswer, Iperf3Users, PeerLimits, RsaPadding, ServeSpec, TlsIdentity};
use lexopt::{Arg, Parser, ValueExt};
use tracing::info;

use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::keys;
use crate::rate_text::format_rate;
use crate::serve;

/// The options of the command line.
pub struct Options {
    /// Addresses; the loopback addresses if none was specified.
    bind: Vec<String>,
    /// The session port.
    port: Option<u16>,
    /// The HTTP port; `None` without HTTP.
    http_port: Option<u16>,
    /// The port of HTTP over TLS.
    https_port: Option<u16>,
    /// The file of the certificate; its key's file follows.
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// The number of the responder's threads.
    threads: Option<u32>,
    answer: HttpAnswer,
    /// The file of the key that sessions must prove.
    key_file: Option<PathBuf>,
    per_peer: PeerLimits,
    iperf3: Iperf3Access,
}

/// The files and settings of the users that it lets measure with iperf3.
#[derive(Default)]
struct Iperf3Access {
    users: Option<PathBuf>,
    key: Option<PathBuf>,
    padding: RsaPadding,
    skew_s: Option<u32>,
}

const LONGEST_MS: u64 = 86_400_000;
const MOST_FLOWS: u32 = 1024;
/// How far the clock of an iperf3 client may be off, by default: as in iperf3, s.
const DEFAULT_SKEW_S: u32 = 10;

impl Options {
    /// Reads what follows `serve`, and the filter of `--log` if it is there; `None` where help is asked for.
    pub fn parse(mut parser: Parser, log: &mut Option<String>) -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            bind: Vec::new(),
            port: Some(5201),
            http_port: Some(8080),
            https_port: None,
            certificate: None,
            key: None,
            threads: None,
            answer: HttpAnswer::default(),
            key_file: None,
            per_peer: PeerLimits::default(),
            iperf3: Iperf3Access::default(),
        };
        let (mut http_alone, mut no_http) = (false, false);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("bind") => options.bind.push(parser.value()?.string()?),
                Arg::Long("port") => options.port = Some(parser.value()?.parse()?),
                Arg::Long("http-port") => options.http_port = Some(parser.value()?.parse()?),
                Arg::Long("http") => http_alone = true,
                Arg::Long("no-http") => no_http = true,
                Arg::Long("key-file") => options.key_file = Some(parser.value()?.into()),
                Arg::Long("https-port") => options.https_port = Some(parser.value()?.parse()?),
                Arg::Long("certificate") => options.certificate = Some(parser.value()?.into()),
                Arg::Long("key") => options.key = Some(parser.value()?.into()),
                Arg::Long("threads") => options.threads = Some(parser.value()?.parse()?),
                Arg::Long("log") => *log = Some(parser.value()?.string()?),
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                Arg::Long(name) => {
                    let name = name.to_owned();
                    let is_known = parse_limit(&name, &mut parser, &mut options.per_peer)?
                        || parse_access(&name, &mut parser, &mut options.iperf3)?
                        || parse_answer(&name, &mut parser, &mut options.answer)?;
                    if !is_known {
                        return Err(lexopt::Error::UnexpectedOption(format!("--{name}")));
                    }
                }
                other => return Err(other.unexpected()),
            }
        }
        if http_alone {
            options.port = None;
        }
        if no_http {
            options.http_port = None;
        }
        Ok(Some(options))
    }

    /// Returns the specification, and warnings for the operator, each in one line.
    fn spec(&self) -> Result<(ServeSpec, Vec<String>), ErrorReport> {
        let file = self.key_file.as_deref().map(keys::read_file).transpose()?;
        let (key, mut warnings) =
            file.map_or((None, Vec::new()), |file| (Some(file.key), Vec::from_iter(file.warning)));
        if key.is_some() && self.port.is_none() {
            return Err(input_error("bad_key", "--key-file is for tcp, udp and rr; leave out --http"));
        }
        if self.port.is_none() && self.http_port.is_none() && self.https_port.is_none() {
            return Err(input_error("bad_spec", "--http and --no-http leave nothing to answer"));
        }
        let iperf3_users = self.iperf3.users()?;
        if iperf3_users.is_some() && self.port.is_none() {
            return Err(input_error("bad_iperf3_users", "users of iperf3 need its port; leave out --http"));
        }
        let mut answer = self.answer.clone();
        answer.identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(TlsIdentity { certificate_pem: text_of(certificate)?, key_pem: text_of(key)? })
            }
            (None, None) => None,
            _ => return Err(input_error("bad_identity", "--certificate and --key go together")),
        };
        if answer.identity.is_some() && self.https_port.is_none() {
            return Err(input_error("bad_identity", "--certificate is for TLS; give --https-port, too"));
        }
        let spec = ServeSpec {
            bind: if self.bind.is_empty() { loopback() } else { self.bind.clone() },
            port: self.port,
            http_port: self.http_port,
            https_port: self.https_port,
            answer,
            threads: self.threads,
            longest_ms: LONGEST_MS,
            most_flows: MOST_FLOWS.min(self.per_peer.flows),
            key,
            per_peer: Some(self.per_peer.clone()),
            iperf3_users,
        };
        warnings.extend(exposure(&spec));
        Ok((spec, warnings))
    }
}

/// Returns a warning about what others can do if the server is not on loopback alone, in one line.
fn exposure(spec: &ServeSpec) -> Option<String> {
    let is_loopback = |text: &&String| text.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    let open: Vec<&str> = spec.bind.iter().filter(|text| !is_loopback(text)).map(String::as_str).collect();
    let http: Vec<String> =
        [spec.http_port, spec.https_port].into_iter().flatten().map(|port| port.to_string()).collect();
    let (at, http) = (open.join(", "), http.join(" and "));
    if open.is_empty() {
        return None;
    }
    match (spec.port, &spec.key) {
        (Some(port), None) => {
            let limit = match spec.per_peer.as_ref().and_then(|limits| limits.rate_bps) {
                Some(rate_bps) => format!("at {} a peer", format_rate(rate_bps)),
                None => "as fast as it can".to_owned(),
            };
            let also =
                if http.is_empty() { String::new() } else { format!(", and http bodies of any size from port {http}") };
            Some(format!(
                "{at}: anyone who can reach port {port} can make this host send payload {limit}, for up to a day{also}; --key-file FILE requires a key"
            ))
        }
        (Some(_), Some(_)) if http.is_empty() => None,
        (_, key) => {
            let remedy = if key.is_some() { "; --no-http leaves it out" } else { "" };
            let exception = if key.is_some() { "the key does not cover http: " } else { "" };
            Some(format!("{at}: {exception}anyone who can reach port {http} can request bodies of any size{remedy}"))
        }
    }
}

/// Reads an option about the limits of one peer; returns whether there is one with that name.
fn parse_limit(name: &str, parser: &mut Parser, limits: &mut PeerLimits) -> Result<bool, lexopt::Error> {
    match name {
        "max-sessions" => limits.sessions = parser.value()?.parse_with(at_least_one)?,
        "max-flows" => limits.flows = parser.value()?.parse_with(at_least_one)?,
        "max-connections" => limits.connections = parser.value()?.parse_with(at_least_one)?,
        "max-rate" => limits.rate_bps = Some(parser.value()?.parse_with(rate)?),
        "max-idle" => {
            limits.idle_ms = parser.value()?.parse_with(|text| time(text).map(|ns| (ns / 1_000_000).max(1)))?
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn at_least_one(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("a limit is a number from 1 on")
}

/// Reads bits per second: `1gbit`, `20mbit`, or a plain number.
fn rate(text: &str) -> Result<u64, &'static str> {
    let expected = "a rate is a number of bits per second, like 1gbit or 20mbit";
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return Err(expected),
    };
    let number: u64 = digits.parse().map_err(|_| expected)?;
    number.checked_mul(factor).filter(|rate| *rate > 0).ok_or(expected)
}

/// Reads an option about responses; returns whether there is one with that name.
fn parse_answer(name: &str, parser: &mut Parser, answer: &mut HttpAnswer) -> Result<bool, lexopt::Error> {
    match name {
        "status" => answer.status = parser.value()?.parse()?,
        "size" => answer.body_bytes = parser.value()?.parse()?,
        "chunked" => answer.chunked = true,
        "delay" => answer.delay_us = parser.value()?.parse_with(|text| time(text).map(|ns| ns / 1_000))?,
        "shape" => answer.delay_shape = parser.value()?.parse_with(shape)?,
        "errors" => answer.error_ratio = parser.value()?.parse()?,
        "close-after" => answer.close_after = Some(parser.value()?.parse()?),
        "stall" => {
            let (stall_ms, every_ms) = parser.value()?.parse_with(stall)?;
            (answer.stall_ms, answer.stall_every_ms) = (stall_ms, Some(every_ms));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn time(text: &str) -> Result<u64, &'static str> {
    duration_ns(text.as_bytes()).ok_or("a time is a number and us, ms or s, like 5ms")
}

fn shape(text: &str) -> Result<DelayShape, &'static str> {
    match text {
        "constant" => Ok(DelayShape::Constant),
        "uniform" => Ok(DelayShape::Uniform),
        "exponential" => Ok(DelayShape::Exponential),
        _ => Err("a shape is constant, uniform or exponential"),
    }
}

impl Iperf3Access {
    /// Returns the users, read from their files.
    fn users(&self) -> Result<Option<Iperf3Users>, ErrorReport> {
        let read = |option: &str, file: &Path| {
            let text = std::fs::read_to_string(file);
            text.map_err(|error| {
                input_error("bad_iperf3_users", format!("{option} {}: {}", file.display(), reason(&error)))
            })
        };
        match (&self.users, &self.key) {
            (Some(users), Some(key)) => Ok(Some(Iperf3Users {
                key_pem: read("--rsa-private-key-path", key)?,
                users: read("--authorized-users-path", users)?,
                padding: self.padding,
                skew_s: self.skew_s.unwrap_or(DEFAULT_SKEW_S),
            })),
            (None, None) if self.padding == RsaPadding::Oaep && self.skew_s.is_none() => Ok(None),
            _ => {
                let message = "users of iperf3 need --authorized-users-path and --rsa-private-key-path";
                Err(input_error("bad_iperf3_users", message))
            }
        }
    }
}

/// Reads an option about iperf3's users, by iperf3's names; returns whether there is one with that name.
fn parse_access(name: &str, parser: &mut Parser, access: &mut Iperf3Access) -> Result<bool, lexopt::Error> {
    match name {
        "authorized-users-path" => access.users = Some(parser.value()?.into()),
        "rsa-private-key-path" => access.key = Some(parser.value()?.into()),
        "use-pkcs1-padding" => access.padding = RsaPadding::Pkcs1,
        "time-skew-threshold" => access.skew_s = Some(parser.value()?.parse_with(at_least_one)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads the length and the interval of stalls, ms.
fn stall(text: &str) -> Result<(u64, u64), &'static str> {
    let (length, every) = text.split_once('/').ok_or("a stall is how long and how often, like 1s/5s")?;
    let whole_ms = |text| match time(text)? {
        ns if ns % 1_000_000 == 0 => Ok(ns / 1_000_000),
        _ => Err("a stall takes whole milliseconds"),
    };
    Ok((whole_ms(length)?, whole_ms(every)?))
}

fn text_of(file: &Path) -> Result<String, ErrorReport> {
    std::fs::read_to_string(file)
        .map_err(|error| input_error("bad_identity", format!("{}: {}", file.display(), reason(&error))))
}

/// Answers until SIGINT or SIGTERM.
pub fn serve(options: &Options) -> Result<(), ErrorReport> {
    process::catch_termination().map_err(|error| system_error("catching signals", &error))?;
    let (spec, warnings) = options.spec()?;
    let signal = Arc::new(ControlSignal::default());
    let server = serve::start(&spec, &signal).map_err(|error| with_port_option(error, &spec))?;
    for warning in warnings {
        eprintln!("leadline-agent: warning: {warning}");
    }
    let port = |name: &str, port: Option<u16>| port.map(|port| format!("{name} on port {port}"));
    let https = if spec.answer.identity.is_some() { "https" } else { "https (with a made certificate)" };
    let parts = [port("tcp, udp and rr", server.port), port("http", server.http_port), port(https, server.https_port)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    println!("listening at {}: {}", spec.bind.join(", "), parts.join("; "));
    while !process::termination_asked() {
        // A signal ends this wait early.
        thread::park_timeout(Duration::from_millis(200));
    }
    info!("shutting down: a signal asked for it");
    signal.stop();
    Ok(())
}

/// Adds to the error of a used port the option that selects another one.
fn with_port_option(mut error: ErrorReport, spec: &ServeSpec) -> ErrorReport {
    let ports = [("--port", spec.port), ("--http-port", spec.http_port), ("--https-port", spec.https_port)];
    let is_named = |port: u16| error.message.contains(&format!(":{port}: "));
    let taken = ports.into_iter().find(|(_, port)| port.is_some_and(is_named));
    if let (Some((option, _)), "address_in_use") = (taken, error.code.as_str()) {
        error.message += &format!("; give another port with {option}");
    }
    error
}

/// IPv6 may be disabled on a host; IPv4's loopback address is always available.
fn loopback() -> Vec<String> {
    let mut addresses = vec!["127.0.0.1".to_owned()];
    if std::net::UdpSocket::bind("[::1]:0").is_ok() {
        addresses.push("::1".to_owned());
    }
    addresses
}

#[cfg(test)]
mod tests {
    use leadline_wire::{DelayShape, ServeSpec};
    use lexopt::Parser;

    use super::Options;

    fn spec(arguments: &[&str]) -> Result<ServeSpec, String> {
        Ok(spec_and_warnings(arguments)?.0)
    }

    fn spec_and_warnings(arguments: &[&str]) -> Result<(ServeSpec, Vec<String>), String> {
        let options = Options::parse(Parser::from_args(arguments), &mut None).map_err(|error| error.to_string())?;
        options.unwrap().spec().map_err(|error| error.message)
    }

    /// A key file that only its owner may read; removed with the guard.
    struct Key(std::path::PathBuf);

    impl Key {
        fn create(name: &str) -> Self {
            use std::os::unix::fs::PermissionsExt;
            let path = std::env::temp_dir().join(format!("leadline-serve-{}-{name}", std::process::id()));
            std::fs::write(&path, "hunter2\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            Self(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Key {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn limits_of_a_peer_are_options() {
        let arguments = "--max-sessions 3 --max-flows 5 --max-connections 7 --max-rate 20mbit --max-idle 2s";
        let limited = spec(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
        let limits = limited.per_peer.unwrap();
        assert_eq!((limits.sessions, limits.flows, limits.connections, limited.most_flows), (3, 5, 7, 5));
        assert_eq!((limits.rate_bps, limits.idle_ms), (Some(20_000_000), 2000));
        assert_eq!(spec(&[]).unwrap().per_peer.unwrap(), super::PeerLimits::default());
        for wrong in [["--max-sessions", "0"], ["--max-rate", "0"], ["--max-rate", "1GB/s"], ["--max-idle", "10"]] {
            assert!(spec(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_exposed_server_gets_one_warning_that_states_the_risk() {
        let key = Key::create("exposed");
        let warned = |arguments: &[&str]| spec_and_warnings(arguments).unwrap().1;
        for quiet in [
            &[][..],
            &["--bind", "127.0.0.1", "--bind", "::1"],
            &["--bind", "192.0.2.1", "--no-http", "--key-file", key.path()],
        ] {
            assert_eq!(warned(quiet), Vec::<String>::new(), "{quiet:?}");
        }
        let cases: [(&[&str], &[&str]); 4] = [
            (
                &["--bind", "192.0.2.1", "--bind", "127.0.0.1"],
                &["192.0.2.1:", "5201", "8080", "as fast as it can", "--key-file"],
            ),
            (&["--bind", "::", "--max-rate", "1gbit"], &["5201", "1 Gbit/s"]),
            (&["--bind", "192.0.2.1", "--key-file", key.path()], &["does not cover http", "8080", "--no-http"]),
            (&["--bind", "192.0.2.1", "--http"], &["8080", "any size"]),
        ];
        for (arguments, expected) in cases {
            let [line] = &warned(arguments)[..] else { panic!("one line for {arguments:?}") };
            assert!(!line.contains('\n') && expected.iter().all(|words| line.contains(words)), "{arguments:?}: {line}");
            assert!(!line.contains("hunter2"));
        }
        assert!(spec(&["--http", "--key-file", key.path()]).is_err() && spec(&["--http", "--no-http"]).is_err());
    }

    #[test]
    fn options_make_the_specification() {
        let arguments = [
            "--http",
            "--bind",
            "127.0.0.1",
            "--http-port",
            "0",
            "--https-port",
            "0",
            "--threads",
            "3",
            "--status",
            "503",
            "--size",
            "1000",
            "--chunked",
            "--delay",
            "1.5ms",
            "--shape",
            "uniform",
            "--errors",
            "0.01",
            "--close-after",
            "7",
            "--stall",
            "1s/5s",
        ];
        let spec = spec(&arguments).unwrap();
        assert_eq!((spec.port, spec.http_port, spec.https_port, spec.threads), (None, Some(0), Some(0), Some(3)));
        let answer = spec.answer;
        assert_eq!((answer.status, answer.body_bytes, answer.chunked), (503, 1000, true));
        assert_eq!((answer.delay_us, answer.delay_shape), (1_500, DelayShape::Uniform));
        assert_eq!((answer.error_ratio, answer.close_after), (0.01, Some(7)));
        assert_eq!((answer.stall_ms, answer.stall_every_ms), (1_000, Some(5_000)));
    }

    #[test]
    fn impossible_options_are_refused_with_the_possible_ones() {
        let cases: [(&[&str], &str); 8] = [
            (&["--delay", "5"], "5ms"),
            (&["--shape", "bell"], "exponential"),
            (&["--stall", "1s"], "1s/5s"),
            (&["--stall", "0.5ms/5s"], "whole milliseconds"),
            (&["--nonsense"], "--nonsense"),
            (&["--certificate", "a"], "--key"),
            (&["--certificate", "a", "--key", "b"], "a: "),
            (&["--status", "x"], "x"),
        ];
        for (arguments, expected) in cases {
            let refused = spec(arguments).unwrap_err();
            assert!(refused.contains(expected), "{arguments:?}: {refused}");
        }
    }
}
