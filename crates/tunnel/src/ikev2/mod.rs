//! IKEv2 (RFC 7296) as an initiator for fleets of clients, and what both ends need of the protocol: payloads, keys,
//! encrypted messages. It opens no socket and reads no clock. Start with [`client::Client`]; its settings are
//! [`config::ClientConfig`] and [`config::Identity`], which [`swanctl`] reads from a connection of swanctl.conf.
//!
//! Not supported, and refused by name: IKEv1, transport mode, AH, IPComp, redirects, responding to an initial exchange.

pub mod auth;
pub mod client;
pub mod config;
pub mod configuration;
pub mod dh;
pub mod eap;
pub mod fleet;
pub mod fragments;
pub mod identification;
pub mod keys;
pub mod message;
mod modp;
pub mod mschap;
pub mod notify;
pub mod prf;
pub mod proposal;
pub mod protected;
pub mod random;
pub mod route;
pub mod secret_bytes;
pub mod signature;
pub mod swanctl;
pub mod traffic_selector;
