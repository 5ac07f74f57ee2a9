//! The configuration that a test expects for every client, and the checks that make a client `configured`, in order.
//! Has no side effects.

use std::net::IpAddr;

use ipnet::IpNet;

use super::assigned_config::AssignedConfig;
use crate::protocol::Granted;

/// The check that a malformed option fails: the client does not have the option, whatever its intended value.
pub const OPTION_MALFORMED: &str = "partial_option_malformed";

/// The expected configuration of every client.
#[derive(Debug, Default)]
pub struct Expectation {
    /// Networks that contain the client's addresses; any if empty.
    pub pools: Vec<IpNet>,
    /// Routes that the server pushes.
    pub routes: Vec<IpNet>,
    /// DNS servers that the server pushes.
    pub dns: Vec<IpAddr>,
    /// Options that the server pushes, compared as text.
    pub options: Vec<String>,
    /// The address that answers the verification echo; the server's address if absent.
    pub echo: Option<IpAddr>,
    /// The names of the ciphers that the client offers.
    pub offered: Vec<&'static str>,
}

impl Expectation {
    /// The name of the first check that fails. The driver knows whether other clients hold the same addresses or peer
    /// id.
    pub fn find_missing(&self, granted: &dyn Granted, assigned: &AssignedConfig) -> Option<&'static str> {
        let in_pool = |address: IpAddr| self.pools.iter().any(|pool| pool.contains(&address));
        if assigned.addresses().next().is_none() {
            Some("partial_no_address")
        } else if !self.pools.is_empty() && !assigned.addresses().all(in_pool) {
            Some("partial_address_outside_pool")
        } else if !self.routes.iter().all(|route| granted.has_route(route)) {
            Some("partial_route_missing")
        } else if !self.dns.iter().all(|server| granted.has_dns(server)) {
            Some("partial_dns_missing")
        } else if !self.options.iter().all(|option| granted.has_option(option)) {
            Some("partial_option_missing")
        } else if granted.malformed().is_some() {
            Some(OPTION_MALFORMED)
        } else if assigned.cipher.is_some_and(|cipher| !self.offered.contains(&cipher)) {
            Some("partial_cipher_not_offered")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::{Server, Transport};
    use super::*;
    use crate::openvpn::fleet::assigned;
    use crate::openvpn::message::push::Pushed;

    #[test]
    fn the_first_missing_option_is_named() {
        let expectation = Expectation {
            pools: vec!["10.8.0.0/24".parse().unwrap(), "fd00:8::/64".parse().unwrap()],
            routes: vec!["10.9.0.0/16".parse().unwrap()],
            dns: vec!["10.8.0.1".parse().unwrap()],
            options: vec!["block-outside-dns".into()],
            echo: None,
            offered: vec!["AES-256-GCM"],
        };
        let whole = "topology subnet,ifconfig 10.8.0.5 255.255.255.0,route 10.9.0.0 255.255.0.0,\
                     dhcp-option DNS 10.8.0.1,block-outside-dns";
        let server = Server { address: "192.0.2.1:1194".parse().unwrap(), transport: Transport::Udp };
        let missing = |options: &str, cipher| {
            let mut pushed = Pushed::default();
            pushed.absorb(options).unwrap();
            expectation.find_missing(&pushed, &AssignedConfig { cipher, ..assigned(server, &pushed, None, None) })
        };
        let cipher = Some("AES-256-GCM");
        assert_eq!(missing(whole, cipher), None);
        assert_eq!(missing(whole, Some("AES-128-GCM")), Some("partial_cipher_not_offered"));
        let without = |part: &str| whole.replace(part, "topology subnet");
        assert_eq!(missing(&without("ifconfig 10.8.0.5 255.255.255.0"), cipher), Some("partial_no_address"));
        assert_eq!(missing(&whole.replace("10.8.0.5", "10.7.0.5"), cipher), Some("partial_address_outside_pool"));
        assert_eq!(missing(&without("route 10.9.0.0 255.255.0.0"), cipher), Some("partial_route_missing"));
        assert_eq!(missing(&without("dhcp-option DNS 10.8.0.1"), cipher), Some("partial_dns_missing"));
        assert_eq!(missing(&without("block-outside-dns"), cipher), Some("partial_option_missing"));
        assert_eq!(missing(&format!("{whole},tun-mtu 30"), cipher), Some("partial_option_malformed"));
        assert_eq!(missing(&format!("{whole},protocol-flags unheard-of"), cipher), Some("partial_option_malformed"));
        assert_eq!(missing(&whole.replace("10.8.0.5", "224.0.0.5"), cipher), Some("partial_no_address"));
    }
}
