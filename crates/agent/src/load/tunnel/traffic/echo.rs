//! ICMP echo requests at a rate: each one has a number and carries its time, and each reply is counted once.

use std::collections::BTreeMap;
use std::net::IpAddr;

use leadline_pace::Pace;
use leadline_stats::{Arrival, Jitter, SequenceTracker};
use leadline_tunnel::inside::Echo;
use leadline_wire::{Direction, ErrorReport, TrafficCounts};

use super::interface::{count, Channel, ClientContext, Figures, Traffic, TrafficPlan};
use super::schedule::{row, Latency, Schedule, BATCH, OVERTIME_NS, REMEMBERED_S, RETRY_NS};
use crate::events::input_error;
use crate::flows::DRAIN_NS;
use crate::load::tunnel::metric::Metric;
use crate::metering::FlowCounters;

/// The identifier of these echo requests, which a fleet's pings do not use.
const IDENTIFIER: u16 = 0x4c4c;
/// The smallest request over IPv4, bytes of its packet: a shorter one has no room for its number and time.
const LEAST_BYTES: u32 = 44;

/// The echo traffic of all clients.
pub struct EchoPlan {
    to: Option<IpAddr>,
    pace: Pace,
    packet_bytes: usize,
    remembered: u64,
    duration_ns: u64,
}

impl EchoPlan {
    /// Checks the specification.
    pub fn new(to: Option<&str>, rate_pps: f64, packet_bytes: u32, duration_ms: u64) -> Result<Self, ErrorReport> {
        let to = to
            .map(|text| {
                let refused = || input_error("bad_address", format!("echo: {text} is not an IP address"));
                text.parse::<IpAddr>().map_err(|_| refused())
            })
            .transpose()?;
        let refused = || input_error("bad_rate", format!("echo: {rate_pps} packets/s is no rate"));
        let pace = Pace::per_second(rate_pps).ok_or_else(refused)?;
        if packet_bytes < LEAST_BYTES || packet_bytes > u32::from(u16::MAX) {
            let message =
                format!("echo: packets of {packet_bytes} bytes; {LEAST_BYTES} to 65535 hold a number and a time");
            return Err(input_error("bad_size", message));
        }
        let remembered = (rate_pps * REMEMBERED_S).ceil() as u64;
        let duration_ns = duration_ms.saturating_mul(1_000_000);
        Ok(Self { to, pace, packet_bytes: packet_bytes as usize, remembered, duration_ns })
    }
}

impl TrafficPlan for EchoPlan {
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str> {
        let server = context.server_ipv4.map(IpAddr::V4).or(context.server_ipv6.map(IpAddr::V6));
        let to = self.to.or(server).ok_or("no_echo_target")?;
        let local_address = if to.is_ipv4() { context.ipv4.map(IpAddr::V4) } else { context.ipv6.map(IpAddr::V6) };
        let echo =
            local_address.and_then(|local_address| Echo::new(local_address, to, IDENTIFIER)).ok_or("no_address")?;
        if self.packet_bytes < echo.least_bytes() {
            return Err("packet_too_small");
        }
        if self.packet_bytes > usize::from(context.mtu) {
            return Err("packet_too_big");
        }
        Ok(Box::new(EchoTraffic {
            echo,
            client: context.client,
            schedule: Schedule::new(self.pace, context, self.duration_ns),
            packet_bytes: self.packet_bytes,
            duration_ns: self.duration_ns,
            start_ns: None,
            next: 0,
            refused: 0,
            packet: Vec::new(),
            first_ns: None,
            last_ns: None,
            ended_ns: None,
            deadline_ns: None,
            replies: SequenceTracker::with_window(self.remembered),
            received_bytes: 0,
            jitter: Jitter::default(),
            latency: Latency::default(),
            strays: 0,
            errors: BTreeMap::new(),
        }))
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    fn times_packets(&self) -> bool {
        true
    }
}

struct EchoTraffic {
    echo: Echo,
    client: u32,
    schedule: Schedule,
    packet_bytes: usize,
    duration_ns: u64,
    /// When the flow begins, ns; set by `start`.
    start_ns: Option<u64>,
    /// The number of the next request, and how many earlier ones the socket refused.
    next: u64,
    refused: u64,
    packet: Vec<u8>,
    /// When the first and the last request were sent, ns; both or neither are set.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// When the last request was sent or given up.
    ended_ns: Option<u64>,
    /// Set from `start` on: the next request, then the end of the flow, then, once `ended_ns` is set, when replies are
    /// given up. `None` after that, or when all replies have arrived.
    deadline_ns: Option<u64>,
    replies: SequenceTracker,
    received_bytes: u64,
    jitter: Jitter,
    latency: Latency,
    /// Replies with numbers or times that were never sent.
    strays: u64,
    errors: BTreeMap<&'static str, u64>,
}

impl EchoTraffic {
    /// Sends what is due; returns when to call again, ns.
    fn send_due(&mut self, start_ns: u64, now_ns: u64, channel: &mut Channel<'_>) -> u64 {
        let due = self.schedule.due_count(now_ns.saturating_sub(start_ns));
        for _ in 0..BATCH.min(due.saturating_sub(self.next)) {
            let due_ns = start_ns.saturating_add(self.schedule.due_ns(self.next));
            self.packet.clear();
            self.echo.build(self.next, now_ns, self.packet_bytes, &mut self.packet);
            if !(channel.send)(&self.packet) {
                return now_ns + RETRY_NS;
            }
            channel.record(Metric::TrafficLate, due_ns, now_ns.saturating_sub(due_ns));
            channel.counters.sent(self.packet_bytes as u64, 1);
            self.first_ns.get_or_insert(now_ns);
            self.last_ns = Some(now_ns);
            self.next += 1;
        }
        start_ns.saturating_add(self.schedule.due_ns(self.next)).max(now_ns)
    }
}

impl Traffic for EchoTraffic {
    fn start(&mut self, start_ns: u64) {
        self.start_ns = Some(start_ns);
        self.deadline_ns = Some(start_ns.saturating_add(self.schedule.due_ns(0)));
    }

    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(start_ns) = self.start_ns.filter(|start_ns| now_ns >= *start_ns) else { return };
        let end_ns = start_ns.saturating_add(self.duration_ns);
        if self.ended_ns.is_none() {
            self.deadline_ns = Some(self.send_due(start_ns, now_ns, channel));
            if self.next >= self.schedule.total() {
                // The flow lasts its whole time, whenever its last request was due.
                self.deadline_ns = Some(end_ns);
            }
            let through = now_ns >= end_ns && self.next >= self.schedule.total();
            if through || now_ns >= end_ns.saturating_add(OVERTIME_NS) {
                self.ended_ns = Some(now_ns);
            }
        }
        if let Some(ended_ns) = self.ended_ns {
            let drained_ns = ended_ns.saturating_add(DRAIN_NS);
            self.deadline_ns = (now_ns < drained_ns).then_some(drained_ns);
        }
    }

