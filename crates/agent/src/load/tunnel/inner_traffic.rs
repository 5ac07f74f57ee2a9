//! A client's packets inside of its tunnel: the echo that proves it, the pings while it is configured, and its traffic. Owns
//! what becomes of each packet that comes out of the tunnel; what goes in is handed to `send`, which seals it.

use std::collections::BTreeMap;

use leadline_tunnel::inside::{icmp, Echo};

use leadline_wire::TunnelPacketSizes;

use super::metric::Metric;
use super::packet_sizes::SizeProbe;
use super::traffic::{Channel, Figures, Traffic};
use crate::load::threads::{FlowCounters, Recorder};

/// Tells our echo requests from those of the traffic.
const IDENTIFIER: u16 = 0x4c45;
/// An echo request's IP packet, bytes: as `ping` sends by default.
const ECHO_PACKET_BYTES: usize = 84;
/// The first wait for the proving echo's answer before it is sent again, ns; doubled after each.
const FIRST_RESEND_NS: u64 = 500_000_000;
const LONGEST_RESEND_NS: u64 = 2_000_000_000;
/// The number of the first ping: those below prove the tunnel.
const FIRST_PING: u64 = 1 << 32;
/// Pings whose answers can still be told from ones that came twice.
const PINGS_BACK: u64 = 128;

/// When a ping was sent, as the fleet's arrivals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// No unsettled client was due.
    Before,
    /// Some were, and not all had ended their way up.
    During,
    /// All had.
    After,
}

/// When the settled clients had ended their way up, the arrivals began and were over, ns; `u64::MAX`: not yet.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub settled_ns: u64,
    pub arrivals_ns: u64,
    pub arrived_ns: u64,
}

impl Times {
    /// Which time an instant belongs to.
    pub fn of(self, at_ns: u64) -> Time {
        if at_ns < self.arrivals_ns {
            Time::Before
        } else if at_ns < self.arrived_ns {
            Time::During
        } else {
            Time::After
        }
    }
}

/// Pings of a thread's clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct PingTally {
    pub sent: u64,
    pub answered: u64,
    /// Due, and not sent: the one before went out later than this one was due, or the tunnel or its socket took none.
    pub unsent: u64,
    /// Sent and answered, by `Time`.
    pub by_time: [(u64, u64); 3],
    /// The last one's sending, ns.
    pub last_ns: u64,
}

/// What packets that come are counted in.
pub struct Metrics<'a> {
    pub recorder: &'a mut Recorder,
    pub pings: &'a mut PingTally,
    pub times: Times,
    pub counters: Option<&'a FlowCounters>,
}

/// See the file's head.
#[derive(Default)]
pub struct InnerTraffic {
    echo: Option<Echo>,
    proof: Proof,
    pings: Pings,
    traffic: Option<Box<dyn Traffic>>,
    /// What the traffic has come to.
    figures: Option<Box<Figures>>,
    /// Which sizes of packets get through, where most of the traffic was lost.
    sizes: Option<Box<SizeProbe>>,
    /// It was broken off before its time.
    is_broken: bool,
    /// Packets that came out of the tunnel.
    received: u64,
    /// Packets that went in.
    sent: u64,
}

#[derive(Default)]
struct Proof {
    is_wanted: bool,
    sent: u64,
    next_ns: u64,
    until_ns: u64,
    answered_ns: Option<u64>,
}

struct Pings {
    next_ns: u64,
    sent: u64,
    answered: u64,
    /// Which of the last ones were answered.
    seen: u128,
}

impl Default for Pings {
    fn default() -> Self {
        Self { next_ns: u64::MAX, sent: 0, answered: 0, seen: 0 }
    }
}

/// What the proving echo has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proven {
    /// It is waited for.
    NotYet,
    /// It was answered then, ns.
    At(u64),
    /// Its time is over.
    Never,
}

impl InnerTraffic {
    /// A tunnel has come up: prove it until then, ns.
    pub fn prove(&mut self, now_ns: u64, until_ns: u64, ends: Option<(std::net::IpAddr, std::net::IpAddr)>) {
        self.echo = ends.and_then(|(own, to)| Echo::new(own, to, IDENTIFIER));
        self.proof = Proof { is_wanted: true, sent: 0, next_ns: now_ns, until_ns, answered_ns: None };
    }

