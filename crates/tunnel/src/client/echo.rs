//! Echo requests of one client through its tunnel: the one that verifies the tunnel, pings while the client is
//! configured, and requests of several sizes. Owns their schedule and the matching of replies; the caller seals and
//! sends the packets.

use std::net::IpAddr;

use super::effects::{ArrivalTime, Figures, Metric};
use super::packet_sizes::{PacketSizes, SizeProbe};
use crate::inside::Echo;
use crate::timer::{earlier, is_due};

/// ICMP identifier that distinguishes these echo requests from those of the traffic.
const IDENTIFIER: u16 = 0x4c45;
/// Length of an echo request's IP packet, bytes: the default of `ping`.
const ECHO_PACKET_BYTES: usize = 84;
/// Delay before the verification echo is repeated, ns; doubles after each repetition.
const FIRST_RESEND_NS: u64 = 500_000_000;
const LONGEST_RESEND_NS: u64 = 2_000_000_000;
/// Sequence number of the first ping; lower numbers verify the tunnel.
const FIRST_PING: u64 = 1 << 32;
/// Number of latest pings whose duplicate replies are recognised.
const DUPLICATE_WINDOW: u64 = 128;

/// The echo requests of one client.
#[derive(Debug, Default)]
pub struct Echoes {
    /// Addresses of the requests; `None` without a tunnel, or if the server assigned no address that may answer.
    echo: Option<Echo>,
    verification: Verification,
    pings: Pings,
    /// Requests of several sizes, if most of the traffic was lost.
    sizes: Option<Box<SizeProbe>>,
}

/// The verification of a tunnel. `next_ns` and `until_ns` are set while a request may be sent or a reply may arrive
/// in time, and `until_ns` is not before the tunnel came up.
#[derive(Debug, Default)]
struct Verification {
    /// Whether a reply is expected.
    is_wanted: bool,
    /// Number of requests sent.
    sent: u64,
    /// When the next request is due, ns; `None` if no request is due.
    next_ns: Option<u64>,
    /// When the time for the reply ends, ns; `None` if it does not end.
    until_ns: Option<u64>,
    /// When the first reply arrived, ns.
    answered_ns: Option<u64>,
}

/// The pings of a configured client.
#[derive(Debug, Default)]
struct Pings {
    /// When the next ping is due, ns; `None` while the client does not ping.
    next_ns: Option<u64>,
    sent: u64,
    answered: u64,
    /// Which of the latest pings were answered; the last one is in the lowest bit.
    answered_bits: u128,
}

/// The state of a tunnel's verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The reply has not arrived.
    NotYet,
    /// The reply arrived at this time, ns.
    At(u64),
    /// The time for the reply has ended.
    Never,
}

impl Echoes {
    /// Begins to verify a tunnel that has just come up, until `until_ns`.
    pub fn verify(&mut self, now_ns: u64, until_ns: u64, ends: Option<(IpAddr, IpAddr)>) {
        self.move_to(ends);
        self.verification = Verification {
            is_wanted: true,
            next_ns: Some(now_ns),
            until_ns: Some(until_ns),
            ..Verification::default()
        };
    }

    /// Whether the tunnel has an address that may answer.
    pub fn can_verify(&self) -> bool {
        self.echo.is_some()
    }

    /// Restarts the time for the reply; a reply that has arrived counts.
    pub fn verify_until(&mut self, now_ns: u64, until_ns: u64) {
        (self.verification.next_ns, self.verification.until_ns) = (Some(now_ns), Some(until_ns));
    }

    /// Pauses the verification: the reply has arrived and is evaluated later.
    pub fn pause_verification(&mut self) {
        (self.verification.next_ns, self.verification.until_ns) = (None, None);
    }

    /// Continues without a time limit; a late reply still counts.
    pub fn continue_verification(&mut self) {
        self.verification.until_ns = None;
    }

    /// Changes the tunnel's addresses.
    pub fn move_to(&mut self, ends: Option<(IpAddr, IpAddr)>) {
        self.echo = ends.and_then(|(own, to)| Echo::new(own, to, IDENTIFIER));
    }

    /// Stops all requests at the end of the tunnel.
    pub fn end(&mut self) {
        self.echo = None;
        self.verification = Verification::default();
        self.pings.next_ns = None;
    }

    /// When the verification has to be checked again, ns.
    pub fn verification_due_ns(&self) -> Option<u64> {
        earlier(self.verification.next_ns, self.verification.until_ns)
    }

    /// The state of the verification.
    pub fn verified(&self, now_ns: u64) -> Verified {
        let Verification { answered_ns, until_ns, .. } = self.verification;
        match answered_ns {
            Some(at_ns) => Verified::At(at_ns),
            None if is_due(until_ns, now_ns) => Verified::Never,
            None => Verified::NotYet,
        }
    }

    /// Whether a verification echo is due.
    pub fn is_verification_due(&self, now_ns: u64) -> bool {
        is_due(self.verification.next_ns, now_ns) && self.verification.answered_ns.is_none()
    }

    /// Builds the verification echo; returns whether there is an address for it.
    pub fn build_verification(&self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        self.build(self.verification.sent, now_ns, ECHO_PACKET_BYTES, out)
    }

