//! The options `compress` and `comp-lzo` of profiles and pushes, and the data framing that they select. `data`
//! implements the framings.

/// A framing of data packets for compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// A byte before each packet, never compressed: `comp-lzo no`.
    Stub,
    /// A byte in place of each packet's first one, never compressed: `compress`, `compress stub`.
    StubSwapped,
    /// A byte only before packets that would be ambiguous, never compressed: `compress stub-v2`.
    StubV2,
    /// LZO, with a byte before each packet: `comp-lzo`, `compress lzo`.
    Lzo,
    /// LZ4, with a byte in place of each packet's first one: `compress lz4`.
    Lz4,
    /// LZ4, framed like `StubV2`: `compress lz4-v2`.
    Lz4V2,
}

impl Compression {
    /// The framing that an option selects; `None` if it is another option, or has a value that OpenVPN does not
    /// support.
    #[must_use]
    pub fn from_option(tokens: &[impl AsRef<str>]) -> Option<Self> {
        let mut tokens = tokens.iter().map(AsRef::as_ref);
        match (tokens.next()?, tokens.next(), tokens.next()) {
            ("comp-lzo", Some("no"), None) => Some(Self::Stub),
            ("comp-lzo", None | Some("yes" | "adaptive"), None) => Some(Self::Lzo),
            ("compress", None | Some("stub"), None) => Some(Self::StubSwapped),
            ("compress", Some("stub-v2"), None) => Some(Self::StubV2),
            ("compress", Some("lzo"), None) => Some(Self::Lzo),
            ("compress", Some("lz4"), None) => Some(Self::Lz4),
            ("compress", Some("lz4-v2"), None) => Some(Self::Lz4V2),
            _ => None,
        }
    }

    /// Whether each packet grows by a byte, as the options string computes it.
    #[must_use]
    pub fn always_has_a_byte(self) -> bool {
        !matches!(self, Self::StubV2 | Self::Lz4V2)
    }
}
