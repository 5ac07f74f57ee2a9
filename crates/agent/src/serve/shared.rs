//! The state that the listeners and the sessions of one server share: limits, key, the sessions by token, and their
//! resources.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use leadline_transport::iperf3::{Cookie, ErrorNumber, Iperf3Gate, Iperf3Server};
use leadline_transport::{AddressCheck, FromClient, SharedKey};
use leadline_wire::ErrorReport;

use super::admission::{share_limits, Limits};
use super::descriptors::DescriptorBudget;
use super::iperf3_tests::Iperf3Tests;
use super::occupancy::Occupancy;
use super::pending::{Opened, PendingConnection};
use crate::events::input_error;
use crate::keys;

/// The shared state of one server.
pub struct ServerShared {
    /// The limits of sessions.
    pub limits: Limits,
    /// The sessions, by token.
    pub sessions: Mutex<HashMap<u64, SessionEntry>>,
    /// The key that clients must know; none if absent.
    pub key: Option<SharedKey>,
    /// Checks that a client owns the address from which it sends.
    pub check: AddressCheck,
    /// The resources of the sessions, and of HTTP.
    pub occupancy: Arc<Occupancy>,
    /// The descriptors that each part may use.
    pub budget: DescriptorBudget,
    /// The tests of iperf3 clients.
    pub iperf3: Iperf3Tests,
    /// The users that it lets measure with iperf3; all clients if absent.
    pub gate: Option<Iperf3Gate>,
}

/// A session in the listeners' table.
#[derive(Debug)]
pub struct SessionEntry {
    /// The channel for its data flows.
    pub inbox: SyncSender<SessionInput>,
    /// The addresses from which its UDP flows may come: the control connection's, and those from which a TCP
    /// connection named its token.
    pub addresses: Vec<IpAddr>,
    /// The maximum number of these addresses.
    pub most_addresses: usize,
}

impl ServerShared {
    /// Returns the state without sessions.
    pub fn new(
        limits: Limits,
        budget: DescriptorBudget,
        key: Option<SharedKey>,
        gate: Option<Iperf3Gate>,
    ) -> Result<Self, ErrorReport> {
        let (sessions, iperf3) = Default::default();
        let idle_ns = limits.per_peer.idle_ms.saturating_mul(1_000_000);
        let occupancy = Arc::new(Occupancy::new(share_limits(&limits, &budget), idle_ns));
        let check =
            AddressCheck::new(&keys::fresh_nonce()?.0).map_err(|error| input_error("bad_key", error.to_string()))?;
        Ok(Self { limits, sessions, key, check, occupancy, budget, iperf3, gate })
    }

    /// Begins a test of an iperf3 client. With a key, and without users, none is possible: iperf3 cannot prove it.
    pub fn ask_iperf3(&self, connection: &mut PendingConnection, cookie: Cookie) -> io::Result<Opened> {
        if self.key.is_some() && self.gate.is_none() {
            let message = Iperf3Server::fail(ErrorNumber::Authentication, libc::EACCES);
            return Ok(Opened::Iperf3Refused(message, "this server requires a key".to_owned()));
        }
        connection.ask_parameters(cookie)?;
        Ok(Opened::Incomplete)
    }

    /// How long a connection may be silent before its introduction, ns.
    pub fn idle_ns(&self) -> u64 {
        self.limits.per_peer.idle_ms.saturating_mul(1_000_000)
    }
}

/// The input of a session, from its control connection and from the listeners.
pub enum SessionInput {
    /// The client's message, and when it was read.
    Message(FromClient, u64),
    /// A TCP flow with this number.
    Stream(u32, TcpStream),
    /// A UDP flow with this number.
    Datagram(u32, UdpSocket),
    /// A worker has ended.
    WorkerDone,
    /// The control connection has ended.
    Closed,
}
