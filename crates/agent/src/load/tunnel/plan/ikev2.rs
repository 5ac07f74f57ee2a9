//! IKEv2's part of a fleet's plan: a connection of swanctl.conf, read for each client with its number in it.

use std::net::IpAddr;
use std::sync::Arc;

use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_tunnel::client::server::Transport;
use leadline_tunnel::ikev2::fleet::{Ike, PORT};
use leadline_tunnel::ikev2::swanctl::{read_connection, Connection, Directory};
use leadline_wire::{ErrorReport, TunnelFile, TunnelSpec};

use super::protocol_plan::ProtocolPlan;
use super::servers::{in_reach, ServerName};
use crate::events::input_error;

/// What stands for a client's number in the file.
const NUMBER: &str = "{n}";

/// Reads the connection, and resolves its gateway.
pub fn plan(
    spec: &TunnelSpec,
    connection: Option<&str>,
    files: &[TunnelFile],
    binds: &[IpAddr],
) -> Result<ProtocolPlan, ErrorReport> {
    let bad = |message: String| input_error("bad_profile", message);
    // Without a number in it, all clients have one text.
    let distinct = if spec.profile.contains(NUMBER) { spec.clients } else { 1 };
    if distinct < spec.clients {
        return Err(input_error(
            "bad_identity",
            format!(
                "{} clients have one identity, so that the gateway would end each one before: write {NUMBER} in the file, \
                 as in `id = client{NUMBER}`, which becomes each client's number",
                spec.clients
            ),
        ));
    }
    let read = |number: u32| -> Result<Connection, ErrorReport> {
        let of_client = |text: &str| text.replace(NUMBER, &number.to_string());
        let read_pem = |directory: Directory, name: Option<&str>| pem(files, directory, name);
        read_connection(&of_client(&spec.profile), connection.map(of_client).as_deref(), &read_pem).map_err(bad)
    };
    let connections = (0..distinct).map(read).collect::<Result<Vec<_>, _>>()?;
    let addresses = connections.first().map(|first| first.remote_addresses.clone()).unwrap_or_default();
    let unix_base_s = realtime_ns().saturating_sub(monotonic_ns()) / 1_000_000_000;
    let protocol = Ike::new(connections, unix_base_s).map_err(|what| input_error("bad_identity", what))?;
    check_echo(spec, &protocol).map_err(bad)?;
    let name = |host| ServerName { host, port: PORT, transport: Transport::Udp, family: None };
    let names: Vec<ServerName<'_>> = addresses.iter().map(|host| name(host.as_str())).collect();
    let (servers, passed_over) = in_reach(&names, binds)?;
    Ok(ProtocolPlan {
        servers,
        has_random_remotes: false,
        mtu: None,
        ciphers: protocol.ciphers(),
        ignored: passed_over,
        protocol: Arc::new(protocol),
    })
}

/// The content of a file of a directory, or of all of its files.
fn pem(files: &[TunnelFile], directory: Directory, name: Option<&str>) -> Result<String, String> {
    let folder = match directory {
        Directory::X509 => "x509",
        Directory::X509Ca => "x509ca",
        Directory::Private => "private",
    };
    let within = |file: &&TunnelFile| file.name.split_once('/').is_some_and(|(first, _)| first == folder);
    let fits = |file: &&TunnelFile| {
        let own = file.name.split_once('/').map_or("", |(_, rest)| rest);
        // A key is found by its certificate's name, whatever its own ending.
        let stem = own.rsplit_once('.').map_or(own, |(stem, _)| stem);
        name.is_none_or(|name| own == name || (directory == Directory::Private && stem == name))
    };
    let found: Vec<&str> = files.iter().filter(within).filter(fits).map(|file| file.text.as_str()).collect();
    match (found.is_empty(), name) {
        (false, _) => Ok(found.join("\n")),
        (true, Some(name)) => Err(format!("swanctl.conf: there is no {folder}/{name} beside it")),
        (true, None) => Err(format!("swanctl.conf: there is no file in {folder} beside it")),
    }
}

/// Checks that the verification echo has a destination inside the tunnel.
fn check_echo(spec: &TunnelSpec, protocol: &Ike) -> Result<(), String> {
    let Some(to) = spec.expect.echo.as_ref().and_then(|text| text.parse::<IpAddr>().ok()) else {
        return Err(
            "IKEv2 names no address of the gateway in the tunnel: give --echo an address that answers".to_owned()
        );
    };
    if !protocol.asks_for(to.is_ipv4()) {
        return Err(format!("the connection asks for no address (vips) of the family of the echo's destination {to}"));
    }
    if !protocol.routes(to) {
        return Err(format!(
            "remote_ts does not hold the echo's destination {to}: nothing to it would enter the tunnel"
        ));
    }
    Ok(())
}
