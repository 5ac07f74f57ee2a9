//! TLS 1.2 and 1.3 as machines, which turn a connection's bytes into plaintext and plaintext into bytes for the
//! connection. Owns what may be negotiated, which certificates are accepted, and the names under which failures are
//! counted, so that HTTP and tunnels count alike; rustls over aws-lc-rs implements the protocol. Opens no sockets and
//! no files, and holds no more of a peer's bytes than an unfinished message ([`PENDING_LIMIT_BYTES`]). Start with
//! [`ClientTls`] and [`TlsClient`]; a server's side is [`ServerTls`] and [`TlsServer`].

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
pub use client::{ClientSettings, ClientTls, TlsClient, TlsOptions};
pub use connection::TlsConnection;
pub use failure::{is_authority, TlsFailure, UnmetDemand};
pub use handshake::{Handshake, TlsVersion};
pub use records::PENDING_LIMIT_BYTES;
pub use self_signed::{self_signed_certificate, SelfSignedCertificate};
pub use server::{ServerOptions, ServerTls, TlsServer};
pub use setup::{cipher_suite_names, TlsSetupError};
pub use trust::ChainVerifier;
