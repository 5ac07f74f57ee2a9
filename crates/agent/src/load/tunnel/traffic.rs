//! Load through the tunnels, as the fleet's threads use it: a plan that all clients share, and the traffic of each
//! client. A client's traffic gets the time and the received IP packets as arguments, and sends IP packets through a
//! `Channel`. Owns no socket and no tunnel; reads no clock. Each kind of traffic has its own file.

mod echo;
mod http;
mod interface;
mod schedule;
mod session;
mod session_client;
mod target;
mod tcp;
mod udp;

use std::sync::Arc;

use leadline_sys::process::random_u64;
use leadline_wire::{ErrorReport, TunnelTraffic};

use self::echo::EchoPlan;
use self::http::HttpPlan;
pub use self::interface::{Channel, ClientContext, Figures, Traffic, TrafficPlan};
use self::target::server;
use self::tcp::TcpPlan;
use self::udp::UdpPlan;
use crate::events::{input_error, system_error};
use crate::keys;

/// Checks the specification, and returns the plan of the traffic.
///
/// # Errors
///
/// What is wrong with the specification.
pub fn plan(spec: &TunnelTraffic) -> Result<Arc<dyn TrafficPlan>, ErrorReport> {
    // Ports and sequence numbers are derived from it.
    let seed = random_u64().map_err(|error| system_error("asking for random numbers", &error))?;
    Ok(match spec {
        TunnelTraffic::Echo { to, rate_pps, packet_bytes, duration_ms } => {
            Arc::new(EchoPlan::new(to.as_deref(), *rate_pps, *packet_bytes, lasting(*duration_ms)?)?)
        }
        TunnelTraffic::Udp { host, port, direction, rate_pps, datagram_bytes, duration_ms, key } => {
            let key = keys::shared(key.as_ref())?;
            let (server, duration_ms) = (server("udp", host, *port)?, lasting(*duration_ms)?);
            Arc::new(UdpPlan::new(server, *direction, *rate_pps, *datagram_bytes, duration_ms, key, seed)?)
        }
        TunnelTraffic::Tcp { host, port, direction, duration_ms, key } => {
            let key = keys::shared(key.as_ref())?;
            Arc::new(TcpPlan::new(server("tcp", host, *port)?, *direction, lasting(*duration_ms)?, key, seed))
        }
        TunnelTraffic::Http { request, rate_per_s, duration_ms } => {
            Arc::new(HttpPlan::new(request, *rate_per_s, lasting(*duration_ms)?, seed)?)
        }
    })
}

fn lasting(duration_ms: u64) -> Result<u64, ErrorReport> {
    Some(duration_ms)
        .filter(|duration_ms| *duration_ms > 0)
        .ok_or_else(|| input_error("bad_spec", "the duration must be at least 1 ms"))
}

#[cfg(test)]
mod tests;