    /// Whether there is an address that may answer.
    pub fn can_prove(&self) -> bool {
        self.echo.is_some()
    }

    /// The proof has this time from now on, ns; an answer that has come counts.
    pub fn prove_until(&mut self, now_ns: u64, until_ns: u64) {
        (self.proof.next_ns, self.proof.until_ns) = (now_ns, until_ns);
    }

    /// The answer has come, and is looked at later.
    pub fn rest_proof(&mut self) {
        (self.proof.next_ns, self.proof.until_ns) = (u64::MAX, u64::MAX);
    }

    /// The tunnel's addresses have changed.
    pub fn move_to(&mut self, ends: Option<(std::net::IpAddr, std::net::IpAddr)>) {
        self.echo = ends.and_then(|(own, to)| Echo::new(own, to, IDENTIFIER));
    }

    /// The tunnel has gone.
    pub fn end(&mut self) {
        self.echo = None;
        self.proof = Proof { next_ns: u64::MAX, until_ns: u64::MAX, ..Proof::default() };
        self.pings.next_ns = u64::MAX;
    }

    /// Ping from this time on, ns.
    pub fn ping_from(&mut self, first_ns: u64) {
        self.pings.next_ns = first_ns;
    }

    /// Carry load.
    pub fn carry(&mut self, traffic: Box<dyn Traffic>) {
        self.traffic = Some(traffic);
    }

    /// Whether there is load that goes on.
    pub fn has_traffic(&self) -> bool {
        self.traffic.is_some()
    }

    /// Whether its load may begin, or there is none.
    pub fn is_traffic_ready(&self) -> bool {
        self.traffic.as_ref().is_none_or(|traffic| traffic.is_ready())
    }

    /// The fleet's load begins then, ns.
    pub fn start_traffic(&mut self, start_ns: u64) {
        if let Some(traffic) = &mut self.traffic {
            traffic.start(start_ns);
        }
    }

    /// Its time for the proof is over; should the tunnel answer later on, that counts.
    pub fn go_on_proving(&mut self) {
        self.proof.until_ns = u64::MAX;
    }

    /// When the proving echo is to be looked at again, ns.
    pub fn proof_due_ns(&self) -> u64 {
        self.proof.next_ns.min(self.proof.until_ns)
    }

    /// When the next ping is due, ns.
    #[inline]
    pub fn ping_due_ns(&self) -> u64 {
        self.pings.next_ns
    }

    /// When the traffic has something to do, ns.
    #[inline]
    pub fn traffic_due_ns(&self) -> u64 {
        self.traffic.as_ref().map_or(u64::MAX, |traffic| traffic.deadline_ns())
    }

    /// Send the proving echo where it is due; `packet` is the thread's.
    pub fn poll_proof(&mut self, now_ns: u64, packet: &mut Vec<u8>, send: &mut dyn FnMut(&[u8]) -> bool) {
        if now_ns < self.proof.next_ns || self.proof.answered_ns.is_some() {
            return;
        }
        if let Some(echo) = &self.echo {
            packet.clear();
            echo.build(self.proof.sent, now_ns, ECHO_PACKET_BYTES, packet);
            self.sent += u64::from(send(packet));
        }
        // Sent or not: a socket that is full, or a server that took its address back, has no use for more.
        let wait_ns = FIRST_RESEND_NS.saturating_mul(1 << self.proof.sent.min(16)).min(LONGEST_RESEND_NS);
        self.proof.sent += 1;
        self.proof.next_ns = now_ns + wait_ns;
    }

    /// What has become of the proof.
    pub fn proven(&self, now_ns: u64) -> Proven {
        match self.proof.answered_ns {
            Some(at_ns) => Proven::At(at_ns),
            None if now_ns >= self.proof.until_ns => Proven::Never,
            None => Proven::NotYet,
        }
    }

