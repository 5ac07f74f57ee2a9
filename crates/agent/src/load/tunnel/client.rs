//! One client of a thread: its machine, its socket, its traffic and its timer. Owns when the worker has to wake it; what happens to it
//! is the machine's (`leadline_tunnel::client`).

use std::sync::Arc;

use leadline_tunnel::client::settings::Settings;
use leadline_tunnel::client::timer::earlier;
use leadline_tunnel::client::VpnClient;

use super::inner_traffic::InnerTraffic;
use super::transport::TransportSocket;

/// See the file's head.
pub struct Client {
    pub machine: VpnClient,
    /// The open socket. UDP sockets of first attempts are opened before the fleet begins.
    pub transport: Option<TransportSocket>,
    pub traffic: InnerTraffic,
    /// The timer in the worker's heap that counts, ns; older and later entries of this client do not. `None`: no entry counts. It is
    /// never later than `deadline_ns` once the worker has armed it.
    pub armed_ns: Option<u64>,
}

impl Client {
    /// A client whose arrival is not due yet, and which server it begins with.
    pub fn new(number: u32, settings: &Arc<Settings>, server_turn: u32) -> Self {
        Self {
            machine: VpnClient::new(number, Arc::clone(settings), server_turn),
            transport: None,
            traffic: InnerTraffic::default(),
            armed_ns: None,
        }
    }

    /// When something is to be done for it, ns; `None` while it only waits for packets.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        let traffic_ns = if self.is_blocked() { None } else { self.traffic.deadline_ns() };
        earlier(self.machine.deadline_ns(), traffic_ns)
    }

    /// Whether something waits for its socket to have room.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.transport.as_ref().is_some_and(TransportSocket::is_blocked)
    }

    /// Whether its exit notification is still to be sent or to be acknowledged.
    pub fn is_leaving(&self) -> bool {
        self.machine.is_session_waiting() || (self.machine.phase().is_up() && self.is_blocked())
    }
}
