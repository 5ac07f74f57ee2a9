//! What the listeners and the sessions of one server share: limits, key, the sessions by token, and what they take up.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use leadline_transport::{AddressCheck, FromClient, SharedKey};
use leadline_wire::ErrorReport;

use super::admission::{Limits, Occupancy};
use crate::events::input_error;
use crate::keys;

/// What all listeners of one server share.
#[derive(Debug)]
pub struct ServerShared {
    /// What clients may ask for.
    pub limits: Limits,
    /// The sessions, by token.
    pub sessions: Mutex<HashMap<u64, SessionEntry>>,
    /// What clients must know; nothing where absent.
    pub key: Option<SharedKey>,
    /// The check that a client is at the address that it sends from.
    pub check: AddressCheck,
    /// What the sessions take up.
    pub occupancy: Arc<Occupancy>,
}

/// A session as the listeners know it.
#[derive(Debug)]
pub struct SessionEntry {
    /// Where its data flows are handed in.
    pub inbox: SyncSender<SessionInput>,
    /// From where its UDP flows may come: the control connection's address, and those from which a TCP connection named its token.
    pub addresses: Vec<IpAddr>,
    /// How many of these there may be.
    pub most_addresses: usize,
}

impl ServerShared {
    /// Without sessions yet.
    pub fn new(limits: Limits, key: Option<SharedKey>) -> Result<Self, ErrorReport> {
        let (sessions, occupancy) = Default::default();
        let check =
            AddressCheck::new(&keys::fresh_nonce()?.0).map_err(|error| input_error("bad_key", error.to_string()))?;
        Ok(Self { limits, sessions, key, check, occupancy })
    }

    /// How long a connection may be silent before it has introduced itself, ns.
    pub fn idle_ns(&self) -> u64 {
        self.limits.per_peer.idle_ms.saturating_mul(1_000_000)
    }
}

/// What reaches a session, from its control connection and from the listeners.
pub enum SessionInput {
    /// The client's message, and when it was read.
    Message(FromClient, u64),
    /// A TCP flow of that number.
    Stream(u32, TcpStream),
    /// A UDP flow of that number.
    Datagram(u32, UdpSocket),
    /// A worker has ended.
    WorkerDone,
    /// The control connection has ended.
    Closed,
}
