//! Numbered datagrams to a `leadline serve` behind the gateway, or from it, with the same header and session protocol
//! as outside a tunnel.

use std::net::{IpAddr, SocketAddr};

use leadline_pace::Pace;
use leadline_transport::{
    DatagramFormat, DatagramReceiver, Header, HeaderKind, SharedKey, SideReport, Work, HEADER_BYTES,
};
use leadline_tunnel::inside::tcp::{Buffers, Connection};
use leadline_tunnel::inside::udp::datagram;
use leadline_tunnel::inside::{Packet, Udp};
use leadline_tunnel::timer::earlier;
use leadline_wire::{unless_zero, Direction, ErrorReport};

use super::interface::{count, Channel, ClientContext, Figures, PeerProgress, Traffic, TrafficPlan};
use super::schedule::{Latency, Schedule, BATCH, OVERTIME_NS, REMEMBERED_S, RETRY_NS};
use super::session::{FlowAssignment, SessionSpec, Sessions};
use super::session_client::{cut_off_report, SessionClient, View};
use crate::events::input_error;
use crate::flows::drain::ReceiverProgress;
use crate::load::tunnel::metric::Metric;
use crate::metering::FlowCounters;

/// The interval between two introductions of a flow, ns.
const HELLO_NS: u64 = 100_000_000;
/// The first port of a client; each round of introductions uses two others.
const FIRST_PORT: u16 = 20_000;
/// The number of ports, after which the first one is used again.
const PORTS: u32 = 20_000;
/// The IPv4 and UDP headers: the minimum that a datagram needs in addition to its payload.
const LEAST_OVERHEAD_BYTES: u32 = 28;
/// The connection that proves a client's address carries one header, and receives nothing.
const ADDRESS_BUFFERS: Buffers = Buffers { receive_bytes: 256, send_bytes: 256 };

/// The UDP traffic of all clients.
pub struct UdpPlan {
    sessions: Sessions,
    pace: Option<Pace>,
    datagram_bytes: usize,
    remembered: Option<u64>,
    duration_ns: u64,
    seed: u64,
}

impl UdpPlan {
    /// Checks the specification.
    pub fn new(
        server: SocketAddr,
        direction: Direction,
        rate_pps: Option<f64>,
        datagram_bytes: u32,
        duration_ms: u64,
        key: Option<SharedKey>,
        seed: u64,
    ) -> Result<Self, ErrorReport> {
        let refused = |rate| input_error("bad_rate", format!("udp: {rate} datagrams/s is no rate"));
        let pace = rate_pps.map(|rate| Pace::per_second(rate).ok_or_else(|| refused(rate))).transpose()?;
        let (least, most) = (HEADER_BYTES as u32, u32::from(u16::MAX) - LEAST_OVERHEAD_BYTES);
        if !(least..=most).contains(&datagram_bytes) {
            let message =
                format!("udp: a datagram of {datagram_bytes} bytes: {least} to {most} carry the measuring header");
            return Err(input_error("bad_size", message));
        }
        let work = Work::Udp { datagram_bytes, rate_pps, number: None };
        let sessions = Sessions::new(SessionSpec { server, work, direction, duration_ms, key });
        let duration_ns = duration_ms.saturating_mul(1_000_000);
        // Thousands of clients at a rate have no memory for the window that full speed needs.
        let remembered = rate_pps.map(|rate| (rate * REMEMBERED_S).ceil() as u64);
        Ok(Self { sessions, pace, datagram_bytes: datagram_bytes as usize, remembered, duration_ns, seed })
    }
}

impl TrafficPlan for UdpPlan {
    fn client(&self, context: &ClientContext) -> Result<Box<dyn Traffic>, &'static str> {
        let server = self.sessions.spec().server;
        let local_address = if server.is_ipv4() { context.ipv4.map(IpAddr::V4) } else { context.ipv6.map(IpAddr::V6) };
        let local_address = local_address.ok_or("no_address")?;
        let flow = Udp::new(SocketAddr::new(local_address, FIRST_PORT), server).ok_or("no_address")?;
        if self.datagram_bytes + flow.overhead_bytes() > usize::from(context.mtu) {
            return Err("packet_too_big");
        }
        // A session is requested, and addresses are proven, over TCP.
        context.carries_tcp()?;
        let participant = self.sessions.join(context.client);
        Ok(Box::new(UdpTraffic {
            session: SessionClient::new(participant, context, self.seed, true),
            local_address,
            server,
            pace: self.pace,
            schedule: self.pace.map(|pace| Schedule::new(pace, context, self.duration_ns)),
            datagram_bytes: self.datagram_bytes,
            remembered: self.remembered,
            duration_ns: self.duration_ns,
            // The server may still know ports of an earlier load.
            port_seed: self.seed as u32,
            address: None,
            up: None,
            down: None,
            hello_ns: None,
            packet: Vec::new(),
            deadline_ns: Some(0),
        }))
    }

    fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    fn times_packets(&self) -> bool {
        true
    }

    fn take_peer_progress(&self) -> PeerProgress {
        self.sessions.take_peer_progress()
    }
}

