//! What the threads of a scenario have in common: the program, the way to the servers, time limits. Owns every check of
//! the specification.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use leadline_scenario::{compile, Program};
use leadline_sys::clock::realtime_ns;
use leadline_sys::process::file_limit;
use leadline_tls::{ClientSettings, ClientTls};
use leadline_wire::scenario::{SampleRule, SLOWEST_LIMIT};
use leadline_wire::{DnsPolicy, ErrorReport, ScenarioSpec, TlsSpec};

use crate::events::input_error;
use crate::load::net::dialler::Dialler;
use crate::load::net::names::Names;
use crate::load::net::options::{server_tls, tls_settings};

/// Connections of a thread whose users are not limited.
const CONNECTIONS_OF_UNLIMITED_USERS: u64 = 16_384;
/// Descriptors that are left for everything else.
const SPARE_DESCRIPTORS: u64 = 64;

/// What the threads of a scenario have in common.
pub struct Plan {
    /// The program.
    pub program: Arc<Program>,
    /// How connections begin.
    pub dialler: Dialler,
    /// How names are resolved.
    pub names: Arc<Names>,
    /// Time limit of connecting, ns.
    pub connect_timeout_ns: u64,
    /// Time limit of a response, ns.
    pub response_timeout_ns: u64,
    /// Connections of a user to one server at once.
    pub connections_per_user: u32,
    /// Connections of each thread.
    pub connections: usize,
    /// The longest time of the main phase, ns.
    pub duration_ns: u64,
    /// Leading time that is warm-up, ns.
    pub warmup_ns: u64,
    /// Which requests are reported one by one.
    pub samples: Option<SampleRule>,
    /// Whether the figures so far are reported each second.
    pub reports_so_far: bool,
    tls: Option<TlsSpec>,
    /// What TLS connections to all hosts have in common. Made before the start where TLS may be used: it reads the host's
    /// root certificates, which would count as a handshake's time.
    tls_settings: OnceLock<Result<ClientSettings, String>>,
    tls_of_hosts: Mutex<HashMap<Arc<str>, Result<ClientTls, String>>>,
}

impl Plan {
    /// Checks the specification.
    pub fn new(spec: &ScenarioSpec) -> Result<Self, ErrorReport> {
        let bad = |message: &str| Err(input_error("bad_scenario", message));
        if [spec.threads, spec.connections_per_user, spec.timeouts.connect_ms, spec.timeouts.response_ms].contains(&0) {
            return bad("threads, connections_per_user and timeouts have to be at least 1");
        }
        if spec.connections == Some(0) {
            return bad("connections have to be at least 1");
        }
        if spec.route.proxy.is_some() || spec.route.unix_socket.is_some() {
            return bad("a scenario's requests go neither through a proxy nor over a Unix socket");
        }
        if spec.route.dns == DnsPolicy::Connection {
            return bad("a scenario resolves each name once; set dns to run");
        }
        if matches!(spec.samples, Some(SampleRule::Slowest { count }) if count > SLOWEST_LIMIT) {
            return bad(&format!("at most {SLOWEST_LIMIT} of the slowest requests can be kept"));
        }
        let now_ms = (realtime_ns() / 1_000_000) as i64;
        let program = match &spec.plan.replay {
            Some(replay) => super::replay::program(spec, replay)?,
            None => compile(&spec.plan, spec.seed, now_ms)
                .map_err(|error| input_error("bad_scenario", error.to_string()))?,
        };
        let plan = Self {
            dialler: Dialler::new(&spec.route.bind, &spec.socket)?,
            names: Arc::new(Names::new(&spec.route.resolve, spec.ip_version)?),
            connect_timeout_ns: u64::from(spec.timeouts.connect_ms) * 1_000_000,
            response_timeout_ns: u64::from(spec.timeouts.response_ms) * 1_000_000,
            connections_per_user: spec.connections_per_user,
            connections: connections(spec, &program)?,
            duration_ns: spec.duration_ms.saturating_mul(1_000_000),
            warmup_ns: spec.warmup_ms.saturating_mul(1_000_000),
            samples: spec.samples.clone(),
            reports_so_far: spec.reports_so_far,
            tls: spec.tls.as_ref().map(|tls| TlsSpec { early_data: false, ..tls.clone() }),
            tls_settings: OnceLock::new(),
            tls_of_hosts: Mutex::default(),
            program: Arc::new(program),
        };
        if let Some(tls) = plan.tls.as_ref().filter(|_| plan.program.may_use_tls() || spec.plan.replay.is_some()) {
            // An error fails the requests that need TLS; perhaps none does.
            let _ = plan.tls_settings(tls);
        }
        Ok(plan)
    }

