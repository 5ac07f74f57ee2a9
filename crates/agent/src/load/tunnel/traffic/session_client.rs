//! One client in its session: the leader if the client leads the session, its TCP stack if it needs one, and the
//! packets of both through its tunnel. Owns no payload flow.

use std::collections::BTreeMap;

use leadline_transport::SideReport;
use leadline_tunnel::inside::tcp::Stack;
use leadline_tunnel::timer::earlier;
use leadline_wire::{DatagramReport, Direction, FlowReport, TrafficCounts};

use super::interface::{Channel, ClientContext, Figures};
use super::schedule::{row, Latency};
use super::session::leader::Leader;
use super::session::{Participant, SessionOutcome, SESSION_POLL_NS};

/// One client in its session.
pub struct SessionClient {
    /// The client's number.
    pub client: u32,
    /// Its membership in the session.
    pub participant: Participant,
    /// Its TCP stack, if it leads the session or its flows are streams.
    pub stack: Option<Box<Stack>>,
    leader: Option<Leader>,
    /// The reason why it has no flows, if it was left out.
    pub left_out: Option<&'static str>,
    /// Failed operations by name.
    pub errors: BTreeMap<&'static str, u64>,
}

impl SessionClient {
    /// Returns a client with a stack: always, or only if the client leads.
    pub fn new(participant: Participant, context: &ClientContext, seed: u64, needs_stack: bool) -> Self {
        let leader = participant.leads().then(|| Leader::new(participant.group()));
        let stack = (needs_stack || leader.is_some()).then(|| {
            // The seeds of neighbouring clients must differ in every bit: SplitMix64's increment.
            let own_seed = seed ^ u64::from(context.client).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Box::new(Stack::new(context.ipv4, context.ipv6, context.mtu, own_seed, 0))
        });
        Self { client: context.client, participant, stack, leader, left_out: None, errors: BTreeMap::new() }
    }

    /// Runs the leader, if this client leads the session, and sends the stack's packets.
    pub fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        let Some(stack) = &mut self.stack else { return };
        if let Some(leader) = &mut self.leader {
            leader.poll(now_ns, stack);
        }
        stack.poll(now_ns, channel.send);
    }

    /// When it must be called, ns, apart from the deadlines of its flows; `None` if only packets call for it.
    pub fn deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        let stack_ns = self.stack.as_mut().and_then(|stack| stack.deadline_ns(now_ns));
        let leader_ns = self.leader.as_ref().and_then(Leader::deadline_ns);
        // Participants poll the state of the session now and then, but not while their flows run.
        let session_poll_ns = self.participant.outcome().is_none().then(|| {
            let poll_ns = now_ns + SESSION_POLL_NS;
            self.participant.end_ns().map_or(poll_ns, |end_ns| end_ns.max(poll_ns))
        });
        earlier(session_poll_ns, earlier(stack_ns, leader_ns))
    }

    /// Whether the session has ended for this client.
    pub fn is_over(&self) -> bool {
        self.participant.outcome().is_some() || self.left_out.is_some() && !self.participant.leads()
    }

    /// Returns the figures, from this side's view of each flow. Each figure is taken from the side that knows it.
    pub fn figures(&mut self, views: Vec<View>) -> Figures {
        self.participant.leave();
        let mut examples = BTreeMap::new();
        let mut counts = TrafficCounts { unsent: Some(0), ..TrafficCounts::default() };
        if let Some(name) = self.left_out {
            *self.errors.entry(name).or_default() += 1;
        }
        match self.participant.outcome() {
            Some(SessionOutcome::Lost { name, message }) => {
                *self.errors.entry(name).or_default() += 1;
                examples.insert(*name, message.clone());
            }
            // A server's own failure names are text; these are the static names.
            Some(SessionOutcome::Reported { errors, .. }) if self.participant.leads() && !errors.is_empty() => {
                *self.errors.entry("server_errors").or_default() += errors.values().sum::<u64>();
                let names: Vec<String> = errors.iter().map(|(name, count)| format!("{name}: {count}")).collect();
                examples.insert("server_errors", names.join(", "));
            }
            _ => {}
        }
        let flows = views
            .iter()
            .map(|view| {
                let peer_row = self.participant.row_of(view.local.flow.into());
                for side in std::iter::once(&view.local).chain(peer_row) {
                    counts.add(&TrafficCounts {
                        unsent: Some(side.unsent_units.unwrap_or(0)),
                        stale: Some(side.stale.unwrap_or(0)),
                        strays: Some(side.strays.unwrap_or(0)),
                        ..TrafficCounts::default()
                    });
                }
                self.flow(view, peer_row)
            })
            .collect();
        Figures { flows, counts, errors: std::mem::take(&mut self.errors), examples }
    }

    fn flow(&self, view: &View, peer_row: Option<&SideReport>) -> FlowReport {
        let local_row = &view.local;
        let (sender, receiver) = match view.direction {
            Direction::Down => (peer_row, Some(local_row)),
            Direction::Up | Direction::Both => (Some(local_row), peer_row),
        };
        let sent_units = sender.and_then(|side| side.sent_units);
        let received_units = receiver.and_then(|side| side.received_units);
        FlowReport {
            // If the sender did not report its times, those of the received data are used.
            start_ns: sender.map_or(local_row.start_ns, |side| side.start_ns),
            end_ns: sender.map_or(local_row.end_ns, |side| side.end_ns),
            sent_bytes: sender.map(|side| side.sent_bytes),
            received_bytes: receiver.map(|side| side.received_bytes),
            sent_units,
            received_units,
            lost: sent_units.zip(received_units).map(|(sent, received)| sent.saturating_sub(received)),
            duplicates: receiver.and_then(|side| side.duplicates),
            reordered: receiver.and_then(|side| side.reordered),
            jitter_us: receiver.and_then(|side| side.jitter_us),
            latency_mean_us: view.latency.mean_us(),
            latency_max_us: view.latency.longest_us(),
            retransmits: sender.and_then(|side| side.retransmits),
            rtt_mean_us: sender.and_then(|side| side.rtt_mean_us),
            congestion: view.congestion.map(str::to_owned),
            peer_congestion: None,
            local: view.ends.map(|(local_row, _)| local_row.to_string()),
            remote: view.ends.map(|(_, peer_row)| peer_row.to_string()),
            datagrams: cut_off_report(receiver.and_then(|side| side.datagrams.as_ref()?.is_cut_off) == Some(true)),
            ..row(self.client, view.direction, view.due_ns)
        }
    }
}

/// Of its datagrams a fleet's flow reports only that the receiver was cut off, if it was.
pub fn cut_off_report(is_cut_off: bool) -> Option<Box<DatagramReport>> {
    is_cut_off.then(|| Box::new(DatagramReport { is_cut_off: Some(true), ..DatagramReport::default() }))
}

/// This side's view of one flow.
pub struct View {
    /// The direction.
    pub direction: Direction,
    /// When the flow was due to begin, ns.
    pub due_ns: u64,
    /// The counts of this side, under the flow's number in the session.
    pub local: SideReport,
    /// The latencies of received data that carries its due time.
    pub latency: Latency,
    /// The addresses of this end and the far end.
    pub ends: Option<(std::net::SocketAddr, std::net::SocketAddr)>,
    /// TCP's congestion control on this side.
    pub congestion: Option<&'static str>,
}
