//! What must hold whatever the network sends: a function of bytes per parser, a module per crate. Each file stands alone, for the
//! crates' own tests take it in by its path and run the kept corpus through it, without cargo-fuzz.

pub mod http;
pub mod inside;
pub mod openvpn;
pub mod openvpn_client;
pub mod transport;
pub mod tunnel;
