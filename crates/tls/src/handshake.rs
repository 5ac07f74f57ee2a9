//! The result of a handshake: the protocol's version, the cipher suite, ALPN, and whether a session was resumed. Owns
//! the type; `setup` limits what may be negotiated, and `records` fills it in.

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

/// The result of a finished handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Whether it resumed an earlier session instead of authenticating again.
    pub resumed: bool,
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite by its IANA name.
    pub suite: &'static str,
    /// The chosen ALPN protocol, as an index into our own; `None` if the peer chose none.
    pub alpn: Option<usize>,
}