struct UdpTraffic {
    session: SessionClient,
    local_address: IpAddr,
    server: SocketAddr,
    /// The server's rate: it sends to each client in turn.
    pace: Option<Pace>,
    /// When this client's datagrams are due; as fast as possible if absent.
    schedule: Option<Schedule>,
    datagram_bytes: usize,
    /// How many numbers late a datagram may be; the receiver's default if absent.
    remembered: Option<u64>,
    duration_ns: u64,
    port_seed: u32,
    /// The connection that proves this client's address, and the bytes that it has yet to write.
    address: Option<(Connection, Vec<u8>)>,
    up: Option<Up>,
    down: Option<Down>,
    /// When flows are introduced next, ns; without effect once the server knows them. `None`: at the next `poll`.
    hello_ns: Option<u64>,
    packet: Vec<u8>,
    /// The next introduction, send, or look at the session; `None` once it is done.
    deadline_ns: Option<u64>,
}

/// A flow's direction and identity.
#[derive(Clone, Copy)]
struct Flow {
    udp: Udp,
    token: u64,
    id: u32,
    /// The nonce of the server's last challenge; 0 before one.
    nonce: u64,
    /// Whether the server has answered its introduction.
    is_known: bool,
}

struct Up {
    flow: Flow,
    /// The number of the next datagram, and how many earlier ones the socket refused.
    next: u64,
    refused: u64,
    /// When the first and the last datagram were sent, ns; both or neither are set.
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    unsent: u64,
    /// When the flow stopped trying, ns; not before `last_ns`.
    ended_ns: Option<u64>,
}

struct Down {
    flow: Flow,
    /// When its datagrams are due, after the session's beginning; the server follows the same schedule.
    schedule: Option<Schedule>,
    latency: Latency,
    /// Datagrams that arrived before they were due by this host's clock, which differs from the server's by a part of
    /// a round trip.
    early: u64,
    receiver: DatagramReceiver,
    /// When the server's count was received.
    count_received_ns: Option<u64>,
    has_ended: bool,
    /// Whether it ended while datagrams still arrived.
    is_cut_off: bool,
}

impl Up {
    /// Datagrams that were sent.
    fn sent(&self) -> u64 {
        self.next - self.refused
    }
}

impl Flow {
    /// Handles the response to an introduction; returns whether it asks for another introduction at once.
    fn is_challenged(&mut self, payload: &[u8]) -> bool {
        match Header::parse(payload) {
            Ok(header) if (header.token, header.flow) != (self.token, self.id) || self.is_known => false,
            Ok(Header { kind: HeaderKind::HelloAck, .. }) => {
                self.is_known = true;
                false
            }
            Ok(Header { kind: HeaderKind::Challenge, sequence, .. }) => {
                // An equal nonce answers an introduction that was sent before.
                std::mem::replace(&mut self.nonce, sequence) != sequence
            }
            _ => false,
        }
    }
}

impl UdpTraffic {
    /// Begins a new round: flows start again.
    fn begin_round(&mut self, assignment: FlowAssignment, now_ns: u64) {
        self.show_address(assignment.token, now_ns);
        let flow = |which: u32, id: Option<u32>| {
            let port = FIRST_PORT + (self.port_seed.wrapping_add(2 * assignment.round + which) % PORTS) as u16;
            let udp = Udp::new(SocketAddr::new(self.local_address, port), self.server)?;
            Some(Flow { udp, token: assignment.token, id: id?, nonce: 0, is_known: false })
        };
        self.up = flow(0, assignment.up).map(|flow| Up {
            flow,
            next: 0,
            refused: 0,
            first_ns: None,
            last_ns: None,
            unsent: 0,
            ended_ns: None,
        });
        self.down = flow(1, assignment.down).map(|flow| Down {
            receiver: self.receiver(assignment.token, flow.id),
            flow,
            schedule: self.pace.map(|pace| {
                Schedule::beginning_at(
                    pace.turn_ns(assignment.position, assignment.participants),
                    pace,
                    self.duration_ns,
                )
            }),
            latency: Latency::default(),
            early: 0,
            count_received_ns: None,
            has_ended: false,
            is_cut_off: false,
        });
        self.hello_ns = None;
    }

