//! OpenVPN as state machines: a client, and a server of our own, which receive packets and times and return what to
//! send. They follow the C implementation (2.4 to 2.7), also where it differs from its published description.

pub mod certificate_subject;
pub mod client;
pub mod config;
pub mod data;
pub mod digest;
pub mod fleet;
pub mod handshake_bench;
pub mod identity;
pub mod keys;
pub mod message;
mod negotiation;
pub mod packet;
pub mod profile;
mod random;
pub mod raw_cipher;
pub mod reliable;
pub mod role;
pub mod server;
mod session;
pub mod tls;
pub mod tokenizer;
pub mod usage;
pub mod wrap;
