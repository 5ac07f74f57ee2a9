//! Configuration payloads (RFC 7296, section 3.15): the addresses and name servers that a client asks for and gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{payload, PayloadWriter};

/// CFG_REQUEST.
pub const REQUEST: u8 = 1;
/// CFG_REPLY.
pub const REPLY: u8 = 2;
const IP4_ADDRESS: u16 = 1;
const IP4_DNS: u16 = 3;
const IP6_ADDRESS: u16 = 8;
const IP6_DNS: u16 = 10;
/// The largest number of addresses that are kept of one answer.
const MAX_ADDRESSES: usize = 16;

/// What a gateway assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Addresses of the client inside the tunnel.
    pub addresses: Vec<IpAddr>,
    /// Name servers.
    pub name_servers: Vec<IpAddr>,
}

impl Assigned {
    /// Reads the body of a CP payload with an answer; `None` if it is none, or a length lies.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (header, mut rest) = body.split_first_chunk::<4>()?;
        let mut assigned = Self::default();
        while !rest.is_empty() {
            let [a, b, c, d] = *rest.first_chunk::<4>()?;
            let (kind, length) = (u16::from_be_bytes([a, b]) & 0x7FFF, usize::from(u16::from_be_bytes([c, d])));
            let value = rest.get(4..4 + length)?;
            let address = match kind {
                IP4_ADDRESS | IP4_DNS => value.first_chunk::<4>().map(|bytes| IpAddr::from(Ipv4Addr::from(*bytes))),
                IP6_ADDRESS | IP6_DNS => value.first_chunk::<16>().map(|bytes| IpAddr::from(Ipv6Addr::from(*bytes))),
                _ => None,
            };
            let list = if matches!(kind, IP4_ADDRESS | IP6_ADDRESS) {
                &mut assigned.addresses
            } else {
                &mut assigned.name_servers
            };
            list.extend(address.filter(|_| list.len() < MAX_ADDRESSES));
            rest = &rest[4 + length..];
        }
        (header[0] == REPLY).then_some(assigned)
    }

    /// Appends an answer with these values.
    pub fn push_to(&self, chain: &mut PayloadWriter) {
        chain.push_with(payload::CP, |out| {
            out.extend_from_slice(&[REPLY, 0, 0, 0]);
            for (addresses, kinds) in
                [(&self.addresses, (IP4_ADDRESS, IP6_ADDRESS)), (&self.name_servers, (IP4_DNS, IP6_DNS))]
            {
                for address in addresses {
                    match address {
                        IpAddr::V4(address) => write_attribute(kinds.0, &address.octets(), out),
                        // RFC 7296, section 3.15.1: an IPv6 address is followed by its prefix length.
                        IpAddr::V6(address) if kinds.1 == IP6_ADDRESS => {
                            write_attribute(kinds.1, &[&address.octets()[..], &[128]].concat(), out);
                        }
                        IpAddr::V6(address) => write_attribute(kinds.1, &address.octets(), out),
                    }
                }
            }
        });
    }
}

/// Appends a request for addresses of these versions and, with any of them, for name servers.
pub fn push_request(chain: &mut PayloadWriter, has_ipv4: bool, has_ipv6: bool) {
    chain.push_with(payload::CP, |out| {
        out.extend_from_slice(&[REQUEST, 0, 0, 0]);
        if has_ipv4 {
            write_attribute(IP4_ADDRESS, &[], out);
            write_attribute(IP4_DNS, &[], out);
        }
        if has_ipv6 {
            write_attribute(IP6_ADDRESS, &[], out);
            write_attribute(IP6_DNS, &[], out);
        }
    });
}

/// Which versions of addresses the body of a CP payload requests: IPv4, IPv6.
#[must_use]
pub fn read_requested_versions(body: &[u8]) -> (bool, bool) {
    let mut versions = (false, false);
    let mut rest = body.get(4..).unwrap_or(&[]);
    while let Some([a, b, c, d]) = rest.first_chunk::<4>().copied() {
        match u16::from_be_bytes([a, b]) {
            IP4_ADDRESS => versions.0 = true,
            IP6_ADDRESS => versions.1 = true,
            _ => {}
        }
        rest = rest.get(4 + usize::from(u16::from_be_bytes([c, d]))..).unwrap_or(&[]);
    }
    versions
}

fn write_attribute(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::super::message::{find_payload, read_payloads};
    use super::*;

    #[test]
    fn answers_survive_writing_and_reading() {
        let assigned = Assigned {
            addresses: vec!["10.20.0.1".parse().expect("an address"), "fd00::1".parse().expect("an address")],
            name_servers: vec!["10.20.0.53".parse().expect("an address"), "fd00::53".parse().expect("an address")],
        };
        let mut chain = PayloadWriter::new();
        assigned.push_to(&mut chain);
        let payloads = read_payloads(chain.first(), chain.bytes()).expect("payloads");
        let body = find_payload(&payloads, payload::CP).expect("a payload");
        assert_eq!(Assigned::parse(body), Some(assigned));
        for len in 0..body.len() {
            let _ = Assigned::parse(&body[..len]);
        }
        assert_eq!(Assigned::parse(&[2, 0, 0, 0, 0, 1, 0, 9, 10]), None);
        assert_eq!(Assigned::parse(&[1, 0, 0, 0]), None);
    }

    #[test]
    fn requests_name_the_versions() {
        for versions in [(true, false), (false, true), (true, true)] {
            let mut chain = PayloadWriter::new();
            push_request(&mut chain, versions.0, versions.1);
            assert_eq!(read_requested_versions(&chain.bytes()[4..]), versions);
        }
    }
}