    fn receiver(&self, token: u64, flow: u32) -> DatagramReceiver {
        let receiver = DatagramReceiver::new(DatagramFormat::Session(token), flow, self.datagram_bytes);
        match self.remembered {
            Some(numbers) => receiver.remembering(numbers),
            None => receiver,
        }
    }

    fn is_introduced(&self) -> bool {
        self.up.iter().map(|up| &up.flow).chain(self.down.iter().map(|down| &down.flow)).all(|flow| flow.is_known)
    }

    /// Opens the connection that proves this client's address. The server answers datagrams only at addresses from
    /// which a TCP connection has named the session: the leader's control connection is one, and other clients open
    /// one for this purpose.
    fn show_address(&mut self, token: u64, now_ns: u64) {
        self.hide_address();
        let Some(stack) = self.session.stack.as_mut().filter(|_| !self.session.participant.leads()) else { return };
        let mut preface = vec![0; HEADER_BYTES];
        Header { kind: HeaderKind::Address, token, flow: 0, sequence: 0, sent_ns: now_ns }.write(&mut preface);
        match stack.connect(now_ns, self.server, ADDRESS_BUFFERS) {
            Ok(connection) => self.address = Some((connection, preface)),
            Err(error) => count(&mut self.session.errors, error.name()),
        }
    }

    /// Closes that connection: the server has seen it, or will not.
    fn hide_address(&mut self) {
        if let (Some((connection, _)), Some(stack)) = (self.address.take(), &mut self.session.stack) {
            stack.abort(connection);
            stack.release(connection);
        }
    }

    /// Introduces the flows that the server does not know.
    fn introduce(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        if let (Some((connection, preface)), Some(stack)) = (&mut self.address, &mut self.session.stack) {
            if !preface.is_empty() && stack.is_writable(*connection) {
                let written = stack.write(*connection, preface);
                preface.drain(..written);
                // The server did not answer earlier datagrams.
                self.hello_ns = None;
            }
        }
        if self.hello_ns.is_some_and(|hello_ns| now_ns < hello_ns) {
            return;
        }
        self.hello_ns = Some(now_ns + HELLO_NS);
        for flow in [self.up.as_ref().map(|up| up.flow), self.down.as_ref().map(|down| down.flow)].into_iter().flatten()
        {
            if !flow.is_known {
                let mut hello = [0; HEADER_BYTES];
                let (token, id) = (flow.token, flow.id);
                Header { kind: HeaderKind::Hello, token, flow: id, sequence: flow.nonce, sent_ns: now_ns }
                    .write(&mut hello);
                self.packet.clear();
                flow.udp.build(&hello, HEADER_BYTES, &mut self.packet);
                // A refused introduction counts like a lost one.
                let _ = (channel.send)(&self.packet);
            }
        }
    }

    /// Sends what is due; returns when to call again, ns, unless the flow is over.
    fn send_due(&mut self, begin_ns: u64, now_ns: u64, channel: &mut Channel<'_>) -> Option<u64> {
        let end_ns = begin_ns.saturating_add(self.duration_ns);
        let up = self.up.as_mut().filter(|up| up.ended_ns.is_none())?;
        // Without a rate, until the end, as many as the socket takes.
        let due = match self.schedule {
            Some(schedule) => Some(schedule.due_count(now_ns.saturating_sub(begin_ns))),
            None => (now_ns >= end_ns).then_some(up.next),
        };
        let mut refused = false;
        for _ in 0..due.map_or(BATCH, |due| BATCH.min(due.saturating_sub(up.next))) {
            let mut head = [0; HEADER_BYTES];
            let (token, flow) = (up.flow.token, up.flow.id);
            Header { kind: HeaderKind::Data, token, flow, sequence: up.next, sent_ns: now_ns }.write(&mut head);
            self.packet.clear();
            up.flow.udp.build(&head, self.datagram_bytes, &mut self.packet);
            refused = !(channel.send)(&self.packet);
            if refused {
                break;
            }
            if let Some(schedule) = self.schedule {
                let due_ns = begin_ns.saturating_add(schedule.due_ns(up.next));
                channel.record(Metric::TrafficLate, due_ns, now_ns.saturating_sub(due_ns));
            }
            channel.counters.sent(self.datagram_bytes as u64, 1);
            up.first_ns.get_or_insert(now_ns);
            up.last_ns = Some(now_ns);
            up.next += 1;
        }
        self.session.participant.sent(up.sent());
        let is_through = now_ns >= end_ns && due.is_some_and(|due| up.next >= due);
        if is_through || now_ns >= end_ns.saturating_add(OVERTIME_NS) {
            up.unsent = due.map_or(0, |due| due.saturating_sub(up.next));
            let ended_ns = now_ns.min(end_ns);
            up.ended_ns = Some(up.last_ns.map_or(ended_ns, |last_ns| last_ns.max(ended_ns)));
            self.session.participant.ended();
            return None;
        }
        Some(match self.schedule {
            _ if refused => now_ns + RETRY_NS,
            Some(schedule) if up.next >= schedule.total() => end_ns,
            Some(schedule) => begin_ns.saturating_add(schedule.due_ns(up.next)).max(now_ns),
            None => now_ns,
        })
    }