    /// Send a ping that is due, and say when the next one is.
    pub fn poll_pings(
        &mut self,
        now_ns: u64,
        gap_ns: u64,
        metrics: &mut Metrics<'_>,
        packet: &mut Vec<u8>,
        send: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let due_ns = self.pings.next_ns;
        if now_ns < due_ns {
            return;
        }
        // A server may take the address back that they came from.
        let is_sent = self.echo.as_ref().is_some_and(|echo| {
            packet.clear();
            echo.build(FIRST_PING + self.pings.sent, now_ns, ECHO_PACKET_BYTES, packet);
            send(packet)
        });
        if is_sent {
            self.pings.sent += 1;
            self.pings.seen <<= 1;
            self.sent += 1;
            metrics.pings.sent += 1;
            metrics.pings.last_ns = now_ns;
            metrics.recorder.record(Metric::PingLate as usize, due_ns, now_ns - due_ns);
            metrics.pings.by_time[metrics.times.of(now_ns) as usize].0 += 1;
        } else {
            metrics.pings.unsent += 1;
        }
        let missed = (now_ns - due_ns) / gap_ns;
        metrics.pings.unsent += missed;
        self.pings.next_ns = due_ns + (missed + 1) * gap_ns;
    }

    /// Let the traffic send what is due; says whether it has ended.
    pub fn poll_traffic(
        &mut self,
        now_ns: u64,
        metrics: &mut Metrics<'_>,
        send: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let (Some(traffic), Some(counters)) = (&mut self.traffic, metrics.counters) else { return false };
        let mut sent = 0;
        let mut counted = |packet: &[u8]| {
            let is_sent = send(packet);
            sent += u64::from(is_sent);
            is_sent
        };
        let mut channel = Channel { send: &mut counted, recorder: metrics.recorder, counters };
        traffic.poll(now_ns, &mut channel);
        self.sent += sent;
        let is_done = traffic.is_done();
        if is_done {
            self.end_traffic(now_ns, metrics, send);
        }
        is_done
    }

    /// So many packets that were on their way were refused by the socket after all.
    pub fn not_sent(&mut self, packets: u64, counters: Option<&FlowCounters>) {
        self.sent = self.sent.saturating_sub(packets);
        if let (Some(traffic), Some(counters)) = (&mut self.traffic, counters) {
            traffic.not_sent(packets, counters);
        }
    }

    /// End the traffic, done or not.
    pub fn end_traffic(&mut self, now_ns: u64, metrics: &mut Metrics<'_>, send: &mut dyn FnMut(&[u8]) -> bool) {
        let (Some(mut traffic), Some(counters)) = (self.traffic.take(), metrics.counters) else { return };
        let mut channel = Channel { send, recorder: metrics.recorder, counters };
        self.figures = Some(Box::new(traffic.finish(now_ns, &mut channel)));
    }

    /// The traffic was broken off by what became of its tunnel.
    pub fn note_broken(&mut self) {
        self.is_broken = true;
    }

    /// What the traffic has come to, once. A flow whose tunnel broke lasts until `over_ns`, as the others do: it carries nothing
    /// from then on, which is less for all of them together, and no shorter time.
    pub fn take_figures(&mut self, over_ns: u64) -> Option<Figures> {
        let mut figures = *self.figures.take()?;
        if self.is_broken {
            let ends = figures.flows.iter_mut().filter_map(|flow| flow.end_ns.as_mut());
            ends.for_each(|end_ns| *end_ns = over_ns.max(*end_ns));
        }
        Some(figures)
    }

    /// Take a packet that came out of the tunnel. What it calls for is appended to `answer`, packet behind packet.
    #[inline]
    pub fn take(&mut self, now_ns: u64, packet: &[u8], metrics: &mut Metrics<'_>, answer: &mut Vec<u8>) {
        self.received += 1;
        let is_expected = self.proof.is_wanted || self.pings.sent > self.pings.answered || self.sizes.is_some();
        if is_expected && is_icmp(packet) {
            if let Some(reply) = self.echo.as_ref().and_then(|echo| echo.matches(packet)) {
                return self.replied(now_ns, reply.sequence, reply.sent_ns, metrics);
            }
        }
        if is_icmp(packet) && icmp::answer(packet, answer) {
            return;
        }
        if let (Some(traffic), Some(counters)) = (&mut self.traffic, metrics.counters) {
            let mut refuse = |_: &[u8]| false;
            let mut channel = Channel { send: &mut refuse, recorder: metrics.recorder, counters };
            traffic.payload(now_ns, packet, &mut channel);
        }
    }

