//! `leadline-agent`: the data plane. Without arguments it reads commands on stdin and writes events on stdout (see
//! `crates/wire`); `serve` answers load without a control plane; `wireguard` is the embedded VPN. It ends when its
//! stdin does, with all processes that it started.

mod atomic_option;
mod control;
mod control_signal;
mod controller;
mod emulate;
mod events;
mod facts;
mod failures;
mod flows;
mod keys;
mod links;
mod load;
mod locking;
mod logging;
mod machine_meter;
mod metering;
mod patience;
mod process;
mod profile;
mod rate_text;
mod serve;
mod soaker;
mod standalone;
mod task;
mod undo;
mod wake_up;
mod watch;
mod wireguard;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use leadline_sys::reason::reason;
use lexopt::{Arg, Parser, ValueExt};

const HELP: &str = "\
leadline-agent: generates network load, answers it, and watches the host

  leadline-agent [--cgroup DIR]          run JSON commands from stdin, write events to stdout
  leadline-agent serve [OPTIONS]         answer tcp, udp, rr and http load until stopped
  leadline-agent wireguard CONFIG        an embedded WireGuard interface
  leadline-agent flamegraph TITLE        draw folded stacks from stdin as SVG on stdout
  leadline-agent soaker                  use what is left of each CPU; started by the agent alone
  leadline-agent undo                    undo what an agent changed when that agent ends; started by the agent alone
  leadline-agent --version

options of all modes:
  --log LEVEL|FILTER  log decisions and changes to stderr, one per line (default off). LEVEL is error, warn, info, debug
                      or trace; a FILTER has levels of modules, as in warn,serve=debug,load::http=info. LEADLINE_LOG
                      sets it too; --log takes precedence

serve:
  --bind ADDR         listen on this address; may be repeated (default 127.0.0.1 and ::1)
  --port PORT         port of tcp, udp and rr (default 5201)
  --http-port PORT    port of http (default 8080)
  --http              answer only http
  --no-http           answer only tcp, udp and rr
  --https-port PORT   port of http over TLS
  --certificate FILE  certificate for TLS, PEM (default: a self-signed one), with
  --key FILE          its key, PEM
  --threads N         threads that answer http (default: one per CPU, at most 16)

access and limits of serve; a peer is an IPv4 address or an IPv6 network of 64 bits:
  --key-file FILE     answer tcp, udp and rr only to clients with the key in this file; http has no key
  --max-sessions N    sessions of one peer at once (default 64)
  --max-flows N       flows of one peer at once, over all of its sessions (default 4096)
  --max-connections N http connections of one peer at once (default 32768)
  --max-rate RATE     what is sent to a peer, over sessions and HTTP: 1gbit, 20mbit (default unlimited)
  --max-idle TIME     close a connection without a request for a session after this time (default 10s)

users of iperf3 clients, by iperf3's names; the two files go together:
  --authorized-users-path FILE  lines of NAME,HASH with the SHA-256 of {NAME}PASSWORD
  --rsa-private-key-path FILE   the private RSA key, PEM
  --use-pkcs1-padding           the padding of clients before 3.17 (default: OAEP)
  --time-skew-threshold SECONDS how far a client's clock may be off (default 10)

default response to http requests; a query changes it (?status=503&size=1000&delay=5ms&...):
  --status CODE       status code (default 200)
  --size BYTES        body length (default 12)
  --chunked           send the body in chunks
  --delay TIME        mean time before the response: 5ms, 250us, 1.5s
  --shape SHAPE       distribution of delays: constant, uniform or exponential (default constant)
  --errors SHARE      share of responses with status 500: 0.01
  --close-after N     close a connection after N responses
  --stall TIME/TIME   stall the whole server: 1s/5s stalls for 1 s every 5 s

examples: leadline-agent serve --bind 0.0.0.0 --key-file key --no-http
          leadline-agent serve --http --delay 5ms --shape exponential --errors 0.01
          leadline-agent serve --no-http --log debug 2> events.log
";

/// The mode and the filter of `--log` on the command line.
struct CommandLine {
    mode: Mode,
    log: Option<String>,
}

enum Mode {
    Obey { cgroup: Option<PathBuf> },
    Serve(Box<standalone::Options>),
    Wireguard(PathBuf),
    Flamegraph(String),
    Soaker,
    Undo,
    Print(String),
}

