//! The servers of load: the session listener (tcp, udp, rr) and the HTTP responder, on the requested addresses.

mod admission;
mod descriptors;
pub mod http;
mod iperf3;
mod iperf3_claims;
mod iperf3_request;
mod iperf3_tests;
mod listener;
mod occupancy;
mod peer_rate;
mod pending;
mod session;
mod session_reader;
mod shared;
mod shares;

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

use leadline_sys::{net, process, tcp};
use leadline_transport::iperf3::Iperf3Gate;
use leadline_wire::{ErrorReport, ServeSpec};
use tracing::info;

use self::descriptors::Doors;
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::keys;

/// How many ports are tried if any port will do and there are several addresses.
const ANY_PORT_ATTEMPTS: usize = 16;

/// Listeners that run until the signal stops them.
pub struct Server {
    /// The session port, as bound.
    pub port: Option<u16>,
    /// The HTTP port, as bound.
    pub http_port: Option<u16>,
    /// The port of HTTP over TLS, as bound.
    pub https_port: Option<u16>,
    threads: Vec<JoinHandle<()>>,
    /// The listeners of HTTP, which its threads have too.
    http_listeners: Vec<TcpListener>,
}

impl Server {
    /// Waits, after the stop signal, until the ports are free again.
    pub fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
        for listener in &self.http_listeners {
            // It fails only where it does not listen any more.
            let _ = tcp::stop_listening(listener);
        }
    }
}

