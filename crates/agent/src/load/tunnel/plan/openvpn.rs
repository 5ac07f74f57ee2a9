//! OpenVPN's part of a fleet's plan: the profile, its servers, and the clients' identities.

use std::net::IpAddr;
use std::sync::Arc;

use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_tunnel::openvpn::config::{ClientConfig, Identity};
use leadline_tunnel::openvpn::fleet::OpenVpn;
use leadline_tunnel::openvpn::identity::Authority;
use leadline_tunnel::openvpn::profile::{self, Family, Profile, Remote};
use leadline_tunnel::secret::Secret;
use leadline_wire::{ErrorReport, IpVersion, TunnelIdentities, TunnelSpec};

use super::protocol_plan::ProtocolPlan;
use super::servers::{in_reach, ServerName};
use crate::events::input_error;

/// Reads the profile, resolves its servers, and creates the identities.
pub fn plan(spec: &TunnelSpec, binds: &[IpAddr]) -> Result<ProtocolPlan, ErrorReport> {
    let profile = profile::parse(&spec.profile);
    let profile = profile.map_err(|error| input_error("bad_profile", format!("profile: {error}")))?;
    let unix_base_s = realtime_ns().saturating_sub(monotonic_ns()) / 1_000_000_000;
    let config = ClientConfig::new(&profile, unix_base_s).map_err(|message| input_error("bad_profile", message))?;
    let names: Vec<ServerName<'_>> = profile.remotes.iter().map(server_name).collect();
    let (servers, passed_over) = in_reach(&names, binds)?;
    Ok(ProtocolPlan {
        servers,
        has_random_remotes: profile.remote_random,
        mtu: profile.tun_mtu,
        ciphers: config.ciphers.iter().map(|cipher| cipher.name()).collect(),
        ignored: profile.ignored.iter().map(ToString::to_string).chain(passed_over).collect(),
        protocol: Arc::new(OpenVpn { identities: identities(&config, &profile, spec)?, config: Arc::new(config) }),
    })
}

fn server_name(remote: &Remote) -> ServerName<'_> {
    let family = remote.family.map(|family| match family {
        Family::V4 => IpVersion::V4,
        Family::V6 => IpVersion::V6,
    });
    ServerName { host: &remote.host, port: remote.port, transport: remote.transport, family }
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
        // Another protocol's identities have no certificates.
        TunnelIdentities::Wireguard { .. } | TunnelIdentities::Ikev2 { .. } => Vec::new(),
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