    /// Returns what the TLS connections to a host have in common.
    pub fn tls_of(&self, host: &Arc<str>) -> Result<ClientTls, String> {
        let Some(tls) = &self.tls else { return Err(format!("{host} needs TLS, and the specification has none")) };
        let settings = self.tls_settings(tls)?;
        // All threads wait for this lock: what is made under it reads no file.
        let mut all = self.tls_of_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || server_tls(settings, tls, host).map_err(|error| error.message);
        all.entry(Arc::clone(host)).or_insert_with(make).clone()
    }

    fn tls_settings(&self, tls: &TlsSpec) -> Result<&ClientSettings, String> {
        let make = || tls_settings(tls, self.connections as u32).map_err(|error| error.message);
        self.tls_settings.get_or_init(make).as_ref().map_err(String::clone)
    }
}

/// Returns the number of connections that each thread may have open.
fn connections(spec: &ScenarioSpec, program: &Program) -> Result<usize, ErrorReport> {
    let users = program.populations.iter().map(|population| population.most_users().map(u64::from));
    let wanted = users.sum::<Option<u64>>().map_or(CONNECTIONS_OF_UNLIMITED_USERS, |users| {
        users.div_ceil(spec.threads.into()).saturating_mul(spec.connections_per_user.into())
    });
    let wanted = spec.connections.map_or(wanted, |most| wanted.min(most.into())).max(1);
    let descriptors = file_limit().unwrap_or(u64::MAX).saturating_sub(SPARE_DESCRIPTORS) / u64::from(spec.threads);
    if descriptors == 0 {
        return Err(input_error("too_many_open_files", "`ulimit -n` allows no connections"));
    }
    Ok(wanted.min(descriptors).min(1 << 20) as usize)
}

#[cfg(test)]
pub mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use serde_json::json;

    use super::Plan;

    /// A plan of one request, whose server's certificate is verified by the host's own roots.
    pub fn plan(scheme: &str) -> Plan {
        let request = json!({"action": {"kind": "request", "method": ["GET"], "scheme": [scheme], "host": ["a.test"],
            "path": ["/"]}});
        let population = json!({"name": "users", "phase": "main", "on_error": "continue", "flow": [request],
            "arrivals": {"model": "users", "initial": 1, "first": "at_start", "iterations": 1},
            "end": {"kind": "iteration", "grace_ms": 0}});
        let tls = json!({"verify": true, "oldest": "1.2", "newest": "1.3", "cipher_suites": [], "alpn": [],
            "resumption": true, "early_data": false});
        let spec = json!({"plan": {"name": "x", "populations": [population]}, "seed": 1, "threads": 1, "cpus": [],
            "duration_ms": 1, "warmup_ms": 0, "connections_per_user": 6, "interval_ms": 100, "tls": tls,
            "timeouts": {"connect_ms": 1, "response_ms": 1}, "route": {"bind": [], "resolve": [], "dns": "run"},
            "socket": {"delay": false, "fast_open": false}});
        Plan::new(&serde_json::from_value(spec).unwrap()).unwrap()
    }

    #[test]
    fn root_certificates_are_read_once_before_the_start() {
        let file = std::env::temp_dir().join(format!("leadline-scenario-roots-{}.pem", std::process::id()));
        let certificate = leadline_tls::self_signed_certificate(&["a.test".to_owned()]).unwrap();
        std::fs::write(&file, certificate.certificate_pem).unwrap();
        // The environment of a process names the file, so the test has a process of its own.
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "load::scenario::plan::tests::hosts_read_no_root_certificates";
        command.args(["--ignored", "--exact", name]).env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", &file);
        let child = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && stdout.contains("1 passed"), "{stdout}");
        assert!(!file.exists());
    }

    #[test]
    #[ignore = "runs in a separate process, started by the test above"]
    fn hosts_read_no_root_certificates() {
        let before = plan("https");
        std::fs::remove_file(std::env::var_os("SSL_CERT_FILE").unwrap()).unwrap();
        // What verifies could not be made any more.
        let error = plan("https").tls_of(&Arc::from("a.test")).unwrap_err();
        assert!(error.contains("no root certificates"), "{error}");
        for host in ["a.test", "b.test"] {
            assert!(before.tls_of(&Arc::from(host)).is_ok(), "{host}");
        }
    }

    #[test]
    fn root_certificates_are_not_read_for_plain_http() {
        assert!(plan("http").tls_settings.get().is_none());
    }
}
