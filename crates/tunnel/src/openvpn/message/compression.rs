//! The options `compress` and `comp-lzo`, of profiles and of pushes: which framing of the data they ask for. What the framings
//! look like is `data`'s.

/// A framing of data packets that leaves room for compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// A byte before each packet, never compressed: `comp-lzo no`.
    Stub,
    /// A byte in the place of each packet's first one, never compressed: `compress`, `compress stub`.
    StubSwapped,
    /// A byte before the few packets that would be mistaken otherwise, never compressed: `compress stub-v2`.
    StubV2,
    /// LZO, a byte before each packet: `comp-lzo`, `compress lzo`.
    Lzo,
    /// LZ4, a byte in the place of each packet's first one: `compress lz4`.
    Lz4,
    /// LZ4, framed as `StubV2`: `compress lz4-v2`.
    Lz4V2,
}

impl Compression {
    /// What an option's words ask for; none where they are not of the two options, or not in a way that OpenVPN knows.
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

    /// Whether each packet grows by a byte, as the options string counts it.
    #[must_use]
    pub fn always_has_a_byte(self) -> bool {
        !matches!(self, Self::StubV2 | Self::Lz4V2)
    }
}
