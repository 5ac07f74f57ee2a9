//! OpenVPN as machines: a client and a server of its own kind that are given packets and a time and say what to send.
//! The protocol is what the C implementation does (2.4 to 2.7); where its published description differs, the code counts.

pub mod certificate_subject;
pub mod client;
pub mod config;
pub mod data;
pub mod digest;
pub mod framing;
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
pub mod secret;
pub mod server;
mod session;
pub mod tls;
pub mod tokenizer;
pub mod usage;
pub mod wrap;

#[cfg(test)]
pub(crate) mod pair;
#[cfg(test)]
mod tests;
