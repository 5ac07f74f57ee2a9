//! The claims on the UDP flows of an iperf3 test. A hello is four bytes without any proof, so that a forged one in the
//! name of the client's address takes a flow if it comes first. A flow that receives goes to the port that has claimed it
//! last until it has data. What cannot be given to another port is named when the test ends.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use tracing::warn;

use super::iperf3_tests::ClaimWatch;
use crate::flows::iperf3::{FlowSocket, TestFlow};
use crate::flows::Role;
use crate::metering::FlowCounters;

/// The claims on the flows of one test.
pub struct Claims<'a> {
    /// Present while a flow may be claimed.
    _watch: Option<ClaimWatch<'a>>,
    /// The only flow, until it has data.
    receiving: Option<Receiving>,
    /// Claims beyond the test's flows.
    further: u64,
}

struct Receiving {
    socket: UdpSocket,
    counters: Arc<FlowCounters>,
}

/// Whether a flow can be given to another port: the only one of a test, that receives. A flow that sends has no data that
/// would show which port is the client's, and with several flows it is not known which of them was claimed.
pub fn may_move(roles: &[Role]) -> bool {
    roles == [Role::Receive]
}

/// Returns another handle of the socket of a flow that can be given to another port.
pub fn movable_socket(sockets: &[FlowSocket], roles: &[Role]) -> Option<UdpSocket> {
    match sockets {
        [FlowSocket::Datagram(socket)] if may_move(roles) => socket.try_clone().ok(),
        _ => None,
    }
}

impl<'a> Claims<'a> {
    /// Returns the claims on these flows; `socket` is that of the only one if it may move.
    pub fn new(watch: Option<ClaimWatch<'a>>, socket: Option<UdpSocket>, flows: &[TestFlow]) -> Self {
        let receiving = socket.zip(flows.first());
        let receiving = receiving.map(|(socket, flow)| Receiving { socket, counters: Arc::clone(&flow.counters) });
        Self { _watch: watch, receiving, further: 0 }
    }

    /// Takes a further claim.
    pub fn handle(&mut self, port: SocketAddr) {
        self.further += 1;
        if let Some(Receiving { socket, .. }) = self.receiving.take_if(|flow| flow.counters.received_units() > 0) {
            // It has data: its port is the client's.
            drop(socket);
        }
        let is_moved = self.receiving.as_ref().is_some_and(|flow| flow.socket.connect(port).is_ok());
        if self.further == 1 {
            warn!(%port, is_moved, "another port says hello to an iperf3 test with all of its UDP flows: one hello was forged");
        }
    }

    /// Returns what to say at the end of a test about a flow that has received nothing, if it may have been claimed by a
    /// forged hello.
    pub fn describe_lost_flow(&self, flows: &[TestFlow]) -> Option<String> {
        let further = self.further;
        let mut receiving = flows.iter().enumerate().filter(|(_, flow)| flow.role == Role::Receive);
        let (lost, _) = receiving.find(|(_, flow)| further > 0 && flow.counters.received_units() == 0)?;
        Some(format!("flow {lost} has received nothing, and {further} further ports of the client's address said hello: a forged hello may have taken it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic_option::AtomicOption;

    fn flow(role: Role) -> TestFlow {
        TestFlow { role, counters: Arc::default(), expected: Arc::new(AtomicOption::none()) }
    }

    #[test]
    fn flow_goes_to_the_last_claim_until_it_has_data() {
        let [ours, forger, client] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        ours.connect(forger.local_addr().unwrap()).unwrap();
        let (port, other) = (client.local_addr().unwrap(), forger.local_addr().unwrap());
        let flows = [flow(Role::Receive)];
        let mut claims = Claims::new(None, Some(ours.try_clone().unwrap()), &flows);
        claims.handle(port);
        assert_eq!(ours.peer_addr().unwrap(), port);
        claims.handle(other);
        claims.handle(port);
        flows[0].counters.received(100, 1);
        claims.handle(other);
        assert_eq!(ours.peer_addr().unwrap(), port, "its data has come");
        assert_eq!(claims.describe_lost_flow(&flows), None);
    }

    #[test]
    fn flow_without_any_data_after_further_claims_is_named() {
        let flows = [flow(Role::Receive), flow(Role::Receive)];
        let mut claims = Claims::new(None, None, &flows);
        assert_eq!(claims.describe_lost_flow(&flows), None, "all may be lost on the way");
        claims.handle("192.0.2.1:7".parse().unwrap());
        flows[0].counters.received(100, 1);
        let message = claims.describe_lost_flow(&flows).unwrap();
        assert!(message.contains("flow 1 has received nothing") && message.contains("forged"), "{message}");
        assert_eq!(claims.describe_lost_flow(&[flow(Role::Send)]), None);
    }
}
