//! TLS 1.2 and 1.3 as machines: bytes of the connection in, bytes for the connection out, plaintext on the other side.
//! Owns what may be negotiated, which certificates are accepted, and the names that failures are counted by, so that HTTP and tunnels
//! count alike; the protocol itself is rustls's, over aws-lc-rs.
//! Refuses: sockets, files, and holding more of a peer's bytes than an unfinished message ([`PENDING_LIMIT_BYTES`]).
//! Start with [`ClientTls`] and [`TlsClient`]; a server's side is [`ServerTls`] and [`TlsServer`].

mod authority;
mod client;
mod connection;
mod failure;
mod handshake;
mod records;
mod self_signed;
mod server;
mod sessions;
mod setup;
mod trust;

pub use authority::TemporaryAuthority;
pub use client::{ClientTls, TlsClient, TlsOptions};
pub use connection::TlsConnection;
pub use failure::{is_authority, TlsFailure, UnmetDemand};
pub use handshake::{Handshake, TlsVersion};
pub use records::PENDING_LIMIT_BYTES;
pub use self_signed::{self_signed_certificate, SelfSignedCertificate};
pub use server::{ServerOptions, ServerTls, TlsServer};
pub use setup::{cipher_suite_names, TlsSetupError};
pub use trust::ChainVerifier;
