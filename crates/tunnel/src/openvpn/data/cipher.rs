//! The ciphers of the data channel: OpenVPN's names, the lengths of their keys, and which of them authenticate packets.

/// A cipher of the data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataCipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-192-GCM.
    Aes192Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// CHACHA20-POLY1305.
    ChaCha20Poly1305,
    /// AES-128-CBC.
    Aes128Cbc,
    /// AES-192-CBC.
    Aes192Cbc,
    /// AES-256-CBC.
    Aes256Cbc,
}

impl DataCipher {
    /// Every cipher.
    pub const ALL: [Self; 7] = [
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
        Self::Aes128Cbc,
        Self::Aes192Cbc,
        Self::Aes256Cbc,
    ];

    /// The cipher that OpenVPN calls `name`; case is ignored.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.name().eq_ignore_ascii_case(name))
    }

    /// OpenVPN's name of the cipher.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes192Gcm => "AES-192-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "CHACHA20-POLY1305",
            Self::Aes128Cbc => "AES-128-CBC",
            Self::Aes192Cbc => "AES-192-CBC",
            Self::Aes256Cbc => "AES-256-CBC",
        }
    }

    /// Whether the cipher authenticates packets; the others need an HMAC.
    #[must_use]
    pub fn is_aead(self) -> bool {
        self.is_gcm() || self == Self::ChaCha20Poly1305
    }

    /// Key length, bytes.
    #[must_use]
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Cbc => 16,
            Self::Aes192Gcm | Self::Aes192Cbc => 24,
            Self::Aes256Gcm | Self::Aes256Cbc | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// Whether it is AES in GCM, whose keys protect a limited number of blocks.
    pub(super) fn is_gcm(self) -> bool {
        matches!(self, Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm)
    }
}
