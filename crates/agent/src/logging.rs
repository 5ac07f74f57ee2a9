//! The agent's log: events of `tracing`, one line each on stderr. It is off unless `--log` or `LEADLINE_LOG` names a filter.
//! Without a filter no subscriber exists, and an event costs one relaxed load of a static level. Owns the filter's grammar and
//! the format; the modules that make decisions define the events. No event is on the measured path, and none has a secret as
//! a field (`tests/unit/test_architecture.py` and `tests/lab/test_tunnel_secrets.py` hold this).

use std::env::{self, VarError};
use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// The environment variable with the filter if `--log` is absent.
const VARIABLE: &str = "LEADLINE_LOG";
/// The modules that a filter may name: those of this crate, and the WireGuard library.
const MODULES: [&str; 12] = [
    "control",
    "controller",
    "failures",
    "links",
    "load",
    "process",
    "profile",
    "serve",
    "soaker",
    "standalone",
    "undo",
    "wireguard",
];
const LIBRARY: &str = "boringtun";
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// The reason why a requested log cannot be started. One line each.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("{source_name} {filter:?}: {reason}")]
    Filter {
        /// The option or the variable.
        source_name: &'static str,
        /// Its text.
        filter: String,
        /// The error.
        reason: String,
    },
    /// A subscriber exists already.
    #[error("starting the log: {0}")]
    Start(#[from] TryInitError),
}

/// Starts the log if the option or, in its absence, the environment names a filter.
pub fn start(option: Option<String>) -> Result<(), LogError> {
    let (source_name, filter) = match (option, env::var(VARIABLE)) {
        (Some(filter), _) => ("--log", filter),
        (None, Ok(filter)) if !filter.is_empty() => (VARIABLE, filter),
        (None, Err(VarError::NotUnicode(text))) => (VARIABLE, text.to_string_lossy().into_owned()),
        (None, _) => return Ok(()),
    };
    let targets = parse(&filter).map_err(|reason| LogError::Filter { source_name, filter, reason })?;
    if targets.iter().all(|(_, level)| level == LevelFilter::OFF) {
        return Ok(());
    }
    // If stderr is closed, the agent continues without its log.
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr).log_internal_errors(false);
    Ok(tracing_subscriber::registry().with(lines).with(targets).try_init()?)
}

/// Reads a filter: levels of all modules or of named ones, separated by commas.
fn parse(filter: &str) -> Result<Targets, String> {
    filter.split(',').try_fold(Targets::new(), |targets, one| {
        let (name, level) = one.split_once('=').map_or((None, one), |(name, level)| (Some(name.trim()), level));
        let level = parse_level(level.trim())?;
        Ok(targets.with_target(name.map_or(Ok(env!("CARGO_CRATE_NAME").to_owned()), target)?, level))
    })
}

fn parse_level(name: &str) -> Result<LevelFilter, String> {
    let known = LEVELS.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, level)| level).ok_or_else(|| {
        let names = LEVELS.map(|(name, _)| name).join(", ");
        format!("{name:?} is not a level; give one of {names}, or MODULE=LEVEL")
    })
}

/// The module's whole name: "load::http" is "leadline_agent::load::http".
fn target(name: &str) -> Result<String, String> {
    let crate_name = env!("CARGO_CRATE_NAME");
    let own = name.strip_prefix(crate_name).and_then(|rest| rest.strip_prefix("::")).unwrap_or(name);
    match own.split("::").next() {
        Some(LIBRARY) => Ok(own.to_owned()),
        Some(module) if MODULES.contains(&module) => Ok(format!("{crate_name}::{own}")),
        _ => Err(format!("no module {name:?} has a log; give one of {}, {LIBRARY}", MODULES.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_is_for_all_modules_of_the_agent() {
        let targets = parse("Info").unwrap();
        assert!(targets.would_enable("leadline_agent::serve::session", &Level::INFO));
        assert!(!targets.would_enable("leadline_agent::serve::session", &Level::DEBUG));
        assert!(!targets.would_enable("boringtun::noise", &Level::ERROR), "the library's events are asked for by name");
    }

    #[test]
    fn the_longest_name_decides() {
        let targets = parse("warn, load=info,leadline_agent::load::http=trace,boringtun=debug").unwrap();
        for (name, level, is_on) in [
            ("leadline_agent::control", Level::INFO, false),
            ("leadline_agent::load::tunnel", Level::INFO, true),
            ("leadline_agent::load::tunnel", Level::DEBUG, false),
            ("leadline_agent::load::http::plan", Level::TRACE, true),
            ("boringtun::noise", Level::DEBUG, true),
        ] {
            assert_eq!(targets.would_enable(name, &level), is_on, "{name} {level}");
        }
    }

    #[test]
    fn a_filter_may_name_the_soaker() {
        assert!(parse("soaker=info").unwrap().would_enable("leadline_agent::soaker", &Level::INFO));
    }

    #[test]
    fn a_wrong_filter_names_what_could_be_given() {
        for (filter, reason) in [
            ("", "\"\" is not a level; give one of off, error, warn, info, debug, trace, or MODULE=LEVEL"),
            ("verbose", "\"verbose\" is not a level"),
            ("info,", "\"\" is not a level"),
            ("serve=loud", "\"loud\" is not a level"),
            ("server=info", "no module \"server\" has a log; give one of control, controller, failures,"),
            ("serve", "\"serve\" is not a level"),
        ] {
            let error = parse(filter).unwrap_err();
            assert!(error.starts_with(reason), "{filter}: {error}");
        }
    }

    #[test]
    fn without_a_filter_the_static_level_is_off() {
        start(Some("off,serve=off".to_owned())).unwrap();
        assert_eq!(LevelFilter::current(), LevelFilter::OFF);
    }
}
