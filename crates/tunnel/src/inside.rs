//! Packets inside a tunnel, for a client without a TUN device: whole IPv4 and IPv6 packets, built and parsed with
//! their checksums. `ip` has the headers, `icmp` echo and errors, `udp` datagrams, `tcp` connections. Sends nothing
//! itself. Packets from a tunnel are untrusted until their checksums are verified.

pub mod icmp;
pub mod ip;
pub mod tcp;
pub mod udp;

pub use icmp::{Echo, Reply};
pub use ip::{Ends, Packet, PacketError};
pub use udp::Udp;

#[cfg(test)]
mod tests;
