//! One client's traffic as its thread holds it: the traffic while it runs, what it came to, and why it was broken off. What seals its
//! packets is the client's machine.

use super::traffic::{Channel, Figures, Traffic};
use crate::metering::FlowCounters;

/// The phase of a thread's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPhase {
    /// Not all arrivals have ended.
    #[default]
    Ahead,
    /// Clients make themselves ready.
    Readying,
    /// All of the thread's clients are ready; those of other threads may not be.
    Ready,
    /// Its beginning is known.
    Begun,
}

/// Why traffic ends before its time.
#[derive(Clone, Copy, Debug)]
pub struct Breakage {
    /// The name that it is counted under.
    pub name: &'static str,
    /// What happened.
    pub detail: &'static str,
}

/// See the file's head.
#[derive(Default)]
pub struct InnerTraffic {
    traffic: Option<Box<dyn Traffic>>,
    /// What the traffic has come to.
    figures: Option<Box<Figures>>,
    /// The machine's word that the traffic cannot go on, until the worker has ended it.
    pub breakage: Option<Breakage>,
    /// Whether it was broken off before its time.
    is_broken: bool,
}

impl InnerTraffic {
    /// Carry load from now on.
    pub fn carry(&mut self, traffic: Box<dyn Traffic>) {
        self.traffic = Some(traffic);
    }

    /// Whether there is load that goes on.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.traffic.is_some()
    }

    /// Whether its load may begin, or there is none.
    pub fn is_ready(&self) -> bool {
        self.traffic.as_ref().is_none_or(|traffic| traffic.is_ready())
    }

    /// The fleet's load begins then, ns.
    pub fn start(&mut self, start_ns: u64) {
        if let Some(traffic) = &mut self.traffic {
            traffic.start(start_ns);
        }
    }

    /// When it has something to do, ns.
    #[inline]
    pub fn deadline_ns(&self) -> Option<u64> {
        let due_ns = self.traffic.as_ref()?.deadline_ns();
        (due_ns != u64::MAX).then_some(due_ns)
    }

    /// Let it send what is due; returns whether it has ended.
    pub fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) -> bool {
        let Some(traffic) = &mut self.traffic else { return false };
        traffic.poll(now_ns, channel);
        let is_done = traffic.is_done();
        if is_done {
            self.end(now_ns, channel);
        }
        is_done
    }

    /// Take a packet that came out of the tunnel.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, packet: &[u8], channel: &mut Channel<'_>) {
        if let Some(traffic) = &mut self.traffic {
            traffic.payload(now_ns, packet, channel);
        }
    }

    /// This many of its packets were refused by the socket after all.
    pub fn not_sent(&mut self, packets: u64, counters: Option<&FlowCounters>) {
        if let (Some(traffic), Some(counters)) = (&mut self.traffic, counters) {
            traffic.not_sent(packets, counters);
        }
    }

    /// End it, done or not.
    pub fn end(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        if let Some(mut traffic) = self.traffic.take() {
            self.figures = Some(Box::new(traffic.finish(now_ns, channel)));
        }
    }

    /// The traffic cannot go on; the worker ends it.
    pub fn break_off(&mut self, breakage: Breakage) {
        if self.is_running() {
            (self.breakage, self.is_broken) = (Some(breakage), true);
        }
    }

    /// What it has come to, once. A flow whose tunnel broke lasts until `over_ns`, as the others do: it carries nothing from then on,
    /// which is less for all of them together, and no shorter time.
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

    /// Its counts by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.figures.iter().flat_map(|figures| figures.counts.named())
    }
}