/// Binds every listener, or none; the error names an address that is in use.
pub fn start(spec: &ServeSpec, signal: &Arc<ControlSignal>) -> Result<Server, ErrorReport> {
    let addresses = spec.bind.iter().map(|text| parse_address(text)).collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() || (spec.port.is_none() && spec.http_port.is_none() && spec.https_port.is_none()) {
        return Err(input_error("bad_spec", "serve needs an address and at least one port"));
    }
    let (behaviour, stalls) = http::behaviour(&spec.answer)?;
    let tls = spec.https_port.map(|_| http::tls(&spec.answer, &spec.bind)).transpose()?;
    let (port, sessions) = on_one_port(&addresses, spec.port, bind_both, |(listener, _)| listener)?;
    let (http_port, plain) = on_one_port(&addresses, spec.http_port, bind_tcp, |listener| listener)?;
    let (https_port, secure) = on_one_port(&addresses, spec.https_port, bind_tcp, |listener| listener)?;
    info!(bind = spec.bind.join(", "), port, http_port, https_port, needs_key = spec.key.is_some(), "listening");
    let per_peer = spec.per_peer.clone().unwrap_or_default();
    let doors = Doors { session_listeners: sessions.len() as u64, has_http: !plain.is_empty() || !secure.is_empty() };
    let budget = descriptors::divide(process::file_limit().unwrap_or(u64::MAX), process::open_files(), doors);
    info!(?budget, "descriptors are divided");
    let limits = admission::Limits { longest_ms: spec.longest_ms, most_flows: spec.most_flows, per_peer };
    let gate = spec.iperf3_users.as_ref().map(Iperf3Gate::new).transpose();
    let gate = gate.map_err(|error| input_error("bad_iperf3_users", format!("users of iperf3: {error}")))?;
    let shared = Arc::new(shared::ServerShared::new(limits, budget, keys::shared(spec.key.as_ref())?, gate)?);
    let http_listeners = plain.iter().chain(&secure).map(TcpListener::try_clone).collect::<Result<Vec<_>, _>>();
    let http_listeners = http_listeners.map_err(|error| system_error("starting the HTTP responder", &error))?;
    let mut threads = sessions
        .into_iter()
        .map(|(listener, socket)| listener::listen(listener, socket, Arc::clone(&shared), Arc::clone(signal)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| system_error("starting the session listener", &error))?;
    if doors.has_http {
        let (occupancy, connections) = (Arc::clone(&shared.occupancy), budget.http as usize);
        let service =
            http::Service { plain, secure, tls, behaviour, stalls, threads: spec.threads, occupancy, connections };
        let workers = http::listen(service, signal);
        threads.extend(workers.map_err(|error| system_error("starting the HTTP responder", &error))?);
    }
    Ok(Server { port, http_port, https_port, threads, http_listeners })
}

fn parse_address(text: &str) -> Result<IpAddr, ErrorReport> {
    text.parse().map_err(|_| input_error("bad_address", format!("bind: {text} is not an IP address")))
}

/// Opens the same port on every address. For port 0, a port that is free on the first address may be in use on
/// another; then the next port is tried.
fn on_one_port<T>(
    addresses: &[IpAddr],
    requested: Option<u16>,
    bind: impl Fn(SocketAddr) -> Result<T, ErrorReport>,
    listener: impl Fn(&T) -> &TcpListener,
) -> Result<(Option<u16>, Vec<T>), ErrorReport> {
    let Some(requested) = requested else { return Ok((None, Vec::new())) };
    let bind_all = || -> Result<_, ErrorReport> {
        let (mut port, mut bound) = (requested, Vec::new());
        for address in addresses {
            let one = bind(SocketAddr::new(*address, port))?;
            port = listener(&one).local_addr().map_err(|error| system_error("binding", &error))?.port();
            bound.push(one);
        }
        Ok((Some(port), bound))
    };
    let mut bound = bind_all();
    for _ in 1..ANY_PORT_ATTEMPTS {
        match &bound {
            Err(error) if requested == 0 && error.code == "address_in_use" => bound = bind_all(),
            _ => break,
        }
    }
    bound
}

fn bind_tcp(at: SocketAddr) -> Result<TcpListener, ErrorReport> {
    tcp::listen(at).map_err(|error| system_error(&format!("listening on TCP {at}"), &error))
}

/// Binds TCP, with MPTCP where the kernel has it, and UDP on the same port.
fn bind_both(at: SocketAddr) -> Result<(TcpListener, UdpSocket), ErrorReport> {
    let listener =
        tcp::listen_multipath(at).map_err(|error| system_error(&format!("listening on TCP {at}"), &error))?;
    let at = listener.local_addr().unwrap_or(at);
    let socket =
        net::udp_socket(at, None, true).map_err(|error| system_error(&format!("listening on UDP {at}"), &error))?;
    Ok((listener, socket))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn ports_are_free_again_once_a_server_was_joined() {
        let signal = Arc::new(ControlSignal::default());
        let spec = ServeSpec {
            bind: vec!["127.0.0.1".to_owned()],
            port: Some(0),
            http_port: Some(0),
            https_port: None,
            answer: Default::default(),
            threads: Some(2),
            longest_ms: 1000,
            most_flows: 1,
            key: None,
            per_peer: None,
            iperf3_users: None,
        };
        let server = start(&spec, &signal).unwrap();
        let ports = [server.port, server.http_port];
        signal.stop();
        server.join();
        for port in ports.into_iter().flatten() {
            bind_tcp(SocketAddr::new(parse_address("127.0.0.1").unwrap(), port)).unwrap();
        }
    }

    #[test]
    fn an_automatic_port_is_free_on_all_addresses() {
        let addresses = ["127.0.0.1", "127.0.0.2"].map(|text| parse_address(text).unwrap());
        let (attempted, blocking) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let bind = |at: SocketAddr| {
            // On the first port, the second address is in use.
            if attempted.borrow().len() == 1 {
                blocking.borrow_mut().push(bind_tcp(at)?);
            }
            attempted.borrow_mut().push(at);
            bind_tcp(at)
        };
        let (port, bound) = on_one_port(&addresses, Some(0), bind, |listener| listener).unwrap();
        let (port, attempted, blocking) = (port.unwrap(), attempted.into_inner(), blocking.into_inner());
        let ports = bound.iter().map(|listener| listener.local_addr().unwrap().port());
        assert!(ports.eq([port, port]) && attempted.len() == 4 && attempted[1] == blocking[0].local_addr().unwrap());

        let refused = on_one_port(&addresses, Some(attempted[1].port()), bind_tcp, |listener| listener).err();
        assert_eq!(refused.unwrap().code, "address_in_use", "a requested port");
    }
}
