//! What the fleet's threads and a kind of traffic ask of each other: the plan that all clients share, one client's traffic, what
//! it may use while it acts, and what comes of it. Owns no traffic.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use leadline_tunnel::inside::tcp::LEAST_MTU;
use leadline_wire::{FlowProgress, FlowReport, LoadReport, TrafficCounts};

use crate::load::tunnel::metric::Metric;
use crate::metering::{FlowCounters, Recorder};

/// What a client is given by its server, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientContext {
    /// Its number.
    pub client: u32,
    /// Clients of the whole fleet: their paced sends are to be spread over one gap.
    pub clients: u32,
    /// Its IPv4 address inside of the tunnel.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address inside of the tunnel.
    pub ipv6: Option<Ipv6Addr>,
    /// The server's end of the tunnel.
    pub server_ipv4: Option<Ipv4Addr>,
    /// The server's end of the tunnel.
    pub server_ipv6: Option<Ipv6Addr>,
    /// The longest IP packet that the tunnel takes, bytes.
    pub mtu: u16,
}

impl ClientContext {
    /// Whether its tunnel has room for TCP.
    ///
    /// # Errors
    /// By name, where it has not.
    pub fn carries_tcp(&self) -> Result<(), &'static str> {
        if self.mtu < LEAST_MTU {
            return Err("mtu_too_small");
        }
        Ok(())
    }
}

/// What a client's traffic may use while it acts.
pub struct Channel<'a> {
    /// Seals an IP packet and sends it; says whether the tunnel and its socket took it. Packets of one length that are sent
    /// in one `poll` leave together.
    pub send: &'a mut dyn FnMut(&[u8]) -> bool,
    /// The thread's histograms.
    pub recorder: &'a mut Recorder,
    /// The client's own counters.
    pub counters: &'a FlowCounters,
}

impl Channel<'_> {
    /// Counts one duration of something that was due at `due_ns`.
    pub fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64) {
        self.recorder.record(metric as usize, due_ns, value_ns);
    }
}

/// What all clients' traffic has in common.
pub trait TrafficPlan: Send + Sync {
    /// A client's part of it.
    ///
    /// # Errors
    /// By name, where the client has not been given what it needs, such as an address of the family.
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str>;

    /// How long the traffic lasts from its start, ns, without what is waited for after the last send.
    fn duration_ns(&self) -> u64;

    /// Whether it counts units (packets, requests) besides bytes.
    fn counts_units(&self) -> bool {
        true
    }

    /// Whether its figures are of single packets, so that each wants the kernel's stamp and may wait for others once it has one;
    /// what answers a packet by another may not be kept waiting.
    fn times_packets(&self) -> bool {
        false
    }

    /// What the far end has told since the last call, for the fleet's task to pass on; asked for each interval and at the end.
    fn take_peer_progress(&self) -> PeerProgress {
        PeerProgress::default()
    }
}

/// What a far end that counts for itself has told.
#[derive(Debug, Default)]
pub struct PeerProgress {
    /// Its counters at an instant (ns, this host's clock), one row per client that it knows of.
    pub progress: Vec<(u64, Vec<FlowProgress>)>,
    /// Such rows that were too many to be kept since the last call.
    pub passed_over: u64,
    /// What it cost the far end, once it is over; one for each session.
    pub loads: Vec<LoadReport>,
}

/// One client's traffic. After each call the fleet asks for `deadline`.
pub trait Traffic: Send {
    /// Whether it may start: connections are made and flows introduced before, in `poll` and `payload`, or that has failed.
    fn is_ready(&self) -> bool {
        true
    }

    /// The traffic of the whole fleet begins at `start_ns`, which may still be to come. Said once, when all clients are ready
    /// or have had their time to become it.
    fn start(&mut self, start_ns: u64);

    /// Sends what is due. Called at `deadline` or soon after, once after each burst of `payload`, and when a socket that took no
    /// more has room again.
    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>);

    /// Takes an IP packet that came through the tunnel at `now_ns`; what it calls for is sent at the `poll` that follows.
    fn payload(&mut self, now_ns: u64, packet: &[u8], channel: &mut Channel<'_>);

    /// The socket refused this many of the packets that were handed over last. Traffic that sends unacknowledged data again ignores
    /// it.
    fn not_sent(&mut self, _packets: u64, _counters: &FlowCounters) {}

    /// When `poll` has something to do, ns; `u64::MAX` while it only waits for packets.
    fn deadline_ns(&self) -> u64;

    /// Whether everything has been sent, and come back or been given up.
    fn is_done(&self) -> bool;

    /// What has come of it, at its end or when it is broken off.
    fn finish(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> Figures;
}

/// What has come of a client's traffic.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its flow, under the client's number; where payload goes both ways, one row for each.
    pub flows: Vec<FlowReport>,
    /// Its counters, which the fleet's are the sums of.
    pub counts: TrafficCounts,
    /// Failed operations by name.
    pub errors: BTreeMap<&'static str, u64>,
    /// What the first failure of a name said, where there is more to say.
    pub examples: BTreeMap<&'static str, String>,
}

/// Counts one failure by name.
pub fn count(errors: &mut BTreeMap<&'static str, u64>, name: &'static str) {
    *errors.entry(name).or_default() += 1;
}
