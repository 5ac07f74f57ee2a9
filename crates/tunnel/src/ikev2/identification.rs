//! Identities (RFC 7296, section 3.5): who authenticates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An identity.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id {
    kind: u8,
    data: Vec<u8>,
}

const IPV4: u8 = 1;
const FQDN: u8 = 2;
const EMAIL: u8 = 3;
const IPV6: u8 = 5;
const DER_NAME: u8 = 9;
const KEY_ID: u8 = 11;

impl Id {
    /// Reads an identity as swanctl.conf writes it: an address, a name with `@` in it (an e-mail address), a name after
    /// `@` (a domain name), any other name (a domain name). Distinguished names are taken from certificates only.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        if let Some(key_id) = text.strip_prefix("keyid:") {
            return Self { kind: KEY_ID, data: key_id.into() };
        }
        match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Self { kind: IPV4, data: address.octets().into() },
            Ok(IpAddr::V6(address)) => Self { kind: IPV6, data: address.octets().into() },
            Err(_) => match text.strip_prefix('@') {
                Some(name) => Self { kind: FQDN, data: name.into() },
                None if text.contains('@') => Self { kind: EMAIL, data: text.into() },
                None => Self { kind: FQDN, data: text.into() },
            },
        }
    }

    /// The subject of a certificate.
    #[must_use]
    pub fn from_der_name(der: &[u8]) -> Self {
        Self { kind: DER_NAME, data: der.into() }
    }

    /// Reads the body of an ID payload; `None` if it is too short.
    #[must_use]
    pub fn from_body(body: &[u8]) -> Option<Self> {
        let (header, data) = body.split_first_chunk::<4>()?;
        Some(Self { kind: header[0], data: data.into() })
    }

    /// The body of an ID payload.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        [&[self.kind, 0, 0, 0], self.data.as_slice()].concat()
    }

    /// The bytes without their type.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether it is the subject of a certificate.
    #[must_use]
    pub fn is_der_name(&self) -> bool {
        self.kind == DER_NAME
    }

    /// The address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self.kind {
            IPV4 => self.data.as_slice().try_into().ok().map(|bytes: [u8; 4]| Ipv4Addr::from(bytes).into()),
            IPV6 => self.data.as_slice().try_into().ok().map(|bytes: [u8; 16]| Ipv6Addr::from(bytes).into()),
            _ => None,
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.address(), self.kind) {
            (Some(address), _) => write!(formatter, "{address}"),
            (None, FQDN | EMAIL | KEY_ID) => {
                formatter.write_str(&String::from_utf8_lossy(&self.data).escape_debug().to_string())
            }
            _ => write!(formatter, "an identity of type {} and {} bytes", self.kind, self.data.len()),
        }
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Id({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_the_types_of_swanctl() {
        for (text, kind, shown) in [
            ("10.0.0.1", IPV4, "10.0.0.1"),
            ("fd00::1", IPV6, "fd00::1"),
            ("@gw.test", FQDN, "gw.test"),
            ("gw.test", FQDN, "gw.test"),
            ("c1@test", EMAIL, "c1@test"),
            ("keyid:k", KEY_ID, "k"),
        ] {
            let id = Id::parse(text);
            assert_eq!((id.kind, id.to_string()), (kind, shown.to_owned()));
            assert_eq!(Id::from_body(&id.body()), Some(id));
        }
        assert_eq!(Id::from_body(&[1, 0, 0]), None);
    }
}
