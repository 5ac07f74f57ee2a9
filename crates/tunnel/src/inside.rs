//! What a client without a TUN device puts into its tunnel and finds in it: whole IP packets, IPv4 and IPv6, made and read here with
//! their checksums. `ip` has the headers, `icmp` echo and the errors of routers and hosts,
//! `udp` datagrams, `tcp` connections. Pure bytes: nothing is sent from here, and
//! whatever comes out of a tunnel is hostile until its checksums say otherwise.

pub mod icmp;
pub mod ip;
pub mod tcp;
pub mod udp;

pub use icmp::{Echo, Reply};
pub use ip::{Ends, Packet, PacketError};
pub use udp::Udp;

#[cfg(test)]
mod tests;
