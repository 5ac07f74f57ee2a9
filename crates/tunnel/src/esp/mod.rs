//! ESP in tunnel mode (RFC 4303): packets of a security association, sealed and opened. Owns ciphers with their keys,
//! sequence numbers, the replay window and the padding. Bytes only: where an SA's keys come from is `ikev2`'s matter,
//! and UDP encapsulation (RFC 3948) adds nothing to an ESP packet's bytes. Start with [`Outbound`] and [`Inbound`].

pub mod cipher;
mod replay;
mod sa;

pub use replay::ReplayWindow;
pub use sa::{EspError, Inbound, Opened, Outbound, Policy, HEADER_BYTES};
