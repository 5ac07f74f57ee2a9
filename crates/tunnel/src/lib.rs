//! VPN tunnels as state machines: they receive bytes and a time, and return what to send and what to deliver. They
//! own no socket and no TUN device; the agent moves the bytes.

pub mod client;
pub mod esp;
pub mod framing;
pub mod ikev2;
pub mod inside;
pub mod offload;
pub mod openvpn;
pub mod protocol;
pub mod secret;
pub mod timer;
pub mod wireguard;
