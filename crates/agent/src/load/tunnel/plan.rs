//! The plan of a fleet: everything that its clients have in common, made of its specification. Owns every check of
//! the specification, so that later steps cannot fail because of a bad value. Reads the profile, resolves its
//! servers, and creates the clients' identities.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use leadline_pace::{Stage, Stages};
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_sys::net;
use leadline_sys::process::file_limit;
use leadline_sys::reason::reason;
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::server::Server;
use leadline_tunnel::client::settings::{PingSettings, Settings};
use leadline_tunnel::openvpn::config::{ClientConfig, Identity};
use leadline_tunnel::openvpn::fleet::OpenVpn;
use leadline_tunnel::openvpn::identity::Authority;
use leadline_tunnel::openvpn::message::net::parse as parse_network;
use leadline_tunnel::openvpn::profile::{self, Family, Profile, Remote};
use leadline_tunnel::secret::Secret;
use leadline_wire::{Blame, ErrorReport, IpVersion, TunnelAction, TunnelExpectation, TunnelIdentities, TunnelSpec};

use super::traffic::{self, TrafficPlan};
use crate::events::{error_code, input_error, system_error};
use crate::load::net::names::look_up;
use crate::load::session::parse_bind;

/// The common part of a fleet's clients.
pub struct Plan {
    /// The settings that the clients' machines share.
    pub settings: Arc<Settings>,
    /// Whether clients begin with different servers (`remote-random`).
    pub has_random_remotes: bool,
    /// Local addresses to which sockets are bound, in turn.
    pub binds: Vec<IpAddr>,
    /// The number of clients.
    pub clients: u32,
    /// The number of settled clients: the first ones, which connect before the others.
    pub settled: u32,
    /// The time limit of the settled clients, ns.
    pub settling_ns: u64,
    /// The rate at which the other clients arrive; all at once if absent.
    pub arrivals: Option<Stages>,
    /// How long the fleet stays after the first arrival, ns.
    pub duration_ns: u64,
    /// Time between pings, ns.
    pub ping_ns: Option<u64>,
    /// How long pings alone keep the fleet running after the arrivals, ns.
    pub pinged_ns: Option<u64>,
    /// Scheduled actions of connected clients.
    pub actions: Vec<TunnelAction>,
    /// Load through the tunnels.
    pub traffic: Option<Arc<dyn TrafficPlan>>,
    /// Options of the profile that have no meaning for a fleet.
    pub ignored: Vec<String>,
}

/// Descriptors that the agent needs in addition to the clients' sockets.
const OTHER_FILES: u64 = 64;

impl Plan {
    /// Checks the specification; also creates the certificates if it asks for this.
    ///
    /// # Errors
    ///
    /// What is wrong, and what would be right.
    pub fn new(spec: &TunnelSpec) -> Result<Self, ErrorReport> {
        check_numbers(spec)?;
        let profile = profile::parse(&spec.profile);
        let profile = profile.map_err(|error| input_error("bad_profile", format!("profile: {error}")))?;
        let unix_base_s = realtime_ns().saturating_sub(monotonic_ns()) / 1_000_000_000;
        let config = ClientConfig::new(&profile, unix_base_s).map_err(|message| input_error("bad_profile", message))?;
        let binds = spec.bind.iter().filter_map(|bind| parse_bind(Some(bind)).transpose());
        let binds = binds.collect::<Result<Vec<IpAddr>, _>>()?;
        let (servers, passed_over) = in_reach(&profile.remotes, &binds)?;
        let ignored = profile.ignored.iter().map(ToString::to_string).chain(passed_over);
        let ping_ns = spec.ping_ms.map(|ms| u64::from(ms) * 1_000_000);
        // If some clients are settled, only they ping: their pings show the effect of the arrivals.
        let pinging = if spec.settled > 0 { spec.settled } else { spec.clients };
        let settings = Settings {
            servers,
            attempt_ns: u64::from(spec.attempt_ms) * 1_000_000,
            retries: spec.retries,
            expectation: expectation(&spec.expect, config.ciphers.iter().map(|cipher| cipher.name()).collect())?,
            mtu: profile.tun_mtu,
            first_data_ns: u64::from(spec.first_data_ms) * 1_000_000,
            pings: ping_ns.map(|gap_ns| PingSettings { gap_ns, clients: pinging }),
            protocol: Arc::new(OpenVpn { identities: identities(&config, &profile, spec)?, config: Arc::new(config) }),
        };
        Ok(Self {
            has_random_remotes: profile.remote_random,
            binds,
            clients: spec.clients,
            settled: spec.settled,
            settling_ns: spec.settling_ms.saturating_mul(1_000_000),
            arrivals: arrivals(spec)?,
            duration_ns: spec.duration_ms.saturating_mul(1_000_000),
            ping_ns,
            pinged_ns: spec.pinged_ms.map(|ms| u64::from(ms) * 1_000_000),
            actions: spec.actions.clone(),
            traffic: spec.traffic.as_ref().map(traffic::plan).transpose()?,
            ignored: ignored.collect(),
            settings: Arc::new(settings),
        })
    }

