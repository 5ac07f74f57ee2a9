//! The destination of traffic through the tunnels: the server's address and port, as the plan names them.

use std::net::{IpAddr, SocketAddr};

use leadline_wire::ErrorReport;

use crate::events::input_error;

/// Returns the server of a kind of traffic.
///
/// # Errors
/// The host is not the address of one host, or the port is 0.
pub fn server(kind: &str, host: &str, port: u16) -> Result<SocketAddr, ErrorReport> {
    // A name would have to be resolved by the clients' own DNS servers, and a fleet sends no DNS queries.
    let refused = || input_error("bad_address", format!("{kind}: {host} is no IP address inside of the tunnel"));
    let address: IpAddr = host.parse().map_err(|_| refused())?;
    if address.is_unspecified() || address.is_multicast() || port == 0 {
        return Err(input_error("bad_address", format!("{kind}: no server can answer at {host} port {port}")));
    }
    Ok(SocketAddr::new(address, port))
}
