//! Carries out the actions of a client's machine with the resources of its thread: the socket, the outgoing buffer,
//! the histograms, the fleet. Owns no state: each value borrows the worker's parts for one call.

use std::io;
use std::net::SocketAddr;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::reason::reason;
use leadline_tunnel::client::assigned_config::AssignedConfig;
use leadline_tunnel::client::effects::{
    ArrivalTime, Close, Counts, Effects, Figures, Flushed, Inbox, Metric, Scratch, Socket, SocketError,
};
use leadline_tunnel::client::phase::{Phase, PHASES};
use leadline_tunnel::client::server::Server;
use leadline_tunnel::framing::set_length;
use tracing::debug;

use super::fleet::{ArrivalInstants, Fleet};
use super::inner_traffic::{Breakage, InnerTraffic};
use super::report::SocketTally;
use super::traffic::Channel;
use super::transport::{Outbox, Sent, TransportSocket};
use crate::events::error_code;
use crate::failures::Failures;
use crate::metering::{FlowCounters, Recorder};

/// Source ports that one attempt tries before it reuses the port of another client of the fleet.
const PORTS_TRIED: usize = 16;

/// The destination of the figures of a thread's clients.
pub struct Account<'a> {
    pub recorder: &'a mut Recorder,
    pub counts: &'a mut Counts,
    pub times: ArrivalInstants,
}

/// The receiver of a batch of packets.
pub struct Receiving<'a> {
    pub account: Account<'a>,
    pub traffic: &'a mut InnerTraffic,
    pub counters: Option<&'a FlowCounters>,
    pub replies: &'a mut Vec<u8>,
    pub space: &'a mut Vec<u8>,
}

/// A client's socket, and what its thread uses to send.
pub struct ClientSocket<'a> {
    pub transport: &'a mut Option<TransportSocket>,
    pub outbox: &'a mut Outbox,
    pub tally: &'a mut SocketTally,
    pub poll: &'a Poll,
    pub fleet: &'a Fleet,
    /// The client's number in the fleet, and the poll token of its socket.
    pub client: u32,
    pub token: u64,
    /// Whether the kernel timestamps received packets.
    pub is_stamped: bool,
    /// Whether the poll already waits for room in the socket.
    pub is_blocked: bool,
    /// The error of a packet in the outgoing buffer, until `flush` reports it.
    pub error: Option<io::Error>,
}

/// The implementation of a machine's actions.
pub struct ClientEffects<'a> {
    pub account: Account<'a>,
    pub socket: ClientSocket<'a>,
    pub scratch: &'a mut Scratch,
    pub failures: &'a mut Failures,
    pub phases: &'a mut [u32; PHASES],
    pub traffic: &'a mut InnerTraffic,
    pub counters: Option<&'a FlowCounters>,
    pub pings_since_ns: Option<u64>,
}

impl Figures for Account<'_> {
    fn counts(&mut self) -> &mut Counts {
        self.counts
    }

    fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64) {
        self.recorder.record(metric as usize, due_ns, value_ns);
    }

    fn arrival_time(&self, at_ns: u64) -> ArrivalTime {
        self.times.of(at_ns)
    }
}

impl Figures for Receiving<'_> {
    fn counts(&mut self) -> &mut Counts {
        self.account.counts()
    }

    fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64) {
        self.account.record(metric, due_ns, value_ns);
    }

    fn arrival_time(&self, at_ns: u64) -> ArrivalTime {
        self.account.arrival_time(at_ns)
    }
}

impl Inbox for Receiving<'_> {
    #[inline]
    fn deliver(&mut self, arrived_ns: u64, packet: &[u8]) {
        if let Some(counters) = self.counters {
            // Responses to the packet are sent after the batch.
            let mut refuse = |_: &[u8]| false;
            let mut channel = Channel { send: &mut refuse, recorder: self.account.recorder, counters };
            self.traffic.receive(arrived_ns, packet, &mut channel);
        }
    }

    fn replies(&mut self) -> &mut Vec<u8> {
        self.replies
    }

    #[inline]
    fn space(&mut self) -> &mut Vec<u8> {
        self.space
    }
}

impl Figures for ClientEffects<'_> {
    fn counts(&mut self) -> &mut Counts {
        self.account.counts()
    }

    fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64) {
        self.account.record(metric, due_ns, value_ns);
    }

    fn arrival_time(&self, at_ns: u64) -> ArrivalTime {
        self.account.arrival_time(at_ns)
    }
}