    fn replied(&mut self, now_ns: u64, sequence: u64, sent_ns: u64, metrics: &mut Metrics<'_>) {
        if self.sizes.as_mut().is_some_and(|sizes| sizes.take(sequence)) {
            return;
        }
        let Some(number) = sequence.checked_sub(FIRST_PING) else {
            if sequence < self.proof.sent {
                self.proof.answered_ns.get_or_insert(now_ns);
                self.proof.is_wanted = false;
            }
            return;
        };
        let Some(back) = self.pings.sent.checked_sub(number + 1).filter(|back| *back < PINGS_BACK) else { return };
        if self.pings.seen >> back & 1 == 1 || sent_ns > now_ns {
            return;
        }
        self.pings.seen |= 1 << back;
        self.pings.answered += 1;
        metrics.pings.answered += 1;
        let time = metrics.times.of(sent_ns);
        metrics.pings.by_time[time as usize].1 += 1;
        let metric = match time {
            Time::Before => Metric::PingBefore,
            Time::During => Metric::PingDuring,
            Time::After => Metric::PingAfter,
        };
        metrics.recorder.record(metric as usize, sent_ns, now_ns - sent_ns);
    }

    /// Whether most of its traffic's packets were lost.
    pub fn lost_most(&self) -> bool {
        let flows = || self.figures.iter().flat_map(|figures| &figures.flows);
        let sent: u64 = flows().filter_map(|flow| flow.sent_units).sum();
        let received = flows().map(|flow| flow.received_units).sum::<Option<u64>>();
        received.is_some_and(|received| received < sent / 2)
    }

    /// Find out which sizes get through: send an echo request of each, in this round.
    pub fn probe_sizes(
        &mut self,
        (now_ns, round): (u64, usize),
        mtu: u16,
        packet: &mut Vec<u8>,
        send: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let Some(echo) = &self.echo else { return };
        let probe = self.sizes.get_or_insert_with(|| Box::new(SizeProbe::new(mtu)));
        for (number, bytes) in probe.requests(round) {
            packet.clear();
            echo.build(number, now_ns, bytes, packet);
            self.sent += u64::from(send(packet));
        }
    }

    /// Whether sizes are still being found out.
    pub fn is_probing(&self) -> bool {
        self.sizes.as_ref().is_some_and(|sizes| !sizes.is_over())
    }

    /// What has been found out.
    pub fn packet_sizes(&self) -> Option<TunnelPacketSizes> {
        self.sizes.as_ref()?.found()
    }

    /// Send packets of our own that stand one behind the other.
    pub fn send_all(&mut self, mut packets: &[u8], send: &mut dyn FnMut(&[u8]) -> bool) {
        while let Some((packet, rest)) = first_packet(packets) {
            self.sent += u64::from(send(packet));
            packets = rest;
        }
    }

    /// What the client's row tells.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let mut tell = |name: &str, count: u64| {
            if count > 0 {
                counts.insert(name.to_owned(), count);
            }
        };
        tell("packets_sent", self.sent);
        tell("packets_received", self.received);
        tell("pings_sent", self.pings.sent);
        tell("pings_answered", self.pings.answered);
        for (name, count) in self.figures.iter().flat_map(|figures| &figures.counts) {
            tell(name, *count);
        }
        counts
    }
}

/// Whether a packet may be ICMP or ICMPv6, without extension headers.
#[inline]
fn is_icmp(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(9) == Some(&1),
        Some(6) => packet.get(6) == Some(&58),
        _ => false,
    }
}

/// An IP packet and what stands behind it, by the length in its header.
fn first_packet(packets: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| Some(usize::from(u16::from_be_bytes([*packets.get(at)?, *packets.get(at + 1)?])));
    let length = match packets.first()? >> 4 {
        4 => word(2)?,
        _ => 40 + word(4)?,
    };
    (length > 0).then(|| packets.split_at_checked(length)).flatten()
}
