//! `leadline-agent serve`: the server without a control plane, for a host where only this file was copied to. Owns its
//! options; what they may be is `serve`'s business.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leadline_http::duration_ns;
use leadline_sys::process;
use leadline_wire::{DelayShape, ErrorReport, HttpAnswer, ServeSpec, TlsIdentity};
use lexopt::{Arg, Parser, ValueExt};

use crate::events::{input_error, system_error};
use crate::gate::Gate;
use crate::serve;

/// What the command line said.
pub struct Options {
    /// Addresses; the loopback ones where none was given.
    bind: Vec<String>,
    /// Session port.
    port: Option<u16>,
    /// HTTP port.
    http_port: u16,
    /// Port of HTTP over TLS.
    https_port: Option<u16>,
    /// Files of the certificate and its key.
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Threads of the responder.
    threads: Option<u32>,
    answer: HttpAnswer,
}

const LONGEST_MS: u64 = 86_400_000;
const MOST_FLOWS: u32 = 1024;

impl Options {
    /// Reads what follows `serve`; `None` where help is asked for.
    pub fn parse(mut parser: Parser) -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            bind: Vec::new(),
            port: Some(5201),
            http_port: 8080,
            https_port: None,
            certificate: None,
            key: None,
            threads: None,
            answer: HttpAnswer::default(),
        };
        let mut http_alone = false;
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("bind") => options.bind.push(parser.value()?.string()?),
                Arg::Long("port") => options.port = Some(parser.value()?.parse()?),
                Arg::Long("http-port") => options.http_port = parser.value()?.parse()?,
                Arg::Long("http") => http_alone = true,
                Arg::Long("https-port") => options.https_port = Some(parser.value()?.parse()?),
                Arg::Long("certificate") => options.certificate = Some(parser.value()?.into()),
                Arg::Long("key") => options.key = Some(parser.value()?.into()),
                Arg::Long("threads") => options.threads = Some(parser.value()?.parse()?),
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                Arg::Long(name) => {
                    let name = name.to_owned();
                    if !parse_answer(&name, &mut parser, &mut options.answer)? {
                        return Err(lexopt::Error::UnexpectedOption(format!("--{name}")));
                    }
                }
                other => return Err(other.unexpected()),
            }
        }
        if http_alone {
            options.port = None;
        }
        Ok(Some(options))
    }

    fn spec(&self) -> Result<ServeSpec, ErrorReport> {
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
        Ok(ServeSpec {
            bind: if self.bind.is_empty() { loopback() } else { self.bind.clone() },
            port: self.port,
            http_port: Some(self.http_port),
            https_port: self.https_port,
            answer,
            threads: self.threads,
            longest_ms: LONGEST_MS,
            most_flows: MOST_FLOWS,
        })
    }
}

/// Takes an option about answers; says whether there is one of that name.
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

/// How long and how often, ms.
fn stall(text: &str) -> Result<(u64, u64), &'static str> {
    let (length, every) = text.split_once('/').ok_or("a stall is how long and how often, like 1s/5s")?;
    let whole_ms = |text| match time(text)? {
        ns if ns % 1_000_000 == 0 => Ok(ns / 1_000_000),
        _ => Err("a stall takes whole milliseconds"),
    };
    Ok((whole_ms(length)?, whole_ms(every)?))
}

fn text_of(file: &Path) -> Result<String, ErrorReport> {
    std::fs::read_to_string(file).map_err(|error| input_error("bad_identity", format!("{}: {error}", file.display())))
}

/// Answer until SIGINT or SIGTERM.
pub fn serve(options: &Options) -> Result<(), ErrorReport> {
    process::catch_termination().map_err(|error| system_error("catching signals", &error))?;
    let spec = options.spec()?;
    let gate = Arc::new(Gate::default());
    let server = serve::start(&spec, &gate).map_err(|error| with_port_option(error, &spec))?;
    let port = |name: &str, port: Option<u16>| port.map(|port| format!("{name} on port {port}"));
    let https = if spec.answer.identity.is_some() { "https" } else { "https (with a made certificate)" };
    let parts = [port("tcp, udp and rr", server.port), port("http", server.http_port), port(https, server.https_port)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    println!("listening at {}: {}", spec.bind.join(", "), parts.join("; "));
    while !process::termination_asked() {
        // Ends early with the signal.
        thread::park_timeout(Duration::from_millis(200));
    }
    gate.stop();
    Ok(())
}

/// Where a port is taken, the option that gives another one.
fn with_port_option(mut error: ErrorReport, spec: &ServeSpec) -> ErrorReport {
    let ports = [("--port", spec.port), ("--http-port", spec.http_port), ("--https-port", spec.https_port)];
    let is_named = |port: u16| error.message.contains(&format!(":{port}: "));
    let taken = ports.into_iter().find(|(_, port)| port.is_some_and(is_named));
    if let (Some((option, _)), "address_in_use") = (taken, error.code.as_str()) {
        error.message += &format!("; give another port with {option}");
    }
    error
}

/// IPv6 may be switched off on a host; IPv4's loopback is always there.
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
        let options = Options::parse(Parser::from_args(arguments)).map_err(|error| error.to_string())?;
        options.unwrap().spec().map_err(|error| error.message)
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
    fn what_cannot_be_is_told_with_what_could() {
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
        for (arguments, says) in cases {
            let refused = spec(arguments).unwrap_err();
            assert!(refused.contains(says), "{arguments:?}: {refused}");
        }
    }
}
