//! Why a VPN client failed, is `partial`, or carries no load. Owns the names under which the agent counts such
//! failures, and their explanations.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Defines the causes with their names.
macro_rules! causes {
    ($($(#[$meta:meta])* $cause:ident = $name:literal,)*) => {
        /// The reason why a client's attempt failed, its tunnel is `partial` or was lost, or its load could not
        /// begin.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum FailureCause {
            $($(#[$meta])* $cause,)*
            /// A failure that another layer names: TLS (`tls_*`), or the operating system.
            Other(Cow<'static, str>),
        }

        impl FailureCause {
            /// Returns its name in counts and reports.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$cause => $name,)*
                    Self::Other(name) => name,
                }
            }

            fn known(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$cause),)*
                    _ => None,
                }
            }

            #[cfg(test)]
            const KNOWN: &'static [&'static str] = &[$($name),*];
        }
    };
}

causes! {
    /// No answer to any reset.
    ResetUnanswered = "reset_unanswered",
    /// The reset was answered, and nothing arrived after it.
    SilenceAfterReset = "silence_after_reset",
    /// The TLS handshake began and did not end.
    TlsUnfinished = "tls_unfinished",
    /// The TLS handshake ended, and the server's half of the keys did not arrive.
    NoKeys = "no_keys",
    /// The server sent no options.
    NoPushReply = "no_push_reply",
    /// No answer to TCP's SYN.
    ConnectTimeout = "connect_timeout",
    /// The server closed the connection before it answered the reset.
    ClosedUnanswered = "closed_unanswered",
    /// The server closed the connection.
    ClosedByServer = "closed_by_server",
    /// The server's stream holds no packets of the protocol.
    MalformedStream = "malformed_stream",
    /// A control message of the server cannot be read.
    MalformedMessage = "malformed_message",
    /// The server's options cannot be read.
    MalformedPush = "malformed_push",
    /// The user, the password and the peer info are too long for a key exchange.
    CredentialsTooLong = "credentials_too_long",
    /// The server refused the user, the password or the certificate.
    AuthFailed = "auth_failed",
    /// The server refused for now.
    AuthFailedTemporary = "auth_failed_temporary",
    /// The server refused the token that it had issued.
    AuthTokenRefused = "auth_token_refused",
    /// The server chose a cipher that the client did not offer.
    CipherNotOffered = "cipher_not_offered",
    /// Neither side names a data cipher.
    NoCipher = "no_cipher",
    /// The keys of the data channel could not be derived.
    DataKeys = "data_keys",
    /// The server ordered the client to stop.
    HaltedByServer = "halted_by_server",
    /// The server ordered the client to connect again.
    RestartedByServer = "restarted_by_server",
    /// The server ended the tunnel.
    ServerLeft = "server_left",
    /// The server was silent for the time of `ping-exit`.
    PingExit = "ping_exit",
    /// The server was silent for the time of `ping-restart`.
    PingRestart = "ping_restart",
    /// New keys were not ready in time.
    RenegotiationTimeout = "renegotiation_timeout",
    /// A change of pushed options could not be applied.
    PushUpdateRejected = "push_update_rejected",
    /// No answer to any initiation of a WireGuard handshake.
    HandshakeUnanswered = "handshake_unanswered",
    /// The gateway answered WireGuard's initiations with cookies only.
    OnlyCookies = "only_cookies",
    /// The gateway's answer to a WireGuard initiation is not authentic.
    ResponseRejected = "response_rejected",
    /// The gateway answered no initiation of new WireGuard keys.
    RekeyUnanswered = "rekey_unanswered",
    /// No answer to any first message of IKE.
    SaInitUnanswered = "sa_init_unanswered",
    /// No answer to any message of IKE's authentication.
    AuthUnanswered = "auth_unanswered",
    /// The gateway accepts none of the proposals, for IKE or for its child SA.
    NoProposalChosen = "no_proposal_chosen",
    /// The gateway refused the client's proof or identity.
    AuthenticationRefused = "authentication_refused",
    /// The gateway's proof is wrong.
    PeerProofWrong = "peer_proof_wrong",
    /// The gateway assigned no address.
    PoolUsedUp = "no_pool_address",
    /// The gateway accepts none of the traffic selectors.
    TrafficSelectorsRefused = "traffic_selectors_refused",
    /// The fleet's time was over.
    Unfinished = "unfinished",
    /// The agent's thread of the client panicked.
    ThreadBrokeDown = "thread_broke_down",
    /// The host has no descriptor for another socket.
    TooManyOpenFiles = "too_many_open_files",
    /// The server pushed no address.
    PartialNoAddress = "partial_no_address",
    /// The address is in none of the expected networks.
    PartialAddressOutsidePool = "partial_address_outside_pool",
    /// Another client has the address.
    PartialAddressNotUnique = "partial_address_not_unique",
    /// Another client has the number.
    PartialPeerIdNotUnique = "partial_peer_id_not_unique",
    /// An expected route is missing.
    PartialRouteMissing = "partial_route_missing",
    /// An expected DNS server is missing.
    PartialDnsMissing = "partial_dns_missing",
    /// An expected option is missing.
    PartialOptionMissing = "partial_option_missing",
    /// A pushed option cannot be read.
    PartialOptionMalformed = "partial_option_malformed",
    /// The data cipher is not one that the client offered.
    PartialCipherNotOffered = "partial_cipher_not_offered",
    /// No packet came back through the tunnel.
    PartialNoData = "partial_no_data",
    /// The packets of the load are longer than the tunnel's MTU.
    PacketTooBig = "packet_too_big",
    /// The packets of the load have no room for a number and a time.
    PacketTooSmall = "packet_too_small",
    /// The tunnel's MTU leaves no room for TCP.
    MtuTooSmall = "mtu_too_small",
    /// There is no address to send echo requests to.
    NoEchoTarget = "no_echo_target",
    /// The client has no address of the load's family.
    NoAddress = "no_address",
}

