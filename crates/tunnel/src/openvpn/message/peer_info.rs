//! The peer info that a client sends in the key exchange: one `NAME=value` per line. Owns the names and bits. A bit
//! is announced only if this client supports the feature, and a test can remove any of them.

use std::fmt::Write;

/// Protocol features, announced as one number, `IV_PROTO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocols(pub u32);

impl Protocols {
    /// Data packets with a peer id.
    pub const DATA_V2: Self = Self(1 << 1);
    /// The server may push options before they are requested.
    pub const REQUEST_PUSH: Self = Self(1 << 2);
    /// Data keys from TLS's exporter.
    pub const TLS_KEY_EXPORT: Self = Self(1 << 3);
    /// `AUTH_PENDING` with keywords.
    pub const AUTH_PENDING_KEYWORDS: Self = Self(1 << 4);
    /// The exit notification in the control channel.
    pub const CONTROL_EXIT: Self = Self(1 << 7);
    /// `AUTH_FAILED,TEMP`.
    pub const AUTH_FAILED_TEMPORARY: Self = Self(1 << 8);
    /// Control channel keys that are renewed from TLS's exporter.
    pub const DYNAMIC_TLS_CRYPT: Self = Self(1 << 9);
    /// Data packets with epochs.
    pub const DATA_EPOCH: Self = Self(1 << 10);
    /// The option `dns` in the syntax of 2.7.
    pub const DNS_V2: Self = Self(1 << 11);
    /// `PUSH_UPDATE`.
    pub const PUSH_UPDATE: Self = Self(1 << 12);
    /// All features of this client.
    pub const ALL: Self = Self(
        Self::DATA_V2.0
            | Self::REQUEST_PUSH.0
            | Self::TLS_KEY_EXPORT.0
            | Self::AUTH_PENDING_KEYWORDS.0
            | Self::CONTROL_EXIT.0
            | Self::AUTH_FAILED_TEMPORARY.0
            | Self::DYNAMIC_TLS_CRYPT.0
            | Self::DATA_EPOCH.0
            | Self::DNS_V2.0
            | Self::PUSH_UPDATE.0,
    );

    /// These features without `those`.
    #[must_use]
    pub const fn without(self, those: Self) -> Self {
        Self(self.0 & !those.0)
    }

    /// These features and `those`.
    #[must_use]
    pub const fn with(self, those: Self) -> Self {
        Self(self.0 | those.0)
    }

    /// Whether these features include all of `those`.
    #[must_use]
    pub const fn has(self, those: Self) -> bool {
        self.0 & those.0 == those.0
    }
}

/// The compression framings that a client announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionOffer {
    /// None: nothing is announced (`allow-compression no` without any framing).
    None,
    /// The framings without compression.
    Stubs,
    /// LZO and LZ4 as well.
    All,
}

/// A client's peer info.
#[derive(Clone, Debug)]
pub struct PeerInfo<'a> {
    /// Announced features.
    pub protocols: Protocols,
    /// Data ciphers, by OpenVPN's names.
    pub ciphers: &'a [&'a str],
    /// Maximum MTU that the server may push, bytes.
    pub max_mtu: u16,
    /// Announced compression.
    pub compression: CompressionOffer,
    /// Additional lines, as name and value: those of `setenv UV_..`, sent with `push-peer-info`.
    pub more: &'a [(String, String)],
}

impl PeerInfo<'_> {
    /// The encoded peer info.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "IV_VER=leadline_{}\nIV_PLAT=linux\nIV_TCPNL=1\nIV_MTU={}\n",
            env!("CARGO_PKG_VERSION"),
            self.max_mtu
        );
        // Servers of 2.4 interpret 2 as support of both AES-GCM ciphers.
        if ["AES-128-GCM", "AES-256-GCM"].iter().all(|name| self.ciphers.contains(name)) {
            text.push_str("IV_NCP=2\n");
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "IV_CIPHERS={}\nIV_PROTO={}\n", self.ciphers.join(":"), self.protocols.0);
        text.push_str(match self.compression {
            CompressionOffer::None => "",
            CompressionOffer::Stubs => "IV_LZO_STUB=1\nIV_COMP_STUB=1\nIV_COMP_STUBv2=1\n",
            CompressionOffer::All => "IV_LZ4=1\nIV_LZ4v2=1\nIV_LZO=1\nIV_COMP_STUB=1\nIV_COMP_STUBv2=1\n",
        });
        for (name, value) in self.more {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

/// The value of a name in a peer info.
#[must_use]
pub fn value<'a>(peer_info: &'a str, name: &str) -> Option<&'a str> {
    peer_info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// The features that a peer announces; empty if it announces none.
#[must_use]
pub fn protocols(peer_info: &str) -> Protocols {
    Protocols(value(peer_info, "IV_PROTO").and_then(|number| number.trim().parse().ok()).unwrap_or(0))
}

/// The data ciphers that a peer offers, in its order.
pub fn ciphers(peer_info: &str) -> impl Iterator<Item = &str> {
    value(peer_info, "IV_CIPHERS").unwrap_or_default().split(':').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_info_lists_enabled_protocols() {
        let info = PeerInfo {
            protocols: Protocols::ALL.without(Protocols::DATA_EPOCH),
            ciphers: &["AES-256-GCM", "AES-128-GCM", "CHACHA20-POLY1305"],
            max_mtu: 1600,
            compression: CompressionOffer::Stubs,
            more: &[("UV_SITE".into(), "7".into())],
        };
        let text = info.text();
        assert_eq!(
            text,
            format!(
                "IV_VER=leadline_{}\nIV_PLAT=linux\nIV_TCPNL=1\nIV_MTU=1600\nIV_NCP=2\n\
                 IV_CIPHERS=AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305\nIV_PROTO=7070\n\
                 IV_LZO_STUB=1\nIV_COMP_STUB=1\nIV_COMP_STUBv2=1\nUV_SITE=7\n",
                env!("CARGO_PKG_VERSION")
            )
        );
        assert_eq!(protocols(&text), info.protocols);
        assert!(protocols(&text).has(Protocols::PUSH_UPDATE) && !protocols(&text).has(Protocols::DATA_EPOCH));
        assert!(ciphers(&text).eq(info.ciphers.iter().copied()));
        let old = PeerInfo { ciphers: &["AES-256-CBC"], compression: CompressionOffer::None, ..info }.text();
        assert!(!old.contains("IV_NCP") && !old.contains("COMP"), "{old}");
    }

    #[test]
    fn malformed_peer_info_yields_no_values() {
        for malformed in ["", "IV_PROTO", "IV_PROTO=", "IV_PROTO=-1", "IV_PROTO=99999999999", "XIV_PROTO=2", "=\n==\n"]
        {
            assert_eq!(protocols(malformed), Protocols(0), "{malformed}");
            assert_eq!(ciphers(malformed).count(), 0);
        }
    }
}
