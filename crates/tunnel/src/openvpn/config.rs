//! The settings that all clients of a fleet share, created once from a profile, and each client's identity.

use std::sync::Arc;

use super::data::{DataCipher, Framing, LARGEST_PAYLOAD};
use super::digest::Digest;
use super::message::compression::Compression;
use super::message::peer_info::Protocols;
use super::profile::Profile;
use super::tls::{self, ClientTrust, TlsLine, Trust};
use super::wrap::WrapKeys;
use crate::client::server::Transport;
pub use crate::protocol::Token;
use crate::secret::Secret;

/// A profile as the machine needs it.
pub struct ClientConfig {
    /// Wrapping of control packets.
    pub wrap: WrapKeys,
    /// Offered data ciphers, in the profile's order.
    pub ciphers: Vec<DataCipher>,
    /// The cipher for a server that does not negotiate.
    pub fallback: Option<DataCipher>,
    /// The digest for CBC ciphers, if any.
    pub digest: Option<Digest>,
    /// Framing of payloads, unless the server pushes another.
    pub framing: Framing,
    /// The options string.
    pub occ: String,
    /// The client's peer info.
    pub peer_info: String,
    /// How many packet numbers back a late data packet is accepted.
    pub replay_window: u32,
    /// Maximum packet size of the tunnel, unless the server pushes a larger one, bytes: `tun-mtu`, `tun-mtu-max`.
    pub largest_payload: usize,
    /// Time limit of a negotiation, ns.
    pub hand_window_ns: u64,
    /// Age of keys at which they are replaced, ns; `None` means never.
    pub renegotiate_after_ns: Option<u64>,
    /// Traffic of keys at which they are replaced.
    pub renegotiate_after: KeyLimits,
    /// Interval of keepalives, unless the server pushes it, s.
    pub ping_s: Option<u32>,
    /// Time limit of a server's silence, unless the server pushes it.
    pub silence: Option<Silence>,
    /// Whether the transport is TCP.
    pub is_stream: bool,
    /// Delay of a control packet's first retransmission, ns.
    pub first_timeout_ns: u64,
    /// The trusted authorities, and the TLS parameters.
    pub trust: ClientTrust,
    /// Unix time at `now_ns` 0, s.
    pub unix_base_s: u64,
}

/// Traffic limits of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Payload bytes in both directions.
    pub bytes: Option<u64>,
    /// Packets in both directions.
    pub packets: Option<u64>,
}

/// The reaction to a server that is silent for this many seconds; 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Reconnect.
    Restart(u32),
    /// Give up.
    Exit(u32),
}

/// The identity of a client.
#[derive(Clone)]
pub struct Identity {
    /// The TLS configuration with its certificate; see `tls::client_config`.
    pub tls: Arc<rustls::ClientConfig>,
    /// User and password.
    pub user: Option<(String, Secret)>,
    /// The token that replaces the password.
    pub token: Option<Token>,
}

/// Why no data cipher can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCipher {
    /// The server chose a cipher that was not offered.
    NotOffered(String),
    /// The server names no cipher, and no fallback is set.
    NoneNamed,
}

impl Identity {
    /// The same identity with the server's last token, if any: see `Client::token`.
    #[must_use]
    pub fn with_token(&self, token: Option<Token>) -> Self {
        Self { token, ..self.clone() }
    }

    /// The user and password to send.
    #[must_use]
    pub fn credentials(&self) -> Option<(String, Secret)> {
        self.token.as_ref().map(|token| (token.user.clone(), token.secret.clone())).or_else(|| self.user.clone())
    }
}

/// OpenVPN's default time limit of a server's silence, if neither the profile nor the server sets it.
const DEFAULT_SILENCE_S: u32 = 120;
/// The protocol features of this client: all that exist.
const PROTOCOLS: Protocols = Protocols::ALL;

