//! WireGuard (Donenfeld, "WireGuard: Next Generation Kernel Network Tunnel", NDSS 2017) for many peers over one UDP port.
//!
//! boringtun's `noise` does each peer's cryptography and session timers; this module finds the peer of a datagram or packet, holds
//! the peers' endpoints and allowed addresses, and counts whatever it drops. It opens no socket.
//!
//! One exception to "machines never read a clock": boringtun takes the time by itself (`CLOCK_BOOTTIME`, and once per peer the wall
//! clock for TAI64N stamps), in `Tunn::new`, `update_timers`, whenever it writes an initiation or reads a response, and in the rate
//! limiter. Encrypting and decrypting data reads no clock.

mod allowed;
mod config;
mod counters;
mod keys;
mod machine;
mod peer;

pub use allowed::{AllowedAddresses, Conflict, Prefix};
pub use config::{Config, ConfigError, PeerConfig};
pub use counters::{Counters, Drops, Traffic};
pub use keys::{BadKey, PrivateKey, PublicKey};
pub use machine::{Machine, Output, SetupError, OVERHEAD_BYTES, SPACE_MIN_BYTES};