impl FailureCause {
    /// Whether the client does not try again. Like OpenVPN, a client stays away that is refused (`auth-retry none`),
    /// ordered to stop, or ended by its server's silence (`ping-exit`). So does one for which the host has no
    /// descriptor, because the other clients of the fleet hold all of them.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::AuthFailed | Self::HaltedByServer | Self::PingExit | Self::TooManyOpenFiles)
    }

    /// Returns possible reasons for the cause, if its name does not say everything.
    #[must_use]
    pub fn explanation(&self) -> Option<&'static str> {
        Some(match self {
            Self::ResetUnanswered => {
                "no answer to any reset: no server runs there, the key of the control channel is wrong, or too many \
                 clients arrived (connect-freq-initial)"
            }
            Self::SilenceAfterReset => {
                "the reset was answered, and nothing after it: the server has its maximum of clients (max-clients), too \
                 many clients arrived (connect-freq), or both sides could not agree on TLS (see the server's log)"
            }
            Self::TlsUnfinished => {
                "the TLS handshake began and did not end: the server is too slow, or packets are lost"
            }
            Self::HandshakeUnanswered => {
                "no answer to any initiation: no gateway runs there, its public key or the client's is not the one that \
                 the other end has, or it is too slow"
            }
            Self::OnlyCookies => {
                "the gateway is under load: it asked the client for a cookie, and did not answer the initiation that had it"
            }
            Self::ResponseRejected => {
                "the gateway's answer is not authentic: the preshared keys of both ends differ"
            }
            Self::SaInitUnanswered => {
                "no answer to any first message: no gateway runs there, or it has as many half-open connections of the \
                 client's address as it allows (--source spreads the clients)"
            }
            Self::AuthUnanswered => "the gateway answered the first message, and not the client's authentication",
            Self::NoProposalChosen => "the gateway accepts none of the proposals (proposals, esp_proposals)",
            Self::AuthenticationRefused => {
                "the gateway refused the client: the pre-shared keys differ, or it does not know the identity"
            }
            Self::PeerProofWrong => "the gateway's proof is wrong: the pre-shared keys differ",
            Self::PoolUsedUp => "the gateway has no address for the client: its pool is used up, or it has none",
            Self::TrafficSelectorsRefused => "the gateway accepts none of the networks (remote_ts, local_ts)",
            Self::RekeyUnanswered => "the gateway was silent, and answered no initiation of new keys",
            Self::NoKeys => "the TLS handshake ended, and the server's half of the keys did not arrive",
            Self::NoPushReply => {
                "the server sent no options: it is too slow, or the client's authentication is still pending"
            }
            Self::PartialNoAddress => {
                "the server accepted the client without an address: its pool (ifconfig-pool) is exhausted, or assigns none"
            }
            Self::PacketTooBig => "the packets are longer than the tunnel's MTU",
            Self::MtuTooSmall => "the tunnel's MTU leaves no room for TCP",
            Self::PacketTooSmall => {
                "the packets have no room for a number and a time, which take 64 bytes over IPv6"
            }
            Self::NoEchoTarget => "the server did not push its address in the tunnel; name a target that answers",
            Self::NoAddress => "the server assigned the client no address of that family",
            _ => return None,
        })
    }
}

impl From<&'static str> for FailureCause {
    fn from(name: &'static str) -> Self {
        Self::known(name).unwrap_or(Self::Other(Cow::Borrowed(name)))
    }
}

impl From<String> for FailureCause {
    fn from(name: String) -> Self {
        Self::known(&name).unwrap_or(Self::Other(Cow::Owned(name)))
    }
}

impl Serialize for FailureCause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FailureCause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?.into())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for FailureCause {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FailureCause".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, to_string};

    use super::*;

    #[test]
    fn each_cause_is_written_and_read_by_its_own_name() {
        for name in FailureCause::KNOWN.iter().copied().chain(["tls_alert_unknown_ca"]) {
            let cause = FailureCause::from(name);
            assert_eq!(matches!(cause, FailureCause::Other(_)), name.starts_with("tls_alert"), "{name}");
            assert_eq!(to_string(&cause).unwrap(), format!("{name:?}"));
            assert_eq!(from_str::<FailureCause>(&format!("{name:?}")).unwrap(), cause);
        }
    }

    #[test]
    fn refused_client_is_final_and_silent_server_is_explained() {
        assert!(FailureCause::AuthFailed.is_final() && !FailureCause::AuthFailedTemporary.is_final());
        assert!(FailureCause::ResetUnanswered.explanation().unwrap().contains("connect-freq-initial"));
        assert_eq!(FailureCause::from("connection_refused").explanation(), None);
    }
}
