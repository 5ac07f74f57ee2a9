//! An IP network as it is pushed and expected: an address and how many bits of it count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A network; the bits of the address that do not count are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Net {
    address: IpAddr,
    bits: u8,
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network: write it like 10.8.0.0/24 or fd00:8::/64")]
pub struct BadNet(String);

impl Net {
    /// The network that `address` is in; none where there are no so many bits.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if bits <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) if bits <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
            _ => return None,
        };
        Some(Self { address, bits })
    }

    /// A network by its netmask; none where the mask has holes.
    #[must_use]
    pub fn from_netmask(address: Ipv4Addr, mask: Ipv4Addr) -> Option<Self> {
        let bits = mask.to_bits().leading_ones();
        (mask.to_bits().count_ones() == bits).then_some(())?;
        Self::new(address.into(), u8::try_from(bits).ok()?)
    }

    /// Its first address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits of the address count.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether the address is in it.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        Self::new(address, self.bits) == Some(self)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Net {
    type Err = BadNet;

    /// `ADDRESS/BITS`, or one address alone.
    fn from_str(text: &str) -> Result<Self, BadNet> {
        let bad = || BadNet(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        Self::new(address, bits.unwrap_or(if address.is_ipv4() { 32 } else { 128 })).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_exactly_its_addresses() {
        let net: Net = "10.8.3.7/22".parse().expect("a network");
        assert_eq!(net.to_string(), "10.8.0.0/22");
        assert!(net.contains("10.8.3.255".parse().expect("an address")));
        assert!(!net.contains("10.8.4.0".parse().expect("an address")));
        assert!(!net.contains("fd00::1".parse().expect("an address")));
        let all: Net = "::/0".parse().expect("a network");
        assert!(all.contains("fd00::1".parse().expect("an address")));
        assert!(!all.contains("10.8.4.0".parse().expect("an address")));
        assert_eq!("fd00::1".parse::<Net>().map(Net::bits), Ok(128));
        for bad in ["", "10.8.0.0/33", "fd00::/129", "10.8.0/24", "10.8.0.0/", "10.8.0.0/-1", "a.example/8"] {
            assert!(bad.parse::<Net>().is_err(), "{bad}");
        }
    }

    #[test]
    fn noncontiguous_netmask_is_refused() {
        let net = |mask: &str| Net::from_netmask(Ipv4Addr::new(10, 8, 0, 9), mask.parse().expect("a mask"));
        assert_eq!(net("255.255.255.0").map(|net| net.to_string()).as_deref(), Some("10.8.0.0/24"));
        assert_eq!(net("0.0.0.0").map(Net::bits), Some(0));
        assert_eq!(net("255.255.255.255").map(Net::bits), Some(32));
        assert_eq!(net("255.0.255.0"), None);
    }
}