    /// The local address of a client's socket.
    pub fn bind(&self, client: u32) -> Option<IpAddr> {
        (!self.binds.is_empty()).then(|| self.binds[client as usize % self.binds.len()])
    }

    /// The index of the server of a client's first attempt. If the profile selects servers at random, the clients are
    /// distributed evenly, as chance does with many.
    pub fn first_remote(&self, client: u32) -> u32 {
        if self.has_random_remotes {
            client % self.settings.servers.len() as u32
        } else {
            0
        }
    }

    /// When a client is due after the arrivals have begun, ns; `None` if the stages end before its turn. For a
    /// settled client, the time after the start.
    pub fn due_ns(&self, client: u32) -> Option<u64> {
        let Some(number) = client.checked_sub(self.settled) else {
            return Some(u64::from(client) * SETTLING_GAP_NS);
        };
        match &self.arrivals {
            None => Some(0),
            Some(stages) => (u64::from(number) < stages.count()).then(|| stages.due_ns(u64::from(number))),
        }
    }
}

/// Settled clients arrive one after another: if all came at once, their own arrivals would disturb the baseline.
const SETTLING_GAP_NS: u64 = 10_000_000;

fn check_numbers(spec: &TunnelSpec) -> Result<(), ErrorReport> {
    let bad = |message: String| Err(input_error("bad_tunnel", message));
    let least_one = [spec.clients, spec.threads, spec.attempt_ms, spec.first_data_ms, spec.interval_ms];
    if least_one.contains(&0) || spec.duration_ms == 0 || spec.ping_ms == Some(0) {
        return bad(
            "clients, threads, duration, interval, ping and the times of an attempt have to be at least 1".into()
        );
    }
    if spec.settled > spec.clients {
        return bad(format!("settled: {} of {} clients", spec.settled, spec.clients));
    }
    let needed = u64::from(spec.clients) + OTHER_FILES;
    if let Some(limit) = file_limit().filter(|limit| *limit < needed) {
        let message = format!(
            "{} clients need {needed} descriptors, `ulimit -n` allows {limit}: raise it, or ask for fewer clients",
            spec.clients
        );
        return Err(input_error("too_many_open_files", message));
    }
    Ok(())
}

fn arrivals(spec: &TunnelSpec) -> Result<Option<Stages>, ErrorReport> {
    if spec.arrivals.is_empty() {
        return Ok(None);
    }
    let stages = spec.arrivals.iter().map(|stage| Stage {
        from_per_s: stage.from_per_s,
        to_per_s: stage.to_per_s,
        duration_ns: stage.duration_ms.saturating_mul(1_000_000),
    });
    Stages::new(stages).map(Some).map_err(|error| input_error("bad_rate", format!("arrivals: {error}")))
}

/// Resolves the address of a server. If sockets are bound, it must be of a family to which they can be bound.
fn resolve(remote: &Remote, binds: &[IpAddr]) -> Result<Server, ErrorReport> {
    let bound = match binds {
        [] => None,
        [first, ..] if first.is_ipv4() => Some(IpVersion::V4),
        _ => Some(IpVersion::V6),
    };
    let family = remote.family.map(|family| match family {
        Family::V4 => IpVersion::V4,
        Family::V6 => IpVersion::V6,
    });
    let named =
        |error: ErrorReport| ErrorReport { message: format!("remote {}: {}", remote.host, error.message), ..error };
    let address = look_up(&remote.host, remote.port, family.or(bound)).map_err(named)?.first();
    if let Some(other) = binds.iter().find(|bind| bind.is_ipv4() != address.is_ipv4()) {
        let message = format!("bind: {other} cannot reach {address}: they are of different families");
        return Err(input_error("bad_address", message));
    }
    Ok(Server { address, transport: remote.transport })
}

