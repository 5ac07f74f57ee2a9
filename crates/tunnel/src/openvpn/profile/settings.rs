//! A client's settings from its profile: servers, certificates, ciphers, limits and timers, with OpenVPN 2.6's defaults. Owns
//! the record, and what a client announces; `parser` fills it in.

use std::fmt;

use rustls::{CipherSuite, NamedGroup};

use super::suites::TlsVersion;
use crate::client::server::Transport;
use crate::openvpn::data::DataCipher;
use crate::openvpn::digest::Digest;
use crate::openvpn::message::compression::Compression;
use crate::openvpn::message::occ::OptionsString;
use crate::openvpn::message::peer_info::{CompressionOffer, PeerInfo, Protocols};
use crate::openvpn::role::Role;
use crate::openvpn::wrap::{KeyDirection, KeyError, StaticKey, WrapKeys};
use crate::secret::Secret;

/// Default data ciphers: those of OpenVPN 2.6.
pub(super) const DEFAULT_CIPHERS: [DataCipher; 3] =
    [DataCipher::Aes256Gcm, DataCipher::Aes128Gcm, DataCipher::ChaCha20Poly1305];
/// Default MTU of a tunnel, bytes.
const DEFAULT_MTU: u16 = 1500;
/// Default maximum MTU that a server may push, bytes.
const DEFAULT_MAX_MTU: u16 = 1600;

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Servers in the order of attempts; at least one.
    pub remotes: Vec<Remote>,
    /// Whether each client begins with a different server.
    pub remote_random: bool,
    /// Authorities of the server's certificate, PEM.
    pub ca: String,
    /// The client's certificate with its chain, PEM.
    pub cert: Option<String>,
    /// The private key, PEM.
    pub key: Option<Secret>,
    /// Protection of control packets.
    pub wrap: WrapProfile,
    /// Offered data ciphers in order; at least one.
    pub data_ciphers: Vec<DataCipher>,
    /// The data cipher for a server that does not negotiate.
    pub fallback_cipher: Option<DataCipher>,
    /// The option `cipher`, which is used in the options string only.
    pub cipher: Option<String>,
    /// The digest that authenticates CBC packets; `None` without authentication (`auth none`).
    pub auth: Option<Digest>,
    /// Whether clients authenticate with user and password.
    pub wants_user: bool,
    /// The user and password of every client without its own.
    pub user: Option<(String, Secret)>,
    /// Compression framing, unless the server pushes another.
    pub compression: Option<Compression>,
    /// The announced compression framings.
    pub compression_offer: CompressionOffer,
    /// Minimum version of TLS.
    pub tls_min: TlsVersion,
    /// Maximum version of TLS.
    pub tls_max: TlsVersion,
    /// TLS cipher suites in order; all if empty.
    pub tls_ciphers: Vec<CipherSuite>,
    /// Groups of the TLS key exchange in order; all if empty.
    pub tls_groups: Vec<NamedGroup>,
    /// The required name of the server's certificate.
    pub verify_name: Option<VerifyName>,
    /// Whether the server's certificate must have the extended key usage of servers.
    pub server_usage: bool,
    /// Accepted key usages of the server's certificate, which must have all usages of one entry. If empty, any key
    /// usage is accepted but required; if absent, it is not checked.
    pub key_usage: Option<Vec<u16>>,
    /// Age at which keys are renewed, seconds; never if absent.
    pub reneg_s: Option<u32>,
    /// Payload bytes after which keys are renewed.
    pub reneg_bytes: Option<u64>,
    /// Packets after which keys are renewed.
    pub reneg_packets: Option<u64>,
    /// Time limit of a negotiation, seconds.
    pub hand_window_s: u32,
    /// Delay of a control packet's first retransmission, seconds.
    pub tls_timeout_s: u32,
    /// Whether the peer info has more than the required lines.
    pub push_peer_info: bool,
    /// Names and values of the peer info with `push_peer_info`: `UV_..`, `IV_PLAT_VER`.
    pub peer_info_more: Vec<(String, String)>,
    /// Names and values that are always in the peer info: `IV_GUI_VER`, `IV_SSO`.
    pub peer_info_always: Vec<(String, String)>,
    /// How many packet numbers back a late packet is accepted.
    pub replay_window: u32,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: Option<u16>,
    /// Maximum MTU that the server may push, bytes.
    pub max_mtu: u16,
    /// Idle time after which a client sends a ping, seconds.
    pub ping_s: Option<u32>,
    /// Silence after which a client reconnects, seconds; 0 means never, absent means the default.
    pub ping_restart_s: Option<u32>,
    /// Silence after which a client gives up, seconds; 0 means never. At most one of both is set.
    pub ping_exit_s: Option<u32>,
    /// Ignored options.
    pub ignored: Vec<Ignored>,
}

/// A server in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Transport of the packets.
    pub transport: Transport,
    /// The only address family in which the name is resolved; either if absent.
    pub family: Option<Family>,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A profile's protection of control packets.
