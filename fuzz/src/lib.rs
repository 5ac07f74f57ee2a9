//! Properties that must hold for any input from the network: one function of bytes per parser, one module per crate.
//! Each file is self-contained: the crates' own tests include it by its path and run the stored corpus through it,
//! without cargo-fuzz.

pub mod access_log;
pub mod capture;
pub mod http;
pub mod ikev2;
pub mod inside;
pub mod openvpn;
pub mod openvpn_client;
pub mod replay;
pub mod transport;
pub mod tunnel;