    /// Ends the downward flow once all datagrams have arrived, or the missing ones are lost; returns when to check
    /// again, ns, unless it has ended.
    fn end_down(&mut self, begin_ns: u64, now_ns: u64) -> Option<u64> {
        let down = self.down.as_mut().filter(|down| !down.has_ended)?;
        let expected = self.session.participant.expected();
        if expected.is_some() {
            down.count_received_ns.get_or_insert(now_ns);
        }
        let progress = ReceiverProgress {
            expected,
            count_received_ns: down.count_received_ns,
            received: down.receiver.tracker().received(),
            last_read_ns: down.receiver.span_ns().map(|(_, last)| last),
        };
        let end = progress.find_end(begin_ns.saturating_add(self.duration_ns));
        down.has_ended = now_ns >= end.at_ns;
        down.is_cut_off = down.has_ended && end.is_cut_off;
        (!down.has_ended).then_some(end.at_ns)
    }

    /// Takes a datagram for a flow of this client.
    fn take(&mut self, now_ns: u64, from: Udp, payload: &[u8], channel: &mut Channel<'_>) {
        if let Some(up) = self.up.as_mut().filter(|up| up.flow.udp.reversed() == from) {
            if up.flow.is_challenged(payload) {
                self.hello_ns = None;
            }
        } else if let Some(down) = self.down.as_mut().filter(|down| down.flow.udp.reversed() == from) {
            if !down.receiver.handle(now_ns, payload) {
                if down.flow.is_challenged(payload) {
                    self.hello_ns = None;
                }
                return;
            }
            channel.counters.received(payload.len() as u64, 1);
            // Both ends begin at one instant, as precisely as their clocks could be compared: within half of the
            // shortest of the session's sixteen round trips.
            if let (Some(schedule), Some(begin_ns), Ok(header)) =
                (down.schedule, self.session.participant.begin_ns(), Header::parse(payload))
            {
                if header.sequence < schedule.total() {
                    let due_ns = begin_ns.saturating_add(schedule.due_ns(header.sequence));
                    // A datagram that arrived before it was due took no measurable time.
                    let latency_ns = now_ns.saturating_sub(due_ns);
                    down.early += u64::from(now_ns < due_ns);
                    down.latency.record(latency_ns);
                    channel.record(Metric::Latency, due_ns, latency_ns);
                }
            }
        }
    }
}

impl Traffic for UdpTraffic {
    fn is_ready(&self) -> bool {
        self.session.left_out.is_some() || self.session.participant.is_ready()
    }

    fn start(&mut self, start_ns: u64) {
        self.session.participant.start(start_ns);
        self.deadline_ns = Some(0);
    }

    fn poll(&mut self, now_ns: u64, channel: &mut Channel<'_>) {
        match self.session.participant.poll_assignment() {
            Some(Some(assignment)) => self.begin_round(assignment, now_ns),
            Some(None) => {
                self.session.left_out = Some("udp_unanswered");
                (self.up, self.down) = (None, None);
            }
            None => {}
        }
        let mut next_ns = None;
        if self.up.is_some() || self.down.is_some() {
            if self.is_introduced() {
                self.hide_address();
                self.session.participant.introduced();
            } else {
                self.introduce(now_ns, channel);
                next_ns = self.hello_ns;
            }
            if let Some(begin_ns) = self.session.participant.begin_ns() {
                if self.up.is_none() {
                    self.session.participant.ended();
                }
                if now_ns >= begin_ns {
                    next_ns = earlier(next_ns, self.send_due(begin_ns, now_ns, channel));
                    next_ns = earlier(next_ns, self.end_down(begin_ns, now_ns));
                } else {
                    next_ns = earlier(next_ns, Some(begin_ns));
                }
            }
        }
        self.session.poll(now_ns, channel);
        self.deadline_ns = if self.is_done() { None } else { earlier(next_ns, self.session.deadline_ns(now_ns)) };
    }

