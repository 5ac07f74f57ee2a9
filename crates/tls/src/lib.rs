//! TLS 1.2 and 1.3 as machines: bytes of the connection in, bytes for the connection out, plaintext on the other side.
//! Owns what may be negotiated, which certificates are accepted, and the names that failures are counted by, so that HTTP and tunnels
//! count alike; the protocol itself is rustls's, over aws-lc-rs.
//! Refuses: sockets, files, and holding more of a peer's bytes than an unfinished message ([`PENDING_LIMIT_BYTES`]).
//! Start with [`ClientTls`] and [`TlsClient`]; a server's side is [`ServerTls`] and [`TlsServer`].

mod authority;
mod client;
mod connection;
mod failure;
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
pub use records::PENDING_LIMIT_BYTES;
pub use self_signed::{self_signed_certificate, SelfSignedCertificate};
pub use server::{ServerOptions, ServerTls, TlsServer};
pub use setup::{cipher_suite_names, TlsSetupError};
pub use trust::ChainVerifier;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl TlsVersion {
    /// `1.2` or `1.3`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "1.2",
            TlsVersion::V1_3 => "1.3",
        }
    }
}

/// What a finished handshake agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Whether it resumed an earlier session instead of authenticating anew.
    pub resumed: bool,
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite by its IANA name.
    pub suite: &'static str,
    /// Which of our own ALPN protocols was chosen, by its place among them; none where the peer chose none.
    pub alpn: Option<usize>,
}
