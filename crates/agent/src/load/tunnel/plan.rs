//! The plan of a fleet: everything that its clients have in common, made of its specification. Owns every check of
//! the specification, so that later steps cannot fail because of a bad value. The protocol's part (files, servers,
//! identities) is in the modules below.

mod ikev2;
mod openvpn;
mod protocol_plan;
mod servers;
mod wireguard;

use std::net::IpAddr;
use std::sync::Arc;

use leadline_pace::{Stage, Stages};
use leadline_sys::process::file_limit;
use leadline_tunnel::client::expectation::Expectation;
use leadline_tunnel::client::settings::{PingSettings, Settings};
use leadline_tunnel::openvpn::message::net::parse as parse_network;
use leadline_wire::{ErrorReport, TunnelAction, TunnelExpectation, TunnelIdentities, TunnelSpec};

use super::traffic::{self, TrafficPlan};
use crate::events::input_error;
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
        let binds = spec.bind.iter().filter_map(|bind| parse_bind(Some(bind)).transpose());
        let binds = binds.collect::<Result<Vec<IpAddr>, _>>()?;
        let own = match &spec.identities {
            TunnelIdentities::Wireguard { files } => wireguard::plan(spec, files, &binds)?,
            TunnelIdentities::Ikev2 { connection, files } => ikev2::plan(spec, connection.as_deref(), files, &binds)?,
            _ => openvpn::plan(spec, &binds)?,
        };
        let ping_ns = spec.ping_ms.map(|ms| u64::from(ms) * 1_000_000);
        // If some clients are settled, only they ping: their pings show the effect of the arrivals.
        let pinging = if spec.settled > 0 { spec.settled } else { spec.clients };
        let settings = Settings {
            servers: own.servers,
            attempt_ns: u64::from(spec.attempt_ms) * 1_000_000,
            retries: spec.retries,
            expectation: expectation(&spec.expect, own.ciphers)?,
            mtu: own.mtu,
            first_data_ns: u64::from(spec.first_data_ms) * 1_000_000,
            pings: ping_ns.map(|gap_ns| PingSettings { gap_ns, clients: pinging }),
            protocol: own.protocol,
        };
        Ok(Self {
            has_random_remotes: own.has_random_remotes,
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
            ignored: own.ignored,
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
