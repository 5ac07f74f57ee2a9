//! What a client is by its profile: servers, certificates, ciphers, limits and timers, with OpenVPN 2.6's defaults. Owns the
//! record, and what a client of it announces; `parser` fills it in.

use std::fmt;

use rustls::{CipherSuite, NamedGroup};

use super::suites::TlsVersion;
use crate::openvpn::data::DataCipher;
use crate::openvpn::digest::Digest;
use crate::openvpn::message::compression::Compression;
use crate::openvpn::message::occ::OptionsString;
use crate::openvpn::message::peer_info::{CompressionOffer, PeerInfo, Protocols};
use crate::openvpn::role::Role;
use crate::openvpn::secret::Secret;
use crate::openvpn::wrap::{KeyDirection, KeyError, StaticKey, WrapKeys};

/// Data ciphers where a profile names none: OpenVPN 2.6's own.
pub(super) const USUAL_CIPHERS: [DataCipher; 3] =
    [DataCipher::Aes256Gcm, DataCipher::Aes128Gcm, DataCipher::ChaCha20Poly1305];
/// MTU of a tunnel where a profile names none, bytes.
const USUAL_MTU: u16 = 1500;
/// The largest MTU that may be pushed where a profile names none, bytes.
const USUAL_MOST_MTU: u16 = 1600;

/// What a client is told to be.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Servers, in the order in which they are tried; at least one.
    pub remotes: Vec<Remote>,
    /// Each client begins with another one of them.
    pub remote_random: bool,
    /// Authorities that a server's certificate may come from, PEM.
    pub ca: String,
    /// The client's certificate and what links it to its authority, PEM.
    pub cert: Option<String>,
    /// Its private key, PEM.
    pub key: Option<Secret>,
    /// How control packets are protected.
    pub wrap: WrapProfile,
    /// Data ciphers that are offered, in order; at least one.
    pub data_ciphers: Vec<DataCipher>,
    /// The data cipher towards a server that does not negotiate one.
    pub fallback_cipher: Option<DataCipher>,
    /// The option `cipher`: it counts in the options string only.
    pub cipher: Option<String>,
    /// The digest that CBC's packets are proved with; absent, by nothing (`auth none`).
    pub auth: Option<Digest>,
    /// Clients say who they are by user and password.
    pub wants_user: bool,
    /// The user and password of every client that is given no other.
    pub user: Option<(String, Secret)>,
    /// Framing of the data unless the server pushes another.
    pub compression: Option<Compression>,
    /// What is announced of compression.
    pub compression_offer: CompressionOffer,
    /// The lowest version of TLS.
    pub tls_min: TlsVersion,
    /// The highest version of TLS.
    pub tls_max: TlsVersion,
    /// TLS cipher suites, in order; all where empty.
    pub tls_ciphers: Vec<CipherSuite>,
    /// Groups of TLS's key exchange, in order; all where empty.
    pub tls_groups: Vec<NamedGroup>,
    /// The name that the server's certificate must have.
    pub verify_name: Option<VerifyName>,
    /// The server's certificate must be one for servers, by its extended key usage.
    pub server_usage: bool,
    /// Key usages, of which the server's certificate must have all of one entry; any at all where there is no entry. Not looked at
    /// where absent.
    pub key_usage: Option<Vec<u16>>,
    /// Age at which keys are renewed, seconds; never where absent.
    pub reneg_s: Option<u32>,
    /// Payload bytes after which keys are renewed.
    pub reneg_bytes: Option<u64>,
    /// Packets after which keys are renewed.
    pub reneg_packets: Option<u64>,
    /// How long a negotiation may take, seconds.
    pub hand_window_s: u32,
    /// When a control packet is sent for the second time, seconds.
    pub tls_timeout_s: u32,
    /// The peer info tells more than the protocol needs.
    pub push_peer_info: bool,
    /// Names and values that the peer info carries with `push_peer_info`: `UV_..`, `IV_PLAT_VER`.
    pub peer_info_more: Vec<(String, String)>,
    /// Those that it carries in any case: `IV_GUI_VER`, `IV_SSO`.
    pub peer_info_always: Vec<(String, String)>,
    /// How many packet numbers back a late packet is taken.
    pub replay_window: u32,
    /// The tunnel's MTU, bytes.
    pub tun_mtu: Option<u16>,
    /// The largest MTU that may be pushed, bytes.
    pub most_mtu: u16,
    /// Silence after which a client sends a ping, seconds.
    pub ping_s: Option<u32>,
    /// Silence after which a client gives the server up and comes back, seconds; 0 is never, absent the usual time.
    pub ping_restart_s: Option<u32>,
    /// Silence after which a client gives the server up for good, seconds; 0 is never. At most one of both is given.
    pub ping_exit_s: Option<u32>,
    /// Options that were passed over.
    pub ignored: Vec<Ignored>,
}

/// A server as a profile names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What carries the packets.
    pub transport: Transport,
    /// The only family that its name is looked up in; either where absent.
    pub family: Option<Family>,
}

/// What carries a tunnel's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A stream with a length before each packet.
    Tcp,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How a profile protects control packets.
#[derive(Clone)]
pub enum WrapProfile {
    /// Not.
    None,
    /// `tls-auth`.
    Auth {
        /// The key.
        key: StaticKey,
        /// Which halves this end uses; both ends the same one where absent.
        direction: Option<KeyDirection>,
        /// What packets are proved with: the option `auth`.
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

/// The name that a server's certificate must have (`verify-x509-name`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyName {
    /// Its common name is this.
    CommonName(String),
    /// Its common name begins with this.
    CommonNamePrefix(String),
    /// Its whole subject is this, written as OpenVPN writes it: `C=DE, O=Example, CN=server`.
    Subject(String),
}

/// An option that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its line, from 1.
    pub line: usize,
    /// The option, without what may be a secret.
    pub text: String,
}

impl Profile {
    /// The options string of a client of this profile.
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
            tun_mtu: self.tun_mtu.unwrap_or(USUAL_MTU),
            cipher: self.cipher.as_deref(),
            cipher_is_offered: self.cipher.as_deref().is_some_and(offered),
            auth: self.auth,
            compression: self.compression,
            tls_auth: matches!(self.wrap, WrapProfile::Auth { .. }),
            key_direction,
        }
        .text()
    }

    /// The peer info of a client of this profile that can do `protocols`.
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
            most_mtu: self.most_mtu,
            compression: self.compression_offer,
            more: &more,
        }
        .text()
    }
}

impl WrapProfile {
    /// The keys of a client.
    ///
    /// # Errors
    /// The key of `tls-crypt-v2` is none; `parse` has refused such a one already.
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
    /// Names the kind; keys stay out of logs.
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
    /// OpenVPN 2.6's own settings, without a server.
    fn default() -> Self {
        Self {
            remotes: Vec::new(),
            remote_random: false,
            ca: String::new(),
            cert: None,
            key: None,
            wrap: WrapProfile::None,
            data_ciphers: USUAL_CIPHERS.to_vec(),
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
            most_mtu: USUAL_MOST_MTU,
            ping_s: None,
            ping_restart_s: None,
            ping_exit_s: None,
            ignored: Vec::new(),
        }
    }
}
