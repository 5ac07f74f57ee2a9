//! Answering load: the session listener (tcp, udp, rr) and the HTTP responder, on the addresses that were asked for.

mod admission;
mod entrance;
pub mod http;
mod session;

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use leadline_sys::net;
use leadline_wire::{ErrorReport, ServeSpec};

use crate::events::{input_error, system_error};
use crate::gate::Gate;

/// Listeners that run until the gate stops them.
pub struct Server {
    /// The session port, as bound.
    pub port: Option<u16>,
    /// The HTTP port, as bound.
    pub http_port: Option<u16>,
    /// The port of HTTP over TLS, as bound.
    pub https_port: Option<u16>,
    listeners: Vec<JoinHandle<()>>,
}

impl Server {
    /// Wait, once the gate has stopped, until the session port is free again.
    pub fn join(self) {
        for listener in self.listeners {
            let _ = listener.join();
        }
    }
}

/// Bind every listener, or none: an address that is taken is named.
pub fn start(spec: &ServeSpec, gate: &Arc<Gate>) -> Result<Server, ErrorReport> {
    let addresses = spec.bind.iter().map(|text| parse_address(text)).collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() || (spec.port.is_none() && spec.http_port.is_none() && spec.https_port.is_none()) {
        return Err(input_error("bad_spec", "serve needs an address and at least one port"));
    }
    let (behaviour, stalls) = http::behaviour(&spec.answer)?;
    let tls = spec.https_port.map(|_| http::tls(&spec.answer, &spec.bind)).transpose()?;
    let (mut port, mut http_port, mut https_port) = (spec.port, spec.http_port, spec.https_port);
    let mut sessions = Vec::new();
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    for address in &addresses {
        if let Some(wanted) = port {
            let (listener, socket) = bind_both(SocketAddr::new(*address, wanted))?;
            port = Some(listener.local_addr().map_err(|error| system_error("binding", &error))?.port());
            sessions.push((listener, socket));
        }
        for (port, listeners) in [(&mut http_port, &mut plain), (&mut https_port, &mut secure)] {
            if let Some(wanted) = *port {
                let listener = bind_tcp(SocketAddr::new(*address, wanted))?;
                *port = Some(listener.local_addr().map_err(|error| system_error("binding", &error))?.port());
                listeners.push(listener);
            }
        }
    }
    let limits = admission::Limits { longest_ms: spec.longest_ms, most_flows: spec.most_flows };
    let house = Arc::new(entrance::House::new(limits));
    let listeners = sessions
        .into_iter()
        .map(|(listener, socket)| entrance::listen(listener, socket, Arc::clone(&house), Arc::clone(gate)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| system_error("starting the session listener", &error))?;
    if !plain.is_empty() || !secure.is_empty() {
        let service = http::Service { plain, secure, tls, behaviour, stalls, threads: spec.threads };
        http::listen(service, gate).map_err(|error| system_error("starting the HTTP responder", &error))?;
    }
    Ok(Server { port, http_port, https_port, listeners })
}

fn parse_address(text: &str) -> Result<IpAddr, ErrorReport> {
    text.parse().map_err(|_| input_error("bad_address", format!("bind: {text} is not an IP address")))
}

fn bind_tcp(at: SocketAddr) -> Result<TcpListener, ErrorReport> {
    net::listen_tcp(at).map_err(|error| system_error(&format!("listening on TCP {at}"), &error))
}

/// TCP and UDP on the same port.
fn bind_both(at: SocketAddr) -> Result<(TcpListener, UdpSocket), ErrorReport> {
    let listener = bind_tcp(at)?;
    let at = listener.local_addr().unwrap_or(at);
    let socket =
        net::udp_socket(at, None, true).map_err(|error| system_error(&format!("listening on UDP {at}"), &error))?;
    Ok((listener, socket))
}

/// A lock whose guarded value is whole after any panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