    fn payload(&mut self, now_ns: u64, bytes: &[u8], channel: &mut Channel<'_>) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        if let Some((from, payload)) = datagram(&packet) {
            return self.take(now_ns, from, payload, channel);
        }
        if self.session.stack.as_mut().is_some_and(|stack| stack.handle(now_ns, bytes)) {
            return;
        }
        let flows = [self.up.as_ref().map(|up| up.flow.udp), self.down.as_ref().map(|down| down.flow.udp)];
        if let Some(name) = flows.into_iter().flatten().find_map(|udp| udp.refusal(bytes)) {
            count(&mut self.session.errors, name);
        }
    }

    fn not_sent(&mut self, packets: u64, counters: &FlowCounters) {
        let Some(up) = &mut self.up else { return };
        let packets = packets.min(up.sent());
        up.refused += packets;
        counters.not_sent(packets * self.datagram_bytes as u64, packets);
        self.session.participant.sent(up.sent());
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn is_done(&self) -> bool {
        let is_lost = matches!(self.session.participant.outcome(), Some(super::session::SessionOutcome::Lost { .. }));
        let up_ended = self.up.as_ref().is_none_or(|up| up.ended_ns.is_some());
        let down_ended = self.down.as_ref().is_none_or(|down| down.has_ended);
        is_lost || self.session.is_over() && up_ended && down_ended
    }

    fn finish(&mut self, now_ns: u64, _channel: &mut Channel<'_>) -> Figures {
        let begin_ns = self.session.participant.begin_ns();
        let due_ns = begin_ns.unwrap_or(now_ns);
        let mut views = Vec::new();
        if let Some(up) = &self.up {
            let due = self.schedule.map_or(0, |schedule| schedule.due_count(now_ns.saturating_sub(due_ns)));
            let unsent = if up.ended_ns.is_some() { up.unsent } else { due.saturating_sub(up.next) };
            let local = SideReport {
                flow: up.flow.id,
                start_ns: up.first_ns,
                end_ns: up.first_ns.map(|_| up.ended_ns.unwrap_or(now_ns)),
                sent_bytes: up.sent() * self.datagram_bytes as u64,
                sent_units: Some(up.sent()),
                unsent_units: Some(unsent + up.refused),
                ..SideReport::default()
            };
            let ends = Some((up.flow.udp.source(), up.flow.udp.destination()));
            let latency = Latency::default();
            views.push(View { direction: Direction::Up, due_ns, local, latency, ends, congestion: None });
        }
        if let Some(down) = &self.down {
            let tracker = down.receiver.tracker();
            let span_ns = down.receiver.span_ns();
            // If the server does not report the end, the flow lasted as long as it was received; a stall at its end
            // is part of it.
            let listened_ns = now_ns.min(due_ns.saturating_add(self.duration_ns));
            let local = SideReport {
                flow: down.flow.id,
                start_ns: span_ns.map(|(first, _)| first),
                end_ns: span_ns.map(|(_, last)| last.max(listened_ns)),
                received_bytes: down.receiver.bytes(),
                received_units: Some(tracker.received()),
                duplicates: Some(tracker.duplicates()),
                reordered: Some(tracker.reordered()),
                stale: Some(tracker.stale()),
                strays: Some(down.receiver.strays()),
                jitter_us: down.receiver.jitter_us(),
                datagrams: cut_off_report(down.is_cut_off),
                ..SideReport::default()
            };
            let ends = Some((down.flow.udp.source(), down.flow.udp.destination()));
            views.push(View {
                direction: Direction::Down,
                due_ns,
                local,
                latency: down.latency,
                ends,
                congestion: None,
            });
        }
        let early = self.down.as_ref().map_or(0, |down| down.early);
        let mut figures = self.session.figures(views);
        figures.counts.latency_clamped = unless_zero(early);
        figures
    }
}
