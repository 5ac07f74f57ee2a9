//! Traffic selectors (RFC 7296, section 3.13): ranges of addresses and ports that a child SA carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::message::MessageError;

const IPV4_RANGE: u8 = 7;
const IPV6_RANGE: u8 = 8;
/// The largest number of selectors of one payload that is read.
const MAX_SELECTORS: usize = 64;

/// Packets with these addresses, this protocol and these ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficSelector {
    /// IP protocol, 0 for any.
    pub protocol: u8,
    /// First and last port.
    pub ports: (u16, u16),
    /// First and last address, of one version.
    pub addresses: (IpAddr, IpAddr),
}

impl TrafficSelector {
    /// Every packet of a network.
    #[must_use]
    pub fn network(network: IpNet) -> Self {
        let addresses = (network.network(), network.broadcast());
        Self { protocol: 0, ports: (0, u16::MAX), addresses }
    }

    /// Every IPv4 packet.
    #[must_use]
    pub fn any_ipv4() -> Self {
        let addresses = (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into());
        Self { protocol: 0, ports: (0, u16::MAX), addresses }
    }

    /// Every IPv6 packet.
    #[must_use]
    pub fn any_ipv6() -> Self {
        let addresses = (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from([0xFF; 16]).into());
        Self { protocol: 0, ports: (0, u16::MAX), addresses }
    }

    /// Whether every packet of `other` is one of these.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        (self.protocol == 0 || self.protocol == other.protocol)
            && self.ports.0 <= other.ports.0
            && self.ports.1 >= other.ports.1
            && self.addresses.0.is_ipv4() == other.addresses.0.is_ipv4()
            && self.addresses.0 <= other.addresses.0
            && self.addresses.1 >= other.addresses.1
    }

    /// Whether an address is in the range.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.0.is_ipv4() == address.is_ipv4() && (self.addresses.0..=self.addresses.1).contains(&address)
    }
}

/// Whether each selector of an answer lies within one that was offered (RFC 7296, section 2.9), and there is one.
#[must_use]
pub fn is_narrowed(offered: &[TrafficSelector], answered: &[TrafficSelector]) -> bool {
    !answered.is_empty() && answered.iter().all(|answer| offered.iter().any(|offer| offer.contains(answer)))
}

/// Appends the body of a TS payload.
pub fn write_selectors(selectors: &[TrafficSelector], out: &mut Vec<u8>) {
    out.extend_from_slice(&[selectors.len() as u8, 0, 0, 0]);
    for selector in selectors {
        let (kind, length) = if selector.addresses.0.is_ipv4() { (IPV4_RANGE, 16u16) } else { (IPV6_RANGE, 40) };
        out.extend_from_slice(&[kind, selector.protocol]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&selector.ports.0.to_be_bytes());
        out.extend_from_slice(&selector.ports.1.to_be_bytes());
        for address in [selector.addresses.0, selector.addresses.1] {
            match address {
                IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
        }
    }
}

/// Reads the body of a TS payload; selectors of unknown types are left out.
///
/// # Errors
/// A length or the number of selectors lies.
pub fn read_selectors(body: &[u8]) -> Result<Vec<TrafficSelector>, MessageError> {
    let (header, mut rest) = body.split_first_chunk::<4>().ok_or(MessageError::Length)?;
    let mut selectors = Vec::new();
    let mut read = 0;
    while !rest.is_empty() {
        let [kind, protocol, high, low] = *rest.first_chunk::<4>().ok_or(MessageError::Length)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let fields = rest.get(..length).and_then(|whole| whole.get(4..)).ok_or(MessageError::Length)?;
        let addresses = match kind {
            IPV4_RANGE => fields.try_into().ok().map(|fields: &[u8; 12]| read_ipv4_range(fields)),
            IPV6_RANGE => fields.try_into().ok().map(|fields: &[u8; 36]| read_ipv6_range(fields)),
            _ => None,
        };
        if addresses.is_none() && matches!(kind, IPV4_RANGE | IPV6_RANGE) {
            return Err(MessageError::Length);
        }
        if let Some(addresses) = addresses {
            let port = |at: usize| u16::from_be_bytes([fields[at], fields[at + 1]]);
            selectors.push(TrafficSelector { protocol, ports: (port(0), port(2)), addresses });
        }
        rest = &rest[length..];
        read += 1;
        if read > MAX_SELECTORS {
            return Err(MessageError::Malformed);
        }
    }
    if read != usize::from(header[0]) {
        return Err(MessageError::Malformed);
    }
    Ok(selectors)
}

fn read_ipv4_range(fields: &[u8; 12]) -> (IpAddr, IpAddr) {
    let address = |at: usize| Ipv4Addr::new(fields[at], fields[at + 1], fields[at + 2], fields[at + 3]).into();
    (address(4), address(8))
}

fn read_ipv6_range(fields: &[u8; 36]) -> (IpAddr, IpAddr) {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&fields[at..at + 16]).expect("16 bytes")).into();
    (address(4), address(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> TrafficSelector {
        TrafficSelector::network(text.parse().expect("a network"))
    }

    #[test]
    fn selectors_survive_writing_and_reading_and_lying_lengths_are_errors() {
        let selectors = [network("10.1.0.0/16"), network("fd00::/8"), TrafficSelector::any_ipv4()];
        let mut body = Vec::new();
        write_selectors(&selectors, &mut body);
        assert_eq!(read_selectors(&body), Ok(selectors.to_vec()));
        for len in 0..body.len() {
            assert!(read_selectors(&body[..len]).is_err(), "{len}");
        }
        for at in [0, 6, 7] {
            let mut lying = body.clone();
            lying[at] = lying[at].wrapping_add(1);
            assert!(read_selectors(&lying).is_err(), "{at}");
        }
    }

    #[test]
    fn answer_has_to_lie_within_the_offer() {
        let offered = [TrafficSelector::any_ipv4(), network("fd00::/8")];
        assert!(is_narrowed(&offered, &[network("10.0.0.0/8")]));
        assert!(is_narrowed(&offered, &[network("fd00:1::/32"), network("10.3.0.1/32")]));
        assert!(!is_narrowed(&offered, &[]));
        assert!(!is_narrowed(&offered, &[TrafficSelector::any_ipv6()]));
        assert!(!is_narrowed(&[network("10.0.0.0/8")], &[TrafficSelector::any_ipv4()]));
        assert!(network("10.0.0.0/8").has_address("10.1.2.3".parse().expect("an address")));
        assert!(!network("10.0.0.0/8").has_address("11.1.2.3".parse().expect("an address")));
    }
}