impl ClientConfig {
    /// Creates the configuration of a profile. `unix_base_s` is the Unix time at `now_ns` 0, s.
    ///
    /// # Errors
    /// One line on an invalid key; `profile::parse` has refused all other errors.
    pub fn new(profile: &Profile, unix_base_s: u64) -> Result<Self, String> {
        let transport = profile.remotes.first().map_or(Transport::Udp, |remote| remote.transport);
        let seconds = |s: u32| u64::from(s) * 1_000_000_000;
        // Over TCP the stream detects a server that is gone.
        let usual = (transport == Transport::Udp).then_some(Silence::Restart(DEFAULT_SILENCE_S));
        let restart = profile.ping_restart_s.map(Silence::Restart);
        Ok(Self {
            wrap: profile.wrap.keys().map_err(|error| error.to_string())?,
            ciphers: profile.data_ciphers.clone(),
            fallback: profile.fallback_cipher,
            digest: profile.auth,
            framing: profile.compression.map_or(Framing::None, Framing::from),
            occ: profile.options_string(transport),
            peer_info: profile.peer_info(PROTOCOLS),
            replay_window: profile.replay_window,
            largest_payload: usize::from(profile.tun_mtu.unwrap_or(0).max(profile.max_mtu)).max(LARGEST_PAYLOAD),
            hand_window_ns: seconds(profile.hand_window_s),
            renegotiate_after_ns: profile.reneg_s.map(seconds),
            renegotiate_after: KeyLimits { bytes: profile.reneg_bytes, packets: profile.reneg_packets },
            ping_s: profile.ping_s,
            silence: profile.ping_exit_s.map(Silence::Exit).or(restart).or(usual),
            is_stream: transport == Transport::Tcp,
            first_timeout_ns: seconds(profile.tls_timeout_s),
            trust: ClientTrust::new(&Trust::of(profile))?,
            unix_base_s,
        })
    }

    /// Creates an identity from a certificate and key (PEM), and a user and password.
    ///
    /// # Errors
    /// One line on what is invalid.
    pub fn identity(
        &self,
        certificate: Option<(&str, &str)>,
        user: Option<(String, Secret)>,
    ) -> Result<Identity, String> {
        let tls = tls::client_config(&self.trust, certificate)?;
        // TLS is created once here, so that no attempt can fail because of its configuration.
        TlsLine::client(&Arc::new(tls.clone())).map_err(|failure| failure.to_string())?;
        Ok(Identity { tls: Arc::new(tls), user, token: None })
    }

    /// The cipher that the server pushes, else the one in its options string, else the fallback.
    ///
    /// # Errors
    /// The cipher was not offered, or there is none.
    pub fn cipher_for(&self, pushed: Option<&str>, named: Option<&str>) -> Result<DataCipher, NoCipher> {
        let Some(name) = pushed.or(named) else { return self.fallback.ok_or(NoCipher::NoneNamed) };
        let offered = DataCipher::from_name(name).filter(|cipher| self.ciphers.contains(cipher));
        offered.ok_or_else(|| NoCipher::NotOffered(name.to_owned()))
    }
}

impl From<Compression> for Framing {
    /// The framing that the option selects.
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::Stub => Self::Stub,
            Compression::StubSwapped => Self::StubSwap,
            Compression::StubV2 => Self::StubV2,
            Compression::Lzo => Self::Lzo,
            Compression::Lz4 => Self::Lz4,
            Compression::Lz4V2 => Self::Lz4V2,
        }
    }
}

#[cfg(test)]
mod tests {
    use leadline_tls::TemporaryAuthority;

    use super::*;
    use crate::openvpn::profile;

    #[test]
    fn largest_payload_follows_the_profiles_mtu() {
        let ca = TemporaryAuthority::new().expect("a certificate").certificate_pem;
        let largest = |more: &str| {
            let text = format!("client\nremote vpn.example.net\n{more}<ca>\n{ca}</ca>\n");
            let profile = profile::parse(&text).expect("a profile");
            ClientConfig::new(&profile, 0).expect("the profile is supported").largest_payload
        };
        assert_eq!(
            ["", "tun-mtu 1400\n", "tun-mtu 9000\n", "tun-mtu 9000\ntun-mtu-max 20000\n"].map(largest),
            [LARGEST_PAYLOAD, LARGEST_PAYLOAD, 9000, 20_000]
        );
    }
}
