//! Verifies that a UDP flow's client receives at the source address of its packets. A source address is easily
//! forged, so a `Hello` is answered with a nonce in a packet of the same length. Only a client that returns the nonce
//! from the same address and port has proven its address.

use std::net::{IpAddr, SocketAddr};

use crate::datagram::{Header, HeaderKind};
use crate::key::{KeyError, SharedKey};

/// Creates and verifies nonces. Keeps no state per client: a nonce is derived from the address to which it is sent.
#[derive(Debug)]
pub struct AddressCheck {
    secret: SharedKey,
}

/// The response to a `Hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloAnswer {
    /// A packet with a nonce, as long as the `Hello`.
    Challenge(Header),
    /// The client has proven its address: the flow is accepted.
    Proven,
}

impl AddressCheck {
    /// Creates a check with a random secret that only this server knows.
    ///
    /// # Errors
    /// The secret is empty or too long.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        Ok(Self { secret: SharedKey::new(secret)? })
    }

    /// Handles a `Hello` of a known session from `client`.
    pub fn handle_hello(&self, hello: &Header, client: SocketAddr) -> HelloAnswer {
        let nonce = self.nonce(hello, client);
        if hello.sequence == nonce {
            HelloAnswer::Proven
        } else {
            HelloAnswer::Challenge(Header { kind: HeaderKind::Challenge, sequence: nonce, ..*hello })
        }
    }

    /// Derives the nonce. It is never 0, because the first `Hello` has 0.
    fn nonce(&self, hello: &Header, client: SocketAddr) -> u64 {
        let address = match client.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let covered = [
            &hello.token.to_be_bytes()[..],
            &hello.flow.to_be_bytes(),
            &client.port().to_be_bytes(),
            &address.octets(),
        ];
        let code = self.secret.sign(&covered.concat()).0;
        u64::from_be_bytes(std::array::from_fn(|index| code[index])).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(token: u64, flow: u32, sequence: u64) -> Header {
        Header { kind: HeaderKind::Hello, token, flow, sequence, sent_ns: 5 }
    }

    fn nonce(check: &AddressCheck, hello: &Header, client: &str) -> u64 {
        match check.handle_hello(hello, client.parse().unwrap()) {
            HelloAnswer::Challenge(header) => {
                assert_eq!((header.kind, header.token), (HeaderKind::Challenge, hello.token));
                header.sequence
            }
            HelloAnswer::Proven => panic!("the client has returned no nonce yet"),
        }
    }

    #[test]
    fn nonce_is_bound_to_its_address_port_session_and_flow() {
        let check = AddressCheck::new(b"secret").unwrap();
        let client = "192.0.2.1:1000";
        let nonce = nonce(&check, &hello(7, 1, 0), client);
        let answer =
            |token, flow, client: &str| check.handle_hello(&hello(token, flow, nonce), client.parse().unwrap());
        assert_eq!(answer(7, 1, client), HelloAnswer::Proven);
        let others = [
            (8, 1, client),
            (7, 2, client),
            (7, 1, "192.0.2.1:1001"),
            (7, 1, "192.0.2.2:1000"),
            (7, 1, "[2001:db8::1]:1000"),
        ];
        for (token, flow, client) in others {
            assert_ne!(answer(token, flow, client), HelloAnswer::Proven, "{token} {flow} {client}");
        }
        let restarted = AddressCheck::new(b"another secret").unwrap();
        assert_ne!(restarted.handle_hello(&hello(7, 1, nonce), client.parse().unwrap()), HelloAnswer::Proven);
    }
}
