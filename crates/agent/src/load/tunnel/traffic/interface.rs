//! The interface between the fleet's threads and a kind of traffic: the plan that all clients share, one client's
//! traffic, the channel that it uses during a call, and its figures. Owns no traffic.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use leadline_tunnel::inside::tcp::MIN_MTU;
use leadline_wire::{FlowProgress, FlowReport, LoadReport, TrafficCounts};

use crate::load::tunnel::metric::Metric;
use crate::metering::{FlowCounters, Recorder};

/// A client's number and the configuration that its server assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientContext {
    /// The client's number.
    pub client: u32,
    /// The number of clients in the whole fleet: their paced sends are spread evenly over one gap.
    pub clients: u32,
    /// The client's IPv4 address in the tunnel.
    pub ipv4: Option<Ipv4Addr>,
    /// The client's IPv6 address in the tunnel.
    pub ipv6: Option<Ipv6Addr>,
    /// The server's IPv4 address in the tunnel.
    pub server_ipv4: Option<Ipv4Addr>,
    /// The server's IPv6 address in the tunnel.
    pub server_ipv6: Option<Ipv6Addr>,
    /// The longest IP packet that the tunnel carries, bytes.
    pub mtu: u16,
}

impl ClientContext {
    /// Checks that the tunnel's MTU has room for TCP.
    ///
    /// # Errors
    ///
    /// The name of the failure, if it has not.
    pub fn carries_tcp(&self) -> Result<(), &'static str> {
        if self.mtu < MIN_MTU {
            return Err("mtu_too_small");
        }
        Ok(())
    }
}

/// What a client's traffic may use during a call.
pub struct Channel<'a> {
    /// Seals an IP packet and sends it; returns whether the tunnel and its socket accepted it. Packets of one length
    /// that are sent during one `poll` leave together.
    pub send: &'a mut dyn FnMut(&[u8]) -> bool,
    /// The thread's histograms.
    pub recorder: &'a mut Recorder,
    /// The client's own counters.
    pub counters: &'a FlowCounters,
}

impl Channel<'_> {
    /// Records one duration of an operation that was due at `due_ns`.
    pub fn record(&mut self, metric: Metric, due_ns: u64, value_ns: u64) {
        self.recorder.record(metric as usize, due_ns, value_ns);
    }
}

/// The common part of all clients' traffic.
pub trait TrafficPlan: Send + Sync {
    /// Returns the traffic of one client.
    ///
    /// # Errors
    ///
    /// The name of the failure, if the client lacks something, such as an address of the family.
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str>;

    /// The duration of the traffic, ns, without the wait for responses after the last send.
    fn duration_ns(&self) -> u64;

    /// Whether it counts units (packets, requests) in addition to bytes.
    fn counts_units(&self) -> bool {
        true
    }

    /// Whether it measures single packets. Each packet then needs a kernel timestamp, and a timestamped packet may
    /// wait for others. Traffic that answers each packet with another must not be delayed.
    fn times_packets(&self) -> bool {
        false
    }

    /// Returns the far end's progress since the last call, which the fleet's task passes on; called in each interval
    /// and at the end.
    fn take_peer_progress(&self) -> PeerProgress {
        PeerProgress::default()
    }
}

/// Progress that was received from a far end with counters of its own.
#[derive(Debug, Default)]
pub struct PeerProgress {
    /// Its counters at an instant (ns, this host's clock), one row per client that the far end knows.
    pub progress: Vec<(u64, Vec<FlowProgress>)>,
    /// Progress messages since the last call that were dropped because there were too many.
    pub passed_over: u64,
    /// The cost of the traffic on the far end, known at its end; one report for each session.
    pub loads: Vec<LoadReport>,
}

/// The traffic of one client. The fleet reads `deadline_ns` after each call.
pub trait Traffic: Send {
    /// Whether the traffic may start. Before that, `poll` and `payload` open connections and introduce flows, until
    /// this has succeeded or failed.
    fn is_ready(&self) -> bool {
        true
    }

    /// Starts the traffic of the whole fleet at `start_ns`, which may be in the future. Called once, when all clients
    /// are ready or their time limit for it is over.
    fn start(&mut self, start_ns: u64);

    /// Sends what is due. Called at `deadline_ns` or soon after, once after each burst of `payload`, and when a
    /// blocked socket has room again.
    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>);

    /// Takes an IP packet that came through the tunnel at `now_ns`; the `poll` that follows sends its response.
    fn payload(&mut self, now_ns: u64, packet: &[u8], channel: &mut Channel<'_>);

    /// Takes back the last `_packets` packets, which the socket refused after all. Traffic that retransmits
    /// unacknowledged data ignores this.
    fn not_sent(&mut self, _packets: u64, _counters: &FlowCounters) {}

    /// When `poll` has work to do, ns; `None` while it only waits for packets, and once it is done.
    fn deadline_ns(&self) -> Option<u64>;

    /// Whether everything was sent, and was answered or given up.
    fn is_done(&self) -> bool;

    /// Ends the traffic, complete or not, and returns its figures.
    fn finish(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> Figures;
}

/// The figures of one client's traffic.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Its flow, under the client's number; one row for each direction if payload goes both ways.
    pub flows: Vec<FlowReport>,
    /// Its counters; the fleet's counters are their sums.
    pub counts: TrafficCounts,
    /// Failed operations by name.
    pub errors: BTreeMap<&'static str, u64>,
    /// The message of the first failure of each name, if it says more than the name.
    pub examples: BTreeMap<&'static str, String>,
}

/// Counts one failure by name.
pub fn count(errors: &mut BTreeMap<&'static str, u64>, name: &'static str) {
    *errors.entry(name).or_default() += 1;
}