    /// Records that the verification echo was sent or could not be sent. In both cases the next one follows later: a
    /// full socket, or a server that took its address back, needs no faster repetition.
    pub fn verification_sent(&mut self, now_ns: u64) {
        let sent = self.verification.sent;
        let wait_ns = FIRST_RESEND_NS.saturating_mul(1 << sent.min(16)).min(LONGEST_RESEND_NS);
        self.verification.sent += 1;
        self.verification.next_ns = Some(now_ns + wait_ns);
    }

    /// Pings from this time on; `None` stops.
    pub fn ping_from(&mut self, first_ns: Option<u64>) {
        self.pings.next_ns = first_ns;
    }

    /// When the next ping is due, ns.
    #[inline]
    pub fn ping_due_ns(&self) -> Option<u64> {
        self.pings.next_ns
    }

    /// Builds the next ping; returns whether there is an address for it.
    pub fn build_ping(&self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        self.build(FIRST_PING + self.pings.sent, now_ns, ECHO_PACKET_BYTES, out)
    }

    /// Records that the ping due at `due_ns` was sent or could not be sent. Pings that were due meanwhile count as
    /// not sent.
    pub fn ping_sent(&mut self, (due_ns, now_ns): (u64, u64), gap_ns: u64, is_sent: bool, figures: &mut impl Figures) {
        if is_sent {
            self.pings.sent += 1;
            self.pings.answered_bits <<= 1;
            let time = figures.arrival_time(now_ns);
            let counts = &mut figures.counts().pings;
            counts.sent += 1;
            counts.last_ns = Some(now_ns);
            counts.by_time[time as usize].0 += 1;
            figures.record(Metric::PingLate, due_ns, now_ns - due_ns);
        }
        let missed = (now_ns - due_ns) / gap_ns;
        figures.counts().pings.unsent += missed + u64::from(!is_sent);
        self.pings.next_ns = Some(due_ns + (missed + 1) * gap_ns);
    }

    /// The numbers of pings sent and answered.
    pub fn pings(&self) -> (u64, u64) {
        (self.pings.sent, self.pings.answered)
    }

    /// Begins to probe which packet sizes pass.
    pub fn probe_sizes(&mut self, mtu: u16) {
        self.sizes.get_or_insert_with(|| Box::new(SizeProbe::new(mtu)));
    }

    /// The sequence numbers and sizes of one round's requests.
    pub fn size_requests(&self, round: usize) -> impl Iterator<Item = (u64, usize)> {
        let requests: Vec<_> = self.sizes.iter().flat_map(|sizes| sizes.requests(round)).collect();
        requests.into_iter()
    }

    /// Builds an echo request of this number and size; returns whether there is an address for it.
    pub fn build(&self, number: u64, now_ns: u64, bytes: usize, out: &mut Vec<u8>) -> bool {
        let Some(echo) = &self.echo else { return false };
        echo.build(number, now_ns, bytes, out);
        true
    }

    /// Whether sizes are still being probed.
    pub fn is_probing_sizes(&self) -> bool {
        self.sizes.as_ref().is_some_and(|sizes| !sizes.is_over())
    }

    /// The result of the size probe.
    pub fn packet_sizes(&self) -> Option<PacketSizes> {
        self.sizes.as_ref()?.result()
    }

    /// Handles a packet from the tunnel; returns whether it is a reply to one of these requests.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, packet: &[u8], figures: &mut impl Figures) -> bool {
        let is_expected = self.verification.is_wanted || self.pings.sent > self.pings.answered || self.sizes.is_some();
        if !is_expected {
            return false;
        }
        let Some(reply) = self.echo.as_ref().and_then(|echo| echo.matches(packet)) else { return false };
        if !self.sizes.as_mut().is_some_and(|sizes| sizes.take(reply.sequence)) {
            match reply.sequence.checked_sub(FIRST_PING) {
                None => self.verification_answered(now_ns, reply.sequence),
                Some(number) => self.ping_answered(now_ns, number, reply.sent_ns, figures),
            }
        }
        true
    }

    fn verification_answered(&mut self, now_ns: u64, number: u64) {
        if number < self.verification.sent {
            self.verification.answered_ns.get_or_insert(now_ns);
            self.verification.is_wanted = false;
        }
    }

    fn ping_answered(&mut self, now_ns: u64, number: u64, sent_ns: u64, figures: &mut impl Figures) {
        let Some(back) = self.pings.sent.checked_sub(number + 1).filter(|back| *back < DUPLICATE_WINDOW) else {
            return;
        };
        if self.pings.answered_bits >> back & 1 == 1 || sent_ns > now_ns {
            return;
        }
        self.pings.answered_bits |= 1 << back;
        self.pings.answered += 1;
        let time = figures.arrival_time(sent_ns);
        let counts = &mut figures.counts().pings;
        counts.answered += 1;
        counts.by_time[time as usize].1 += 1;
        let metric = match time {
            ArrivalTime::Before => Metric::PingBefore,
            ArrivalTime::During => Metric::PingDuring,
            ArrivalTime::After => Metric::PingAfter,
        };
        figures.record(metric, sent_ns, now_ns - sent_ns);
    }
}
