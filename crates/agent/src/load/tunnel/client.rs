//! One client of a thread: its machine, its socket, its traffic and its timer. Owns when the worker has to call it;
//! the machine (`leadline_tunnel::client`) handles its events.

use std::sync::Arc;

use leadline_tunnel::client::settings::Settings;
use leadline_tunnel::client::VpnClient;
use leadline_tunnel::timer::earlier;

use super::inner_traffic::InnerTraffic;
use super::transport::TransportSocket;

/// One client of a thread.
pub struct Client {
    pub machine: VpnClient,
    /// The open socket. UDP sockets of first attempts are opened before the fleet begins.
    pub transport: Option<TransportSocket>,
    pub traffic: InnerTraffic,
    /// The valid timer in the worker's heap, ns; all other entries of this client are ignored. `None`: no entry is
    /// valid. It is never later than `deadline_ns` after the worker has armed it.
    pub armed_ns: Option<u64>,
}

impl Client {
    /// Returns a client whose arrival is not due yet; `server_turn` selects its first server.
    pub fn new(number: u32, settings: &Arc<Settings>, server_turn: u32) -> Self {
        Self {
            machine: VpnClient::new(number, Arc::clone(settings), server_turn),
            transport: None,
            traffic: InnerTraffic::default(),
            armed_ns: None,
        }
    }

    /// When the client has work to do, ns; `None` while it only waits for packets.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        let traffic_ns = if self.is_blocked() { None } else { self.traffic.deadline_ns() };
        earlier(self.machine.deadline_ns(), traffic_ns)
    }

    /// Whether a packet waits for room in the socket.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.transport.as_ref().is_some_and(TransportSocket::is_blocked)
    }

    /// Whether its exit notification has yet to be sent or acknowledged.
    pub fn is_leaving(&self) -> bool {
        self.machine.is_session_waiting() || (self.machine.phase().is_up() && self.is_blocked())
    }
}