/// Returns the servers for which this host has an address and a route, and a message for each of the others: no
/// attempt could change that, and OpenVPN goes on to its next server.
fn in_reach(remotes: &[Remote], binds: &[IpAddr]) -> Result<(Vec<Server>, Vec<String>), ErrorReport> {
    let (mut reached, mut passed_over, mut first) = (Vec::new(), Vec::new(), None);
    for remote in remotes {
        match resolve(remote, binds).and_then(|server| reach(server, binds)) {
            Ok(server) => reached.push(server),
            Err(error) if error.code == "too_many_open_files" => return Err(error),
            Err(error) => {
                passed_over.push(error.message.clone());
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(first) if reached.is_empty() => {
            let message = format!("{}; add it, or give the profile another remote", passed_over.join("; "));
            Err(ErrorReport { message, ..first })
        }
        _ => Ok((reached, passed_over)),
    }
}

/// Returns the first server to which a socket can connect. Connecting a UDP socket only sets its peer: no packet is
/// sent.
fn reach(server: Server, binds: &[IpAddr]) -> Result<Server, ErrorReport> {
    let any = if server.address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let from = SocketAddr::new(binds.first().copied().unwrap_or(any), 0);
    net::udp_socket(from, Some(server.address), false).map(|_| server).map_err(|error| match error_code(&error) {
        "too_many_open_files" => system_error("opening a socket", &error),
        code => {
            let message = format!("remote {}: this host {}", server.address, unreachable_reason(&from, &error));
            ErrorReport { blame: Blame::System, code: code.to_owned(), message }
        }
    })
}

/// Returns what the host lacks if a socket cannot even be connected to a server.
fn unreachable_reason(from: &SocketAddr, error: &io::Error) -> String {
    let family = if from.is_ipv4() { "IPv4" } else { "IPv6" };
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => format!("has no {family} address to reach it from"),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "has no route to it".to_owned(),
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => format!("has no {family}"),
        _ if !from.ip().is_unspecified() => format!("cannot reach it from {} ({})", from.ip(), reason(error)),
        _ => format!("cannot reach it ({})", reason(error)),
    }
}

/// Returns what must be assigned to clients; a cipher must be one of `offered`.
fn expectation(spec: &TunnelExpectation, offered: Vec<&'static str>) -> Result<Expectation, ErrorReport> {
    let nets = |name: &str, texts: &[String]| {
        let net =
            |text: &String| parse_network(text).map_err(|error| input_error("bad_network", format!("{name}: {error}")));
        texts.iter().map(net).collect::<Result<Vec<_>, ErrorReport>>()
    };
    let address = |name: &str, text: &String| -> Result<IpAddr, ErrorReport> {
        text.parse().map_err(|_| input_error("bad_address", format!("{name}: `{text}` is no IP address")))
    };
    Ok(Expectation {
        pools: nets("expect.pools", &spec.pools)?,
        routes: nets("expect.routes", &spec.routes)?,
        dns: spec.dns.iter().map(|text| address("expect.dns", text)).collect::<Result<_, _>>()?,
        options: spec.options.clone(),
        echo: spec.echo.as_ref().map(|text| address("expect.echo", text)).transpose()?,
        offered,
    })
}

/// Returns the distinct identities; client n has number n, and after the last one follows the first again.
fn identities(config: &ClientConfig, profile: &Profile, spec: &TunnelSpec) -> Result<Vec<Identity>, ErrorReport> {
    let bad = |owner: &str| {
        let owner = owner.to_owned();
        move |message: String| input_error("bad_identity", format!("{owner}: {message}"))
    };
    let own_user = profile.user.clone();
    if profile.wants_user && own_user.is_none() && spec.users.is_empty() {
        return Err(input_error("no_users", "the profile asks for a user and a password (auth-user-pass): give users"));
    }
    let make = |certificate: Option<(&str, &str)>, owner: &str| {
        config.identity(certificate, own_user.clone()).map_err(bad(owner))
    };
    let certified: Vec<Identity> = match &spec.identities {
        TunnelIdentities::Profile {} => {
            let own = profile.cert.as_deref().zip(profile.key.as_ref().map(Secret::expose));
            vec![make(own, "the profile's certificate")?]
        }
        TunnelIdentities::Given { identities } if identities.is_empty() => {
            return Err(input_error("bad_identity", "there are no identities"));
        }
        TunnelIdentities::Given { identities } => {
            let numbered = identities.iter().zip(1..);
            let each = numbered
                .map(|(one, number)| make(Some((&one.certificate_pem, &one.key_pem)), &format!("identity {number}")));
            each.collect::<Result<_, _>>()?
        }
        TunnelIdentities::Issued { authority_pem, authority_key_pem, name_prefix } => {
            let now_unix_s = realtime_ns() / 1_000_000_000;
            let authority = Authority::new(authority_pem, authority_key_pem, now_unix_s);
            let authority = authority.map_err(|error| bad("issued")(error.to_string()))?;
            let each = (0..spec.clients).map(|number| {
                let owner = format!("{name_prefix}{number}");
                let one = authority.issue(name_prefix, number).map_err(|error| bad(&owner)(error.to_string()))?;
                make(Some((&one.certificate_pem, one.key_pem.expose())), &owner)
            });
            each.collect::<Result<_, _>>()?
        }
    };
    if spec.users.is_empty() {
        return Ok(certified);
    }
    // Client n has user n and certificate n; after its last one, each list begins again.
    let combined = 0..(spec.clients as usize).min(least_common_multiple(certified.len(), spec.users.len()));
    let user = |number: usize| {
        let user = &spec.users[number % spec.users.len()];
        (user.user.clone(), Secret::from(user.password.as_str()))
    };
    let identity = |number: usize| Identity { user: Some(user(number)), ..certified[number % certified.len()].clone() };
    Ok(combined.map(identity).collect())
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut larger, mut smaller) = (a.max(b), a.min(b));
    while smaller > 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    (a / larger.max(1)).saturating_mul(b)
}
