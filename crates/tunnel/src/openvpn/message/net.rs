//! Parses networks of pushed and expected options. `ipnet` has the type and its arithmetic; this module defines the accepted
//! texts, and clears the host bits.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

/// The error of a text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network: write it like 10.8.0.0/24 or fd00:8::/64")]
pub struct BadNet(String);

/// Parses `ADDRESS/BITS`, or a single address. The standard library parses both parts, because `ipnet` would accept addresses
/// with leading zeros.
///
/// # Errors
/// The text is not a network.
pub fn parse(text: &str) -> Result<IpNet, BadNet> {
    let bad = || BadNet(text.to_owned());
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let net = match bits {
        Some(bits) => IpNet::new(address, bits.parse().map_err(|_| bad())?).map_err(|_| bad())?,
        None => address.into(),
    };
    Ok(net.trunc())
}

/// The network with a netmask; `None` if the mask is not contiguous.
#[must_use]
pub fn from_netmask(address: Ipv4Addr, mask: Ipv4Addr) -> Option<IpNet> {
    Some(Ipv4Net::with_netmask(address, mask).ok()?.trunc().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn network_contains_exactly_its_addresses() {
        let net = parse("10.8.3.7/22").expect("a network");
        assert_eq!(net.to_string(), "10.8.0.0/22");
        assert!(net.contains(&address("10.8.3.255")));
        assert!(!net.contains(&address("10.8.4.0")));
        assert!(!net.contains(&address("fd00::1")));
        let all = parse("::/0").expect("a network");
        assert!(all.contains(&address("fd00::1")));
        assert!(!all.contains(&address("10.8.4.0")));
        assert_eq!(parse("fd00::1").map(|net| net.prefix_len()), Ok(128));
        for bad in
            ["", "10.8.0.0/33", "fd00::/129", "10.8.0/24", "10.8.0.0/", "10.8.0.0/-1", "a.example/8", "10.08.0.0/24"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn noncontiguous_netmask_is_refused() {
        let net = |mask: &str| from_netmask(Ipv4Addr::new(10, 8, 0, 9), mask.parse().expect("a mask"));
        assert_eq!(net("255.255.255.0").map(|net| net.to_string()).as_deref(), Some("10.8.0.0/24"));
        assert_eq!(net("0.0.0.0").map(|net| net.to_string()).as_deref(), Some("0.0.0.0/0"));
        assert_eq!(net("255.255.255.255").map(|net| net.prefix_len()), Some(32));
        assert_eq!(net("255.0.255.0"), None);
    }
}
