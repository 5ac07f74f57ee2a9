//! Tests of a client's data path: sealing packets into the driver's buffer and opening them allocates nothing.

use std::net::SocketAddr;

use super::simulation::{Simulation, TestSettings, MS, SECOND};
use leadline_tunnel::client::effects::{
    ArrivalTime, Close, Counts, Figures, Flushed, Inbox, Metric, Socket, SocketError,
};
use leadline_tunnel::client::server::Server;

const PACKETS: usize = 100;

/// A driver whose buffers are large enough from the beginning.
#[derive(Default)]
struct Driver {
    outgoing: Vec<u8>,
    counts: Counts,
    replies: Vec<u8>,
    space: Vec<u8>,
    delivered: usize,
}

impl Figures for Driver {
    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    fn record(&mut self, _metric: Metric, _due_ns: u64, _value_ns: u64) {}

    fn arrival_time(&self, _at_ns: u64) -> ArrivalTime {
        ArrivalTime::During
    }
}

impl Inbox for Driver {
    fn deliver(&mut self, _arrived_ns: u64, _packet: &[u8]) {
        self.delivered += 1;
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        &mut self.replies
    }

    fn space(&mut self) -> &mut Vec<u8> {
        &mut self.space
    }
}

impl Socket for Driver {
    fn connect(&mut self, _server: Server) -> Result<(), SocketError> {
        Ok(())
    }

    fn close(&mut self, _manner: Close) {}

    fn local(&self) -> Option<SocketAddr> {
        None
    }

    fn send_control(&mut self, _packet: &mut Vec<u8>) -> Result<u64, SocketError> {
        Ok(0)
    }

    fn send_data<E>(&mut self, seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> bool {
        seal(&mut self.outgoing).is_ok()
    }

    fn flush(&mut self) -> Flushed {
        Flushed::default()
    }
}

#[test]
fn sealing_and_opening_packets_allocates_nothing() {
    let mut simulation = Simulation::arrived(1, TestSettings::default());
    simulation.run(SECOND);
    let datagram = [&[0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17][..], &[0; 90]].concat();
    let mut packets: Vec<Vec<u8>> = vec![Vec::new(); PACKETS];
    simulation.server.with(0, |peer| packets.iter_mut().for_each(|packet| peer.send(&datagram, packet).unwrap()));
    let client = &mut simulation.clients[0].client;
    let mut driver = Driver { outgoing: Vec::with_capacity(PACKETS * 200), ..Driver::default() };
    let spent = allocation_counter::measure(|| {
        for packet in &mut packets {
            client.receive(SECOND + MS, SECOND + MS, packet, &mut driver);
            assert!(client.send(SECOND + MS, &datagram, &mut driver));
        }
    });
    assert_eq!((spent.count_total, driver.delivered, driver.counts), (0, PACKETS, Counts::default()));
}
