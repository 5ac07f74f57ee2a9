//! The servers of a fleet: their addresses, and whether this host can reach them. Sends no packet.

use std::io;
use std::net::{IpAddr, SocketAddr};

use leadline_sys::net;
use leadline_sys::reason::reason;
use leadline_tunnel::client::server::{Server, Transport};
use leadline_wire::{Blame, ErrorReport, IpVersion};

use crate::events::{error_code, input_error, system_error};
use crate::load::net::names::look_up;

/// A server as a client's file names it.
pub struct ServerName<'a> {
    pub host: &'a str,
    pub port: u16,
    pub transport: Transport,
    /// The only family in which the name is resolved; either if absent.
    pub family: Option<IpVersion>,
}

/// Resolves the address of a server. If sockets are bound, it must be of a family to which they can be bound.
fn resolve(remote: &ServerName<'_>, binds: &[IpAddr]) -> Result<Server, ErrorReport> {
    let bound = match binds {
        [] => None,
        [first, ..] if first.is_ipv4() => Some(IpVersion::V4),
        _ => Some(IpVersion::V6),
    };
    let named =
        |error: ErrorReport| ErrorReport { message: format!("remote {}: {}", remote.host, error.message), ..error };
    let address = look_up(remote.host, remote.port, remote.family.or(bound)).map_err(named)?.first();
    if let Some(other) = binds.iter().find(|bind| bind.is_ipv4() != address.is_ipv4()) {
        let message = format!("bind: {other} cannot reach {address}: they are of different families");
        return Err(input_error("bad_address", message));
    }
    Ok(Server { address, transport: remote.transport })
}

/// Returns the servers for which this host has an address and a route, and a message for each of the others: no
/// attempt could change that, and OpenVPN goes on to its next server.
pub fn in_reach(remotes: &[ServerName<'_>], binds: &[IpAddr]) -> Result<(Vec<Server>, Vec<String>), ErrorReport> {
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
