//! The traffic of one client in its thread: the traffic while it runs, its figures after that, and why it was broken
//! off. The client's machine seals its packets.

use super::traffic::{Channel, Figures, Traffic};
use crate::metering::FlowCounters;

/// The phase of a thread's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPhase {
    /// Not all arrivals have ended.
    #[default]
    Ahead,
    /// Clients prepare their traffic.
    Readying,
    /// All of the thread's clients are ready; those of other threads may not be.
    Ready,
    /// The instant of its start is known.
    Begun,
}

/// The reason why traffic ends early.
#[derive(Clone, Copy, Debug)]
pub struct Breakage {
    /// The name under which it is counted.
    pub name: &'static str,
    /// The message.
    pub detail: &'static str,
}

/// The traffic of one client.
#[derive(Default)]
pub struct InnerTraffic {
    traffic: Option<Box<dyn Traffic>>,
    /// The figures of ended traffic.
    figures: Option<Box<Figures>>,
    /// The reason that the machine reported, until the worker has ended the traffic.
    pub breakage: Option<Breakage>,
    /// Whether the traffic was broken off.
    is_broken: bool,
}

impl InnerTraffic {
    /// Assigns traffic to the client.
    pub fn carry(&mut self, traffic: Box<dyn Traffic>) {
        self.traffic = Some(traffic);
    }

    /// Whether there is traffic that has not ended.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.traffic.is_some()
    }

    /// Whether its traffic is ready to start, or there is none.
    pub fn is_ready(&self) -> bool {
        self.traffic.as_ref().is_none_or(|traffic| traffic.is_ready())
    }

    /// Starts the traffic at this instant, ns.
    pub fn start(&mut self, start_ns: u64) {
        if let Some(traffic) = &mut self.traffic {
            traffic.start(start_ns);
        }
    }

    /// When the traffic has work to do, ns.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.traffic.as_ref()?.deadline_ns()
    }

    /// Polls the traffic, which sends what is due; returns whether it has ended.
    pub fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> bool {
        let Some(traffic) = &mut self.traffic else { return false };
        traffic.poll(now_ns, channel);
        let is_done = traffic.is_done();
        if is_done {
            self.end(now_ns, channel);
        }
        is_done
    }

    /// Passes a packet from the tunnel to the traffic.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, packet: &[u8], channel: &mut Channel<'_>) {
        if let Some(traffic) = &mut self.traffic {
            traffic.payload(now_ns, packet, channel);
        }
    }

    /// Reports that the socket refused this many of its packets after all.
    pub fn not_sent(&mut self, packets: u64, counters: Option<&FlowCounters>) {
        if let (Some(traffic), Some(counters)) = (&mut self.traffic, counters) {
            traffic.not_sent(packets, counters);
        }
    }

    /// Ends the traffic, complete or not.
    pub fn end(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        if let Some(mut traffic) = self.traffic.take() {
            self.figures = Some(Box::new(traffic.finish(now_ns, channel)));
        }
    }

    /// Records that the traffic cannot go on; the worker ends it.
    pub fn break_off(&mut self, breakage: Breakage) {
        if self.is_running() {
            (self.breakage, self.is_broken) = (Some(breakage), true);
        }
    }

    /// Removes and returns the figures. A flow with a broken tunnel lasts until `over_ns` like the others: it carries
    /// nothing after the break, which lowers the fleet's rate, but does not shorten the time.
    pub fn take_figures(&mut self, over_ns: u64) -> Option<Figures> {
        let mut figures = *self.figures.take()?;
        if self.is_broken {
            let ends = figures.flows.iter_mut().filter_map(|flow| flow.end_ns.as_mut());
            ends.for_each(|end_ns| *end_ns = over_ns.max(*end_ns));
        }
        Some(figures)
    }

    /// Whether most of its packets were lost.
    pub fn lost_most(&self) -> bool {
        let flows = || self.figures.iter().flat_map(|figures| &figures.flows);
        let sent: u64 = flows().filter_map(|flow| flow.sent_units).sum();
        let received = flows().map(|flow| flow.received_units).sum::<Option<u64>>();
        received.is_some_and(|received| received < sent / 2)
    }

    /// Returns its counters with their names.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.figures.iter().flat_map(|figures| figures.counts.named())
    }
}