impl Effects for ClientEffects<'_> {
    fn socket(&mut self) -> &mut impl Socket {
        &mut self.socket
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }

    fn entered(&mut self, from: Phase, to: Phase) {
        debug!(client = self.socket.client, ?from, ?to, "VPN client changes its phase");
        self.phases[from as usize] -= 1;
        self.phases[to as usize] += 1;
    }

    fn failed(&mut self, name: &'static str, detail: &str) {
        debug!(client = self.socket.client, cause = name, detail, "VPN client's attempt failed");
        self.failures.count(name, 1, || detail.to_owned());
    }

    fn arrival_ended(&mut self, at_ns: u64) {
        self.socket.fleet.arrival_ended(self.socket.client, at_ns);
    }

    fn claim(&mut self, assigned: &AssignedConfig, now_ns: u64) -> Option<&'static str> {
        self.socket.fleet.register.claim(self.socket.client, assigned, now_ns)
    }

    fn release(&mut self, assigned: &AssignedConfig, heard_ns: Option<u64>) {
        self.socket.fleet.register.release(self.socket.client, assigned, heard_ns);
    }

    fn break_traffic(&mut self, name: &'static str, detail: &'static str) {
        self.traffic.break_off(Breakage { name, detail });
    }

    fn packets_refused(&mut self, packets: u64) {
        self.socket.tally.not_sent += packets;
        self.traffic.not_sent(packets, self.counters);
    }

    fn pings_since_ns(&self) -> Option<u64> {
        self.pings_since_ns
    }
}

impl Socket for ClientSocket<'_> {
    fn connect(&mut self, server: Server) -> Result<(), SocketError> {
        match self.transport {
            Some(_) => Ok(()),
            None => self.open(server).map_err(socket_error),
        }
    }

    fn close(&mut self, manner: Close) {
        let Some(transport) = self.transport.take() else { return };
        self.tally.count_drops(&transport);
        self.is_blocked = false;
        if manner == Close::Silent {
            transport.drop_silently();
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        self.transport.as_ref().and_then(TransportSocket::local)
    }

    fn send_control(&mut self, packet: &mut Vec<u8>) -> Result<u64, SocketError> {
        let Some(transport) = self.transport.as_mut() else { return Ok(monotonic_ns()) };
        if transport.is_stream() {
            packet.splice(..0, [0, 0]);
            set_length(packet, 0);
        }
        let sent = transport.send(packet, packet.len()).map_err(socket_error)?;
        if sent != Sent::Taken {
            self.tally.pushback += 1;
        }
        if sent == Sent::Waits && !self.is_blocked {
            transport.watch_for(self.poll, self.token, Interest::ReadWrite).map_err(socket_error)?;
            self.is_blocked = true;
        }
        Ok(monotonic_ns())
    }

    #[inline]
    fn send_data<E>(&mut self, seal: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> bool {
        let Some(transport) = self.transport.as_mut() else { return false };
        self.outbox.push(transport, seal).unwrap_or_else(|error| {
            self.error = Some(error);
            false
        })
    }

    fn flush(&mut self) -> Flushed {
        let Some(transport) = self.transport.as_mut() else { return Flushed::default() };
        let flushed = self.outbox.flush(transport);
        let refused = self.outbox.take_refused();
        if transport.is_blocked() && !self.is_blocked {
            self.tally.pushback += 1;
            self.is_blocked = true;
            // The socket is open and watched; the change cannot fail.
            let _ = transport.watch_for(self.poll, self.token, Interest::ReadWrite);
        }
        Flushed { refused, error: self.error.take().or(flushed.err()).map(socket_error) }
    }
}

impl ClientSocket<'_> {
    /// Opens the socket to a server, from the client's address and a port that no other client has used.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn open(&mut self, server: Server) -> io::Result<()> {
        let from = self.fleet.plan.bind(self.client);
        let mut transport = TransportSocket::open(server, from, self.is_stamped)?;
        // The sockets stay open until a new port is found, so that the system does not offer the same ports again.
        let mut rejected = Vec::new();
        while !transport.is_stream() && transport.local().is_some_and(|source| !self.fleet.is_new_source(source)) {
            if rejected.len() == PORTS_TRIED {
                self.tally.ports_again += 1;
                break;
            }
            rejected.push(std::mem::replace(&mut transport, TransportSocket::open(server, from, self.is_stamped)?));
        }
        let interest = if transport.is_stream() { Interest::Write } else { Interest::Read };
        transport.watch(self.poll, self.token, interest)?;
        *self.transport = Some(transport);
        Ok(())
    }
}

/// Returns a socket's error with the name under which it is counted, and the text that users read.
pub fn socket_error(error: io::Error) -> SocketError {
    SocketError::new(error_code(&error), io::Error::new(error.kind(), reason(&error)))
}