#[derive(Clone)]
pub enum WrapProfile {
    /// No protection.
    None,
    /// `tls-auth`.
    Auth {
        /// The key.
        key: StaticKey,
        /// Which halves of the key this end uses; if absent, both ends use the same one.
        direction: Option<KeyDirection>,
        /// The digest that authenticates packets: the option `auth`.
        digest: Digest,
    },
    /// `tls-crypt`.
    Crypt {
        /// The key.
        key: StaticKey,
    },
    /// `tls-crypt-v2`.
    CryptV2 {
        /// The client's key file.
        key: Secret,
    },
}

/// The required name of a server's certificate (`verify-x509-name`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyName {
    /// The common name.
    CommonName(String),
    /// The beginning of the common name.
    CommonNamePrefix(String),
    /// The whole subject, formatted as OpenVPN does: `C=DE, O=Example, CN=server`.
    Subject(String),
}

/// An ignored option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Line number, from 1.
    pub line: usize,
    /// The option without possible secrets.
    pub text: String,
}

impl Profile {
    /// The options string of a client with this profile.
    #[must_use]
    pub fn options_string(&self, transport: Transport) -> String {
        let offered = |name: &str| self.data_ciphers.iter().any(|cipher| cipher.name().eq_ignore_ascii_case(name));
        let key_direction = match self.wrap {
            WrapProfile::Auth { direction, .. } => direction.map(|direction| match direction {
                KeyDirection::Normal => 0,
                KeyDirection::Inverse => 1,
            }),
            _ => None,
        };
        OptionsString {
            role: Role::Client,
            tcp: transport == Transport::Tcp,
            tun_mtu: self.tun_mtu.unwrap_or(DEFAULT_MTU),
            cipher: self.cipher.as_deref(),
            cipher_is_offered: self.cipher.as_deref().is_some_and(offered),
            auth: self.auth,
            compression: self.compression,
            tls_auth: matches!(self.wrap, WrapProfile::Auth { .. }),
            key_direction,
        }
        .text()
    }

    /// The peer info of a client with this profile that supports `protocols`.
    #[must_use]
    pub fn peer_info(&self, protocols: Protocols) -> String {
        let ciphers: Vec<&str> = self.data_ciphers.iter().map(|cipher| cipher.name()).collect();
        let mut more = self.peer_info_always.clone();
        if self.push_peer_info {
            more.extend_from_slice(&self.peer_info_more);
        }
        PeerInfo {
            protocols,
            ciphers: &ciphers,
            max_mtu: self.max_mtu,
            compression: self.compression_offer,
            more: &more,
        }
        .text()
    }
}

impl WrapProfile {
    /// The control channel keys of a client.
    ///
    /// # Errors
    /// The key of `tls-crypt-v2` is invalid; `parse` has already refused such a key.
    pub fn keys(&self) -> Result<WrapKeys, KeyError> {
        Ok(match self {
            Self::None => WrapKeys::None,
            Self::Auth { key, direction, digest } => WrapKeys::auth(key, *direction, *digest),
            Self::Crypt { key } => WrapKeys::crypt(key, Role::Client),
            Self::CryptV2 { key } => WrapKeys::crypt_v2(key.expose())?,
        })
    }
}

impl fmt::Debug for WrapProfile {
    /// Prints the kind without keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Auth { .. } => "Auth(..)",
            Self::Crypt { .. } => "Crypt(..)",
            Self::CryptV2 { .. } => "CryptV2(..)",
        })
    }
}

impl fmt::Display for Ignored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.text)
    }
}

impl Default for Profile {
    /// The defaults of OpenVPN 2.6, without a server.
    fn default() -> Self {
        Self {
            remotes: Vec::new(),
            remote_random: false,
            ca: String::new(),
            cert: None,
            key: None,
            wrap: WrapProfile::None,
            data_ciphers: DEFAULT_CIPHERS.to_vec(),
            fallback_cipher: None,
            cipher: None,
            auth: Some(Digest::default()),
            wants_user: false,
            user: None,
            compression: None,
            compression_offer: CompressionOffer::All,
            tls_min: TlsVersion::Tls12,
            tls_max: TlsVersion::Tls13,
            tls_ciphers: Vec::new(),
            tls_groups: Vec::new(),
            verify_name: None,
            server_usage: false,
            key_usage: None,
            reneg_s: Some(3600),
            reneg_bytes: None,
            reneg_packets: None,
            hand_window_s: 60,
            tls_timeout_s: 2,
            push_peer_info: false,
            peer_info_more: Vec::new(),
            peer_info_always: Vec::new(),
            replay_window: 64,
            tun_mtu: None,
            max_mtu: DEFAULT_MAX_MTU,
            ping_s: None,
            ping_restart_s: None,
            ping_exit_s: None,
            ignored: Vec::new(),
        }
    }
}
