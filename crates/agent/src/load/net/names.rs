//! Names of hosts and their addresses: fixed by the specification, or asked of the system's resolver. Owns which
//! addresses fit the required family.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use leadline_sys::reason::unresolved;
use leadline_wire::{Blame, ErrorReport, IpVersion, Resolution};

use crate::events::input_error;

/// A host and a port.
pub type Name = (Arc<str>, u16);

/// The addresses of a name in the order of the system's resolver: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Arc<[SocketAddr]>);

impl Addresses {
    /// The address that is connected to.
    pub fn first(&self) -> SocketAddr {
        self.0[0]
    }

    /// All addresses.
    pub fn all(&self) -> &[SocketAddr] {
        &self.0
    }
}

impl From<SocketAddr> for Addresses {
    fn from(address: SocketAddr) -> Self {
        Self(Arc::new([address]))
    }
}

/// How the names of a load are resolved.
#[derive(Clone, Debug, Default)]
pub struct Names {
    fixed: Vec<(Name, IpAddr)>,
    ip_version: Option<IpVersion>,
}

impl Names {
    /// Returns how names are resolved that have these fixed addresses, or else addresses of this family.
    pub fn new(fixed: &[Resolution], ip_version: Option<IpVersion>) -> Result<Self, ErrorReport> {
        let fixed = fixed.iter().map(|one| {
            let unreadable = |_| input_error("bad_address", format!("resolve: {} is not an IP address", one.address));
            Ok(((one.host.as_str().into(), one.port), one.address.parse().map_err(unreadable)?))
        });
        Ok(Self { fixed: fixed.collect::<Result<_, _>>()?, ip_version })
    }

    /// Returns the address of a name that needs no resolver: its fixed address, or itself.
    pub fn known(&self, (host, port): &Name) -> Option<SocketAddr> {
        let is_it = |((own, own_port), _): &&(Name, IpAddr)| own.eq_ignore_ascii_case(host) && own_port == port;
        let fixed = self.fixed.iter().find(is_it).map(|(_, address)| *address);
        fixed.or_else(|| host.parse().ok()).map(|address| SocketAddr::new(address, *port))
    }

    /// Resolves a name with the system's resolver; blocks.
    pub fn look_up(&self, (host, port): &Name) -> Result<Addresses, ErrorReport> {
        look_up(host, *port, self.ip_version)
    }
}

/// Resolves a name with the system's resolver to addresses of one family, or of both; blocks.
pub fn look_up(host: &str, port: u16, ip_version: Option<IpVersion>) -> Result<Addresses, ErrorReport> {
    let fits = |address: &SocketAddr| match ip_version {
        Some(IpVersion::V4) => address.is_ipv4(),
        Some(IpVersion::V6) => address.is_ipv6(),
        None => true,
    };
    let addresses = (host, port).to_socket_addrs().map_err(|error| ErrorReport {
        blame: Blame::System,
        code: "unknown_host".into(),
        message: unresolved(host, &error),
    })?;
    let addresses: Arc<[SocketAddr]> = addresses.filter(fits).collect();
    if addresses.is_empty() {
        let family = if ip_version == Some(IpVersion::V6) { "IPv6" } else { "IPv4" };
        return Err(input_error("no_address", format!("{host} has no {family} address")));
    }
    Ok(Addresses(addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_all_its_addresses_in_order() {
        let system: Vec<SocketAddr> = ("localhost", 80).to_socket_addrs().unwrap().collect();
        let found = look_up("localhost", 80, None).unwrap();
        assert_eq!((found.all(), found.first()), (&system[..], system[0]));
        let only = look_up("127.0.0.1", 80, Some(IpVersion::V4)).unwrap();
        assert_eq!(only, SocketAddr::from(([127, 0, 0, 1], 80)).into());
        assert_eq!(look_up("127.0.0.1", 80, Some(IpVersion::V6)).unwrap_err().code, "no_address");
    }

    #[test]
    fn fixed_addresses_come_first_and_literals_need_no_resolver() {
        let fixed = |host: &str, port, address: &str| Resolution { host: host.into(), port, address: address.into() };
        let all = [fixed("A.test", 80, "192.0.2.1"), fixed("a.test", 80, "192.0.2.2"), fixed("::1", 81, "192.0.2.3")];
        let names = Names::new(&all, None).unwrap();
        let known = |host: &str, port| names.known(&(host.into(), port)).map(|address| address.to_string());
        assert_eq!(known("a.Test", 80).as_deref(), Some("192.0.2.1:80"));
        assert_eq!((known("a.test", 81), known("b.test", 80)), (None, None));
        assert_eq!(known("::1", 81).as_deref(), Some("192.0.2.3:81"));
        assert_eq!(known("::1", 80).as_deref(), Some("[::1]:80"));
        assert_eq!(Names::new(&[fixed("a", 1, "b")], None).unwrap_err().code, "bad_address");
    }
}
