//! A child SA of a client, and the terms that both ends agree on for one.

use crate::esp::{Inbound, Outbound};
use crate::ikev2::keys::ChildKeys;
use crate::ikev2::proposal::EspSuite;
use crate::ikev2::traffic_selector::TrafficSelector;

/// A child SA.
pub(super) struct Child {
    /// The name of its encryption.
    pub cipher: &'static str,
    pub inbound: Inbound,
    pub outbound: Outbound,
    pub local_ts: Box<[TrafficSelector]>,
    pub remote_ts: Box<[TrafficSelector]>,
    /// When it is rekeyed, ns.
    pub rekey_ns: Option<u64>,
    /// It has been replaced and deleted, and receives until this time, ns.
    pub end_ns: Option<u64>,
    /// This end has asked for its deletion.
    pub is_deleting: bool,
    /// The peer created it to replace another one, and has not sent by it yet.
    pub awaits_traffic: bool,
}

/// What both ends agreed on for a child SA.
pub(super) struct ChildTerms {
    pub suite: EspSuite,
    /// The SPI that this end receives by, and the peer's.
    pub spis: (u32, u32),
    pub keys: ChildKeys,
    /// Whether this end began the exchange.
    pub is_initiator: bool,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
}
