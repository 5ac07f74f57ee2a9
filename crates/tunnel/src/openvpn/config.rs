//! What all clients of a fleet share, made once from a profile, and who each of them is.

use std::sync::Arc;

use super::data::{DataCipher, Framing, LARGEST_PAYLOAD};
use super::digest::Digest;
use super::message::compression::Compression;
use super::message::peer_info::Protocols;
use super::profile::{Profile, Transport};
use super::secret::Secret;
use super::tls::{self, ClientTrust, TlsLine, Trust};
use super::wrap::WrapKeys;

/// What a profile says, in the machine's terms.
pub struct ClientConfig {
    /// How control packets are wrapped.
    pub wrap: WrapKeys,
    /// Data ciphers that are offered, in the profile's order.
    pub ciphers: Vec<DataCipher>,
    /// The cipher towards a server that does not negotiate.
    pub fallback: Option<DataCipher>,
    /// The digest of CBC ciphers, if they have one.
    pub digest: Option<Digest>,
    /// What is before a payload, unless the server pushes something else.
    pub framing: Framing,
    /// The options string.
    pub occ: String,
    /// What the server is told of this client.
    pub peer_info: String,
    /// How far back a late data packet is taken.
    pub replay_window: u32,
    /// The tunnel's largest packet unless the server pushes a larger one, bytes: `tun-mtu`, `tun-mtu-max`.
    pub largest_payload: usize,
    /// How long a negotiation may take, ns.
    pub hand_window_ns: u64,
    /// When keys are replaced, ns after they came into use; never where absent.
    pub renegotiate_after_ns: Option<u64>,
    /// When keys are replaced by what they have carried.
    pub renegotiate_after: KeyLimits,
    /// Keepalives unless the server pushes them, s.
    pub ping_s: Option<u32>,
    /// How long a silent server is waited for unless it pushes that.
    pub silence: Option<Silence>,
    /// Whether packets come over a stream, which loses none.
    pub is_stream: bool,
    /// When a control packet is sent for the second time, ns.
    pub first_timeout_ns: u64,
    /// Whom clients trust, and what their TLS may agree on.
    pub trust: ClientTrust,
    /// Unix time at `now_ns` 0, s.
    pub unix_base_s: u64,
}

/// What one key may carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Payload bytes, both ways.
    pub bytes: Option<u64>,
    /// Packets, both ways.
    pub packets: Option<u64>,
}

/// What a client does about a server that is silent for so many seconds; 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It connects anew.
    Restart(u32),
    /// It gives up.
    Exit(u32),
}

/// Who a client is.
#[derive(Clone)]
pub struct Identity {
    /// Its certificate, and whom it trusts; see `tls::client_config`.
    pub tls: Arc<rustls::ClientConfig>,
    /// Its user and password.
    pub user: Option<(String, Secret)>,
    /// What takes their place.
    pub token: Option<Token>,
}

/// What a server gives to be shown instead of a user and a password (`auth-token`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Shown as the user.
    pub user: String,
    /// Shown as the password.
    pub secret: Secret,
}

/// Why there is no cipher for the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCipher {
    /// The server wants one that was not offered.
    NotOffered(String),
    /// The server names none, and nothing is said for such servers.
    NoneNamed,
}

impl Identity {
    /// The same client with what its server gave it the last time, if it did: see `Client::token`.
    #[must_use]
    pub fn with_token(&self, token: Option<Token>) -> Self {
        Self { token, ..self.clone() }
    }

    /// What it shows as user and password.
    #[must_use]
    pub fn credentials(&self) -> Option<(String, Secret)> {
        self.token.as_ref().map(|token| (token.user.clone(), token.secret.clone())).or_else(|| self.user.clone())
    }
}

/// After so many seconds OpenVPN's client gives a silent server up where neither its profile nor the server says anything.
const USUAL_SILENCE_S: u32 = 120;
/// Protocols, by what this client can do: all that there are.
const PROTOCOLS: Protocols = Protocols::ALL;

impl ClientConfig {
    /// What a profile asks for. `unix_base_s` is the Unix time at `now_ns` 0, s.
    ///
    /// # Errors
    /// One line on a key that cannot be used; `profile::parse` has refused everything else.
    pub fn new(profile: &Profile, unix_base_s: u64) -> Result<Self, String> {
        let transport = profile.remotes.first().map_or(Transport::Udp, |remote| remote.transport);
        let seconds = |s: u32| u64::from(s) * 1_000_000_000;
        // Over TCP a server that is gone is the stream's matter.
        let usual = (transport == Transport::Udp).then_some(Silence::Restart(USUAL_SILENCE_S));
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
            largest_payload: usize::from(profile.tun_mtu.unwrap_or(0).max(profile.most_mtu)).max(LARGEST_PAYLOAD),
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

    /// Who a client is: its certificate and key (PEM), its user and password.
    ///
    /// # Errors
    /// One line on what cannot be used.
    pub fn identity(
        &self,
        certificate: Option<(&str, &str)>,
        user: Option<(String, Secret)>,
    ) -> Result<Identity, String> {
        let tls = tls::client_config(&self.trust, certificate)?;
        // What it offers is tried here once, so that no attempt can fail for it.
        TlsLine::client(&Arc::new(tls.clone())).map_err(|failure| failure.to_string())?;
        Ok(Identity { tls: Arc::new(tls), user, token: None })
    }

    /// The cipher that the server pushes, else the one that its options string names, else the one that is left.
    ///
    /// # Errors
    /// That cipher was not offered, or there is none.
    pub fn cipher_for(&self, pushed: Option<&str>, named: Option<&str>) -> Result<DataCipher, NoCipher> {
        let Some(name) = pushed.or(named) else { return self.fallback.ok_or(NoCipher::NoneNamed) };
        let offered = DataCipher::from_name(name).filter(|cipher| self.ciphers.contains(cipher));
        offered.ok_or_else(|| NoCipher::NotOffered(name.to_owned()))
    }
}

impl From<Compression> for Framing {
    /// What the option makes of the data channel.
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
    use super::*;
    use crate::openvpn::pair::Pki;
    use crate::openvpn::profile;

    #[test]
    fn largest_payload_follows_the_profiles_mtu() {
        let ca = Pki::new().authority;
        let largest = |more: &str| {
            let text = format!("client\nremote vpn.example.net\n{more}<ca>\n{ca}</ca>\n");
            let profile = profile::parse(&text).expect("a profile");
            ClientConfig::new(&profile, 0).expect("it can be obeyed").largest_payload
        };
        assert_eq!(
            ["", "tun-mtu 1400\n", "tun-mtu 9000\n", "tun-mtu 9000\ntun-mtu-max 20000\n"].map(largest),
            [LARGEST_PAYLOAD, LARGEST_PAYLOAD, 9000, 20_000]
        );
    }
}
