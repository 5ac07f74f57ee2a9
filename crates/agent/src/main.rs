//! `leadline-agent`: the data plane. Without arguments it obeys commands on stdin and tells events on stdout (see
//! `crates/wire`); `serve` answers load by itself; `wireguard` is the embedded VPN. It ends when its stdin does, and takes
//! along what it started.

mod control;
mod control_signal;
mod events;
mod facts;
mod failures;
mod flows;
mod keys;
mod load;
mod locking;
mod metering;
mod process;
mod profile;
mod serve;
mod standalone;
mod task;
mod watch;
mod wireguard;

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::{Arg, Parser};

const HELP: &str = "\
leadline-agent: generates network load, answers it, and watches the host

  leadline-agent [--cgroup DIR]          obey JSON commands on stdin, tell events on stdout
  leadline-agent serve [OPTIONS]         answer tcp, udp, rr and http load until stopped
  leadline-agent wireguard CONFIG        an embedded WireGuard interface
  leadline-agent flamegraph TITLE        draw folded stacks on stdin as SVG on stdout
  leadline-agent --version

serve:
  --bind ADDR         listen on this address; may be repeated (default 127.0.0.1 and ::1)
  --port PORT         port of tcp, udp and rr (default 5201)
  --http-port PORT    port of http (default 8080)
  --http              answer http alone
  --no-http           answer tcp, udp and rr alone
  --https-port PORT   answer http over TLS, too
  --certificate FILE  certificate for TLS, PEM (default: one is made), with
  --key FILE          its key, PEM
  --threads N         threads that answer http (default: one per CPU, at most 16)

who may use it, and how much; a peer is an IPv4 address or an IPv6 network of 64 bits:
  --key-file FILE     answer tcp, udp and rr only to clients with the key in this file; http knows no key
  --max-sessions N    sessions of one peer at once (default 64)
  --max-flows N       flows of one peer at once, over all of its sessions (default 4096)
  --max-connections N http connections of one peer at once (default 32768)
  --max-rate RATE     payload that one session may ask for: 1gbit, 20mbit (default any)
  --max-idle TIME     close a connection that has not asked for a session by then (default 10s)

what http requests get, unless their query says otherwise (?status=503&size=1000&delay=5ms&...):
  --status CODE       status code (default 200)
  --size BYTES        body (default 12)
  --chunked           send the body in chunks
  --delay TIME        mean time before the answer: 5ms, 250us, 1.5s
  --shape SHAPE       how delays are distributed: constant, uniform or exponential (default constant)
  --errors SHARE      share that is answered with 500 instead: 0.01
  --close-after N     close a connection after so many answers
  --stall TIME/TIME   let the whole server stand still: 1s/5s for 1 s every 5 s

examples: leadline-agent serve --bind 0.0.0.0 --key-file key --no-http
          leadline-agent serve --http --delay 5ms --shape exponential --errors 0.01
";

/// What the command line asks for.
enum Mode {
    Obey { cgroup: Option<PathBuf> },
    Serve(Box<standalone::Options>),
    Wireguard(PathBuf),
    Flamegraph(String),
    Print(String),
}

fn main() -> ExitCode {
    let mode = match parse(Parser::from_env()) {
        Ok(mode) => mode,
        Err(error) => return fail(&format!("{error}; see leadline-agent --help"), 2),
    };
    // Where it is refused, a load with too many flows says so itself.
    let _ = leadline_sys::process::raise_file_limit();
    match mode {
        Mode::Print(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Mode::Obey { cgroup } => match control::run(cgroup.as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), 1),
        },
        Mode::Serve(options) => match standalone::serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.message, 2),
        },
        Mode::Flamegraph(title) => match profile::draw(&title, std::io::stdin().lock(), std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("drawing the flame graph: {error}"), 1),
        },
        Mode::Wireguard(config) => match wireguard::run(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), 1),
        },
    }
}

fn fail(message: &str, code: u8) -> ExitCode {
    eprintln!("leadline-agent: {message}");
    ExitCode::from(code)
}

fn parse(mut parser: Parser) -> Result<Mode, lexopt::Error> {
    let mut cgroup = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("cgroup") => cgroup = Some(parser.value()?.into()),
            Arg::Long("help") | Arg::Short('h') => return Ok(Mode::Print(HELP.to_owned())),
            Arg::Long("version") | Arg::Short('V') => {
                return Ok(Mode::Print(format!("leadline-agent {}\n", facts::VERSION)));
            }
            Arg::Value(value) if value == "serve" => {
                return Ok(standalone::Options::parse(parser)?
                    .map_or(Mode::Print(HELP.to_owned()), |options| Mode::Serve(Box::new(options))));
            }
            Arg::Value(value) if value == "wireguard" => {
                let config = parser.value()?.into();
                return match parser.next()? {
                    Some(arg) => Err(arg.unexpected()),
                    None => Ok(Mode::Wireguard(config)),
                };
            }
            Arg::Value(value) if value == "flamegraph" => {
                let title = parser.value()?.to_string_lossy().into_owned();
                return match parser.next()? {
                    Some(arg) => Err(arg.unexpected()),
                    None => Ok(Mode::Flamegraph(title)),
                };
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Mode::Obey { cgroup })
}
