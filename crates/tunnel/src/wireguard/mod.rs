//! WireGuard (Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel", NDSS 2017) for many peers over one UDP
//! port.
//!
//! boringtun's `noise` performs each peer's cryptography and session timers. This module finds the peer of a datagram
//! or packet, stores the peers' endpoints and allowed addresses, and counts every dropped packet. It opens no socket.
//! `machine` is a gateway; `client` is one client of a fleet (`fleet`), with timers of its own.
//!
//! One exception to the rule that machines never read a clock: boringtun reads the time itself (`CLOCK_BOOTTIME`, and
//! once per peer the wall clock for TAI64N stamps) in `Tunn::new`, `update_timers`, when it writes an initiation or
//! reads a response, and in the rate limiter. Encryption and decryption of data read no clock.

mod allowed;
mod client;
mod config;
mod counters;
pub mod file;
pub mod fleet;
mod identity;
mod keys;
mod machine;
mod message;
mod peer;

pub use allowed::{AllowedAddresses, Conflict, Prefix};
pub use config::{Config, ConfigError, PeerConfig};
pub use counters::{Counters, Drops, Traffic};
pub use keys::{BadKey, PresharedKey, PrivateKey, PublicKey};
pub use machine::{Machine, Output, SetupError, OVERHEAD_BYTES, SPACE_MIN_BYTES};
