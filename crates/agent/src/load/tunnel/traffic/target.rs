//! Where traffic goes inside of the tunnels: the server's address and port, as the plan names them.

use std::net::{IpAddr, SocketAddr};

use leadline_wire::ErrorReport;

use crate::events::input_error;

/// The server that a kind of traffic goes to.
///
/// # Errors
/// The host is no address of one host, or the port is 0.
pub fn server(kind: &str, host: &str, port: u16) -> Result<SocketAddr, ErrorReport> {
    // Names are resolved by the clients' own DNS servers, if at all; a fleet asks none.
    let refused = || input_error("bad_address", format!("{kind}: {host} is no IP address inside of the tunnel"));
    let address: IpAddr = host.parse().map_err(|_| refused())?;
    if address.is_unspecified() || address.is_multicast() || port == 0 {
        return Err(input_error("bad_address", format!("{kind}: nobody answers at {host} port {port}")));
    }
    Ok(SocketAddr::new(address, port))
}