    fn payload(&mut self, now_ns: u64, packet: &[u8], channel: &mut Channel<'_>) {
        let Some(reply) = self.echo.matches(packet) else {
            if let Some(name) = self.echo.refusal(packet) {
                count(&mut self.errors, name);
            }
            return;
        };
        let due_ns = self.start_ns.unwrap_or(0).saturating_add(self.schedule.due_ns(reply.sequence));
        // The far end returns both values, and they may be forged; impossible ones are rejected.
        if reply.sequence >= self.next || !(due_ns..=now_ns).contains(&reply.sent_ns) {
            self.strays += 1;
            return;
        }
        if matches!(self.replies.record(reply.sequence), Arrival::Duplicate | Arrival::Stale) {
            return;
        }
        self.jitter.record(reply.sent_ns, now_ns);
        self.received_bytes += reply.packet_bytes as u64;
        channel.counters.received(reply.packet_bytes as u64, 1);
        self.latency.record(now_ns - due_ns);
        channel.record(Metric::Latency, due_ns, now_ns - due_ns);
        channel.record(Metric::Service, due_ns, now_ns - reply.sent_ns);
        if self.ended_ns.is_some() && self.replies.received() == self.next {
            self.deadline_ns = None;
        }
    }

    fn not_sent(&mut self, packets: u64, counters: &FlowCounters) {
        let packets = packets.min(self.next - self.refused);
        self.refused += packets;
        counters.not_sent(packets * self.packet_bytes as u64, packets);
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn is_done(&self) -> bool {
        self.ended_ns.is_some() && (self.replies.received() == self.next || self.deadline_ns.is_none())
    }

    fn finish(&mut self, now_ns: u64, _channel: &mut Channel<'_>) -> Figures {
        let start_ns = self.start_ns.unwrap_or(now_ns);
        let due = self.schedule.due_count(now_ns.saturating_sub(start_ns));
        let end_ns = start_ns.saturating_add(self.duration_ns);
        let sent = self.next - self.refused;
        let lost = self.replies.lost(self.next).saturating_sub(self.refused);
        let mut flow = row(self.client, Direction::Up, start_ns);
        flow.start_ns = self.first_ns;
        flow.end_ns = self.last_ns.map(|last_ns| self.ended_ns.unwrap_or(now_ns).min(end_ns).max(last_ns));
        flow.sent_bytes = Some(sent * self.packet_bytes as u64);
        flow.received_bytes = Some(self.received_bytes);
        flow.sent_units = Some(sent);
        flow.received_units = Some(self.replies.received());
        flow.lost = Some(lost);
        flow.duplicates = Some(self.replies.duplicates());
        flow.reordered = Some(self.replies.reordered());
        flow.jitter_us = self.jitter.mean_us();
        flow.latency_mean_us = self.latency.mean_us();
        flow.latency_max_us = self.latency.longest_us();
        flow.local = Some(self.echo.ends().source().to_string());
        flow.remote = Some(self.echo.ends().destination().to_string());
        let counts = TrafficCounts {
            unsent: Some(due.saturating_sub(sent)),
            unanswered: Some(lost),
            stale: Some(self.replies.stale()),
            strays: Some(self.strays),
            ..TrafficCounts::default()
        };
        Figures { flows: vec![flow], counts, errors: std::mem::take(&mut self.errors), examples: BTreeMap::new() }
    }
}
