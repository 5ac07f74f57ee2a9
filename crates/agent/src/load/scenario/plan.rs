//! What the threads of a scenario have in common: the program, the way to the servers, time limits. Owns every check of
//! the specification.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use leadline_script::scenario::{compile, Program};
use leadline_sys::clock::realtime_ns;
use leadline_sys::connect::TcpOptions;
use leadline_sys::process::file_limit;
use leadline_tls::ClientTls;
use leadline_wire::scenario::{SampleRule, SLOWEST_LIMIT};
use leadline_wire::{DnsPolicy, ErrorReport, IpVersion, ScenarioSpec, TlsSpec};

use crate::events::input_error;
use crate::load::http::plan::{client_tls, tcp_options};
use crate::load::session::parse_bind;

/// Connections of a thread whose users are not limited.
const CONNECTIONS_OF_UNLIMITED_USERS: u64 = 16_384;
/// Descriptors that are left for everything else.
const SPARE_DESCRIPTORS: u64 = 64;

/// What the threads of a scenario have in common.
pub struct Plan {
    /// The program.
    pub program: Arc<Program>,
    /// Local addresses, which connections use in turn.
    pub binds: Vec<IpAddr>,
    /// Socket options.
    pub options: TcpOptions,
    /// Addresses of names that are not resolved.
    pub resolved: HashMap<(String, u16), IpAddr>,
    /// The required address family.
    pub ip_version: Option<IpVersion>,
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
        let program = compile(&spec.plan, spec.seed, now_ms);
        let program = program.map_err(|error| input_error("bad_scenario", error.to_string()))?;
        let binds = spec.route.bind.iter().map(|text| parse_bind(Some(text)));
        let binds = binds.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
        let mut resolved = HashMap::new();
        for one in &spec.route.resolve {
            let unreadable = |_| input_error("bad_address", format!("resolve: {} is not an IP address", one.address));
            let address = one.address.parse().map_err(unreadable)?;
            resolved.insert((one.host.to_ascii_lowercase(), one.port), address);
        }
        Ok(Self {
            binds,
            options: tcp_options(&spec.socket)?,
            resolved,
            ip_version: spec.ip_version,
            connect_timeout_ns: u64::from(spec.timeouts.connect_ms) * 1_000_000,
            response_timeout_ns: u64::from(spec.timeouts.response_ms) * 1_000_000,
            connections_per_user: spec.connections_per_user,
            connections: connections(spec, &program)?,
            duration_ns: spec.duration_ms.saturating_mul(1_000_000),
            warmup_ns: spec.warmup_ms.saturating_mul(1_000_000),
            samples: spec.samples.clone(),
            reports_so_far: spec.reports_so_far,
            tls: spec.tls.as_ref().map(|tls| TlsSpec { early_data: false, ..tls.clone() }),
            tls_of_hosts: Mutex::default(),
            program: Arc::new(program),
        })
    }

    /// Returns what the TLS connections to a host have in common.
    pub fn tls_of(&self, host: &Arc<str>) -> Result<ClientTls, String> {
        let mut all = self.tls_of_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || client_tls(self.tls.as_ref(), host, self.connections as u32).map_err(|error| error.message);
        all.entry(Arc::clone(host)).or_insert_with(make).clone()
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
