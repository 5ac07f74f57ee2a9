//! WireGuard's part of a fleet's plan: a file for each client, and their gateway.

use std::net::IpAddr;
use std::sync::Arc;

use leadline_tunnel::client::server::Transport;
use leadline_tunnel::wireguard::file::ClientFile;
use leadline_tunnel::wireguard::fleet::{WireGuard, CIPHER};
use leadline_wire::{ErrorReport, TunnelFile, TunnelSpec};

use super::protocol_plan::ProtocolPlan;
use super::servers::{in_reach, ServerName};
use crate::events::input_error;

/// Reads the clients' files, and resolves their gateway.
pub fn plan(spec: &TunnelSpec, files: &[TunnelFile], binds: &[IpAddr]) -> Result<ProtocolPlan, ErrorReport> {
    let bad =
        |file: &TunnelFile, what: &dyn std::fmt::Display| input_error("bad_profile", format!("{}: {what}", file.name));
    if files.len() < spec.clients as usize {
        let message = format!(
            "{} clients and {} WireGuard files: a gateway knows a client by its key, so each needs its own",
            spec.clients,
            files.len()
        );
        return Err(input_error("bad_identity", message));
    }
    let files = &files[..spec.clients as usize];
    let parsed = files.iter().map(|file| ClientFile::parse(&file.text).map_err(|error| bad(file, &error)));
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    let protocol = WireGuard::new(&parsed).map_err(|unfit| bad(&files[unfit.file], &unfit.what))?;
    let (file, first) = (&files[0], &parsed[0]);
    check_echo(spec, &protocol).map_err(|what| bad(file, &what))?;
    let gateway = &first.gateway;
    let name = ServerName { host: &gateway.host, port: gateway.port, transport: Transport::Udp, family: None };
    let (servers, passed_over) = in_reach(&[name], binds)?;
    Ok(ProtocolPlan {
        servers,
        has_random_remotes: false,
        mtu: first.mtu,
        ciphers: vec![CIPHER],
        ignored: first.ignored.iter().cloned().chain(passed_over).collect(),
        protocol: Arc::new(protocol),
    })
}

/// Checks that the verification echo has a destination inside the tunnel. An invalid address is reported later.
fn check_echo(spec: &TunnelSpec, protocol: &WireGuard) -> Result<(), String> {
    let expected = spec.expect.echo.as_ref().and_then(|text| text.parse::<IpAddr>().ok());
    if !protocol.has_echo_target(expected) {
        return Err(match expected {
            None => "the gateway's address in the tunnel is not known from Address and AllowedIPs: give --echo an \
                     address that answers"
                .to_owned(),
            Some(to) => format!("no Address of the family of the echo's destination {to}"),
        });
    }
    match expected.filter(|to| !protocol.routes(*to)) {
        None => Ok(()),
        Some(to) => {
            Err(format!("AllowedIPs does not hold the echo's destination {to}: nothing to it would enter the tunnel"))
        }
    }
}
