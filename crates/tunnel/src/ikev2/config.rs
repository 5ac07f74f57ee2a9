//! Settings of clients. What a fleet shares is a [`ClientConfig`]; what each client has of its own is an [`Identity`].

use std::net::SocketAddr;
use std::sync::Arc;

use super::identification::Id;
use super::proposal::Offer;
use super::secret_bytes::SecretBytes;
use super::signature::{PeerVerifier, Signer};
use super::traffic_selector::TrafficSelector;
use crate::secret::Secret;

const SECOND_NS: u64 = 1_000_000_000;

/// Settings that all clients of a fleet share.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Offers for the IKE SA, in the order of preference; at least one.
    pub ike: Vec<Offer>,
    /// Offers for the child SA, in the order of preference; at least one.
    pub esp: Vec<Offer>,
    /// The identity that the gateway is asked for, and has to prove; `None` accepts any.
    pub remote_id: Option<Id>,
    /// How the gateway has to prove its identity.
    pub remote_auth: RemoteAuth,
    /// Packets of the client's side. Empty: every packet of the requested versions, or of the client's own address.
    pub local_ts: Vec<TrafficSelector>,
    /// Packets of the gateway's side; at least one.
    pub remote_ts: Vec<TrafficSelector>,
    /// Whether an IPv4 address inside the tunnel is requested.
    pub requests_ipv4: bool,
    /// Whether an IPv6 address inside the tunnel is requested.
    pub requests_ipv6: bool,
    /// Whether the gateway is made to believe in a NAT, so that ESP travels in UDP.
    pub forces_encapsulation: bool,
    /// Whether the first message goes to port 4500 already (RFC 7296, section 2.23).
    pub starts_on_4500: bool,
    /// Whether MOBIKE is announced.
    pub has_mobike: bool,
    /// Whether the client says that it has no other SA with the gateway.
    pub has_initial_contact: bool,
    /// The largest IP packet of an encrypted message; longer ones are sent in fragments if the gateway supports them.
    pub fragment_bytes: Option<usize>,
    /// Number of ESP packets that may arrive late; 0 switches the check off.
    pub replay_window: u32,
    /// Retransmission of requests.
    pub retransmission: Retransmission,
    /// Silence after which the gateway is asked whether it is alive, ns; `None` never asks.
    pub dpd_ns: Option<u64>,
    /// Interval of keepalives through a NAT while nothing else is sent, ns; `None` sends none.
    pub keepalive_ns: Option<u64>,
    /// When the IKE SA is rekeyed.
    pub ike_lifetime: Lifetime,
    /// When the child SA is rekeyed.
    pub child_lifetime: Lifetime,
    /// How long a replaced child SA still receives, ns.
    pub linger_ns: u64,
    /// The wall clock at time 0, s: certificates have dates.
    pub unix_base_s: u64,
}

impl ClientConfig {
    /// Settings with strongSwan's defaults for these offers and a gateway that proves `remote_auth`; a client requests
    /// an IPv4 address and reaches every IPv4 address through the tunnel.
    #[must_use]
    pub fn new(ike: Offer, esp: Offer, remote_auth: RemoteAuth) -> Self {
        Self {
            ike: vec![ike],
            esp: vec![esp],
            remote_id: None,
            remote_auth,
            local_ts: Vec::new(),
            remote_ts: vec![TrafficSelector::any_ipv4()],
            requests_ipv4: true,
            requests_ipv6: false,
            forces_encapsulation: false,
            starts_on_4500: false,
            has_mobike: false,
            has_initial_contact: true,
            fragment_bytes: Some(1280),
            replay_window: 32,
            retransmission: Retransmission::default(),
            dpd_ns: None,
            keepalive_ns: Some(20 * SECOND_NS),
            ike_lifetime: Lifetime { rekey_ns: Some(4 * 3600 * SECOND_NS), spread_ns: 24 * 60 * SECOND_NS },
            child_lifetime: Lifetime { rekey_ns: Some(3600 * SECOND_NS), spread_ns: 6 * 60 * SECOND_NS },
            linger_ns: 5 * SECOND_NS,
            unix_base_s: 0,
        }
    }
}

/// When a request is sent again: strongSwan's defaults are 4 s, then 1.8 times as long each time, five times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retransmission {
    /// The first wait, ns.
    pub first_ns: u64,
    /// The factor of each further wait.
    pub factor: f64,
    /// Number of repetitions; the last wait ends the attempt.
    pub tries: u32,
}

impl Default for Retransmission {
    fn default() -> Self {
        Self { first_ns: 4 * SECOND_NS, factor: 1.8, tries: 5 }
    }
}

impl Retransmission {
    /// The wait after a message has been sent again `repeats` times, ns.
    #[must_use]
    pub fn wait_ns(&self, repeats: u32) -> u64 {
        (self.first_ns as f64 * self.factor.powi(repeats as i32)) as u64
    }
}

/// When an SA is rekeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Age at which it is rekeyed at the latest, ns; `None` never rekeys.
    pub rekey_ns: Option<u64>,
    /// A random time up to this one is subtracted, so that a fleet does not rekey at once, ns.
    pub spread_ns: u64,
}

/// How the gateway has to prove its identity.
#[derive(Clone, Debug)]
pub enum RemoteAuth {
    /// By the pre-shared key of the client's identity.
    SharedKey,
    /// By a certificate and a signature.
    Certificate(Arc<PeerVerifier>),
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name that the gateway knows it by.
    pub id: Id,
    /// How it proves its identity.
    pub auth: LocalAuth,
    /// The pre-shared key with the gateway, if either end uses one.
    pub shared_key: Option<SecretBytes>,
}

/// How a client proves its identity.
#[derive(Clone, Debug)]
pub enum LocalAuth {
    /// By the pre-shared key.
    SharedKey,
    /// By a certificate and a signature.
    Certificate(Arc<Signer>),
    /// By EAP-MSCHAPv2.
    Eap {
        /// The user's name.
        user: String,
        /// The user's password.
        password: Secret,
    },
}

/// Where both ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The client's address, and the port of its IKE socket.
    pub local: SocketAddr,
    /// The gateway's address, and its IKE port.
    pub peer: SocketAddr,
}