fn main() -> ExitCode {
    let CommandLine { mode, log } = match parse(Parser::from_env()) {
        Ok(command_line) => command_line,
        Err(error) => return fail(&format!("{error}; see leadline-agent --help"), 2),
    };
    if let Mode::Print(text) = &mode {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    if let Err(error) = logging::start(log) {
        return fail(&error.to_string(), 2);
    }
    if let Some(given) = std::env::var_os(CLOCK_SHIFT) {
        let Some(by) = given.to_str().and_then(read_clock_shift) else {
            return fail(&format!("{CLOCK_SHIFT}: not an offset in ns and a drift in ppb, as in 1000000,-50000"), 2);
        };
        leadline_sys::clock::shift(by);
    }
    // If the limit cannot be raised, a load with too many flows reports this itself.
    let _ = leadline_sys::process::raise_file_limit();
    match mode {
        Mode::Print(_) => ExitCode::SUCCESS,
        Mode::Obey { cgroup } => match control::run(cgroup.as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&reason(&error), 1),
        },
        Mode::Serve(options) => match standalone::serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.message, 2),
        },
        Mode::Flamegraph(title) => match profile::draw(&title, std::io::stdin().lock(), std::io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("drawing the flame graph: {}", reason(&error)), 1),
        },
        Mode::Soaker => match soaker::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("soaker: {}", reason(&error)), 2),
        },
        Mode::Undo => match undo::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("undo: {}", reason(&error)), 2),
        },
        Mode::Wireguard(config) => match wireguard::run(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string(), 1),
        },
    }
}

/// The environment variable that shifts the clock of this process: `OFFSET_NS,DRIFT_PPB`; for tests of hosts whose clocks
/// differ, on one machine.
const CLOCK_SHIFT: &str = "LEADLINE_CLOCK_SHIFT";

fn read_clock_shift(given: &str) -> Option<leadline_sys::clock::Shift> {
    let (offset, drift) = given.split_once(',')?;
    Some(leadline_sys::clock::Shift { offset_ns: offset.parse().ok()?, drift_ppb: drift.parse().ok()? })
}

fn fail(message: &str, code: u8) -> ExitCode {
    eprintln!("leadline-agent: {message}");
    ExitCode::from(code)
}

fn parse(mut parser: Parser) -> Result<CommandLine, lexopt::Error> {
    let (mut cgroup, mut log) = (None, None);
    let mode = loop {
        match parser.next()? {
            None => break Mode::Obey { cgroup },
            Some(Arg::Long("cgroup")) => cgroup = Some(parser.value()?.into()),
            Some(Arg::Long("log")) => log = Some(parser.value()?.string()?),
            Some(Arg::Long("help") | Arg::Short('h')) => break Mode::Print(HELP.to_owned()),
            Some(Arg::Long("version") | Arg::Short('V')) => {
                break Mode::Print(format!("leadline-agent {} ({})\n", facts::VERSION, facts::BUILD_PROFILE));
            }
            Some(Arg::Value(value)) if value == "serve" => {
                let options = standalone::Options::parse(parser, &mut log)?;
                break options.map_or(Mode::Print(HELP.to_owned()), |options| Mode::Serve(Box::new(options)));
            }
            Some(Arg::Value(value)) if value == "wireguard" => {
                break Mode::Wireguard(only_value(parser, &mut log)?.into());
            }
            Some(Arg::Value(value)) if value == "flamegraph" => {
                break Mode::Flamegraph(only_value(parser, &mut log)?.to_string_lossy().into_owned());
            }
            Some(Arg::Value(value)) if value == "soaker" => break Mode::Soaker,
            Some(Arg::Value(value)) if value == "undo" => break Mode::Undo,
            Some(other) => return Err(other.unexpected()),
        }
    };
    Ok(CommandLine { mode, log })
}

/// The value that a subcommand takes, with `--log` before or after it.
fn only_value(mut parser: Parser, log: &mut Option<String>) -> Result<OsString, lexopt::Error> {
    let mut value = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("log") => *log = Some(parser.value()?.string()?),
            Arg::Value(text) if value.is_none() => value = Some(text),
            other => return Err(other.unexpected()),
        }
    }
    value.ok_or(lexopt::Error::MissingValue { option: None })
}
