//! Paced datagrams: senders follow the schedule in batches of due datagrams, and receivers count every number.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_stats::Histogram;
use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::net::receive_drops;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::segments;
use leadline_transport::{
    DatagramFormat, DatagramReceiver, DatagramSizes, Header, HeaderKind, SideReport, HEADER_BYTES,
};
use leadline_wire::DatagramReport;

use super::datagram_io::{fewer_segments, most_together, receive_buffer_bytes, Incoming, Outgoing, MOST_SEGMENTS};
use super::datagram_schedule::DatagramSchedule;
use super::drain::ReceiverProgress;
use super::payload::Payload;
use super::punctual::PunctualWait;
use super::receive_coalescing::ReceiveCoalescing;
use super::{count_error, Role, Span, WorkerReport, TURN_NS};
use crate::atomic_option::AtomicOption;
use crate::control_signal::ControlSignal;
use crate::events::error_code;
use crate::metering::{FlowCounters, Recorder, ThreadMeter};

/// One flow of a worker, with its own connected socket.
pub struct DatagramFlow {
    /// Its number within the session.
    pub id: u32,
    /// Connected to the peer's socket for this flow.
    pub socket: UdpSocket,
    /// The direction of its payload.
    pub role: Role,
    /// Counters that the reporter reads.
    pub counters: Arc<FlowCounters>,
    /// How much later than the span it begins, ns: less than the time between two datagrams.
    pub offset_ns: u64,
    /// How many datagrams the sender sent, once it has ended. A receiver ends as soon as all have arrived.
    pub expected: Arc<AtomicOption>,
}

/// The parameters that all flows of a worker share.
#[derive(Clone, Debug)]
pub struct DatagramWork {
    /// How datagrams are numbered and stamped.
    pub format: DatagramFormat,
    /// UDP payloads.
    pub sizes: DatagramSizes,
    /// Datagrams per second and flow; as fast as the socket accepts them if absent.
    pub pace: Option<Pace>,
    /// Datagrams that are due together, if there is a pace.
    pub burst: u32,
    /// Datagrams per flow.
    pub number: Option<u64>,
    /// What is behind the header.
    pub payload: Payload,
    /// Whether datagrams pass the kernel in batches, as far as it can (UDP_SEGMENT, UDP_GRO).
    pub gso: bool,
}

/// The highest differentiated services code point (RFC 2474: 6 bits).
pub const MOST_DSCP: u8 = 63;

/// The recorder's only metric: from due to sent.
pub const LATE: usize = 0;

/// Receive calls per ready socket and turn, so that a flood on one flow delays neither the others nor the timers.
const CALLS_PER_TURN: usize = 16;

/// The least receive buffer, bytes, of sockets whose datagrams may wait for each other: a tenth of a millisecond of
/// 100 Gbit/s, and as much again while a read is late.
const COALESCED_BUFFER_BYTES: usize = 4 << 20;

/// Batches per unpaced flow and turn, so that one flow delays neither the others nor the end of the span by more than a
/// fraction of a millisecond.
const BATCHES_PER_TURN: usize = 8;

/// Returns the header of a session's datagrams: the short one if the smallest of them has no room for the other.
pub fn format_for(sizes: &DatagramSizes, token: u64) -> DatagramFormat {
    if sizes.smallest() < HEADER_BYTES {
        DatagramFormat::Short(token)
    } else {
        DatagramFormat::Session(token)
    }
}

/// Sends and receives until every flow has ended.
pub fn drive(
    flows: Vec<DatagramFlow>,
    work: DatagramWork,
    span: Span,
    signal: &ControlSignal,
    thread: &str,
    mut recorder: Option<Recorder>,
) -> io::Result<WorkerReport> {
    let mut worker = Worker::new(flows, work, span)?;
    minimize_timer_slack();
    worker.wait_for_start(signal)?;
    let mut meter = ThreadMeter::begin(thread, monotonic_ns());
    while worker.open > 0 {
        // The silence that a receiver waits for after its last datagram does not count.
        if worker.run_once(signal, recorder.as_mut())? {
            meter.go_on();
        } else {
            meter.rest(monotonic_ns());
        }
    }
    let mut thread = meter.end(monotonic_ns());
    thread.spun_s = worker.wait.spun_s();
    if let Some(recorder) = recorder {
        recorder.finish();
    }
    Ok(WorkerReport {
        thread,
        flows: worker.flows.iter().map(Conversation::report).collect(),
        pushback: worker.pushback,
        errors: worker.errors,
        late: worker.late,
    })
}

struct Worker {
    flows: Vec<Conversation>,
    poll: Poll,
    wait: PunctualWait,
    /// Filled again by each wait.
    ready: Vec<Ready>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Lets datagrams wait for each other; `None` for a worker that sends, or whose sockets hold too little.
    coalescing: Option<ReceiveCoalescing>,
    work: DatagramWork,
    span: Span,
    /// Whether any flow sends: then no turn counts as silence.
    sends: bool,
    /// When senders end at the latest, ns: with the span, or with a stop. Receivers go on while something arrives.
    over_ns: u64,
    open: usize,
    pushback: u64,
    errors: BTreeMap<String, u64>,
    /// From due to sent, if sends are paced.
    late: Option<Histogram>,
}

impl Worker {
    fn new(flows: Vec<DatagramFlow>, work: DatagramWork, span: Span) -> io::Result<Self> {
        let poll = Poll::new(flows.len().min(256))?;
        for (index, flow) in flows.iter().enumerate() {
            flow.socket.set_nonblocking(true)?;
            if flow.role == Role::Receive {
                Incoming::prepare(&flow.socket, work.gso);
            }
            poll.add(&flow.socket, index as u64, Interest::Read)?;
        }
        let sends = flows.iter().any(|flow| flow.role == Role::Send);
        let receives = flows.iter().any(|flow| flow.role == Role::Receive);
        let may_wait = !sends && flows.iter().all(|flow| receive_buffer_bytes(&flow.socket) >= COALESCED_BUFFER_BYTES);
        let most = if sends { most_together(&work.sizes, work.gso) } else { 1 };
        let outgoing = Outgoing::new(most, work.sizes.clone(), work.format, work.payload);
        Ok(Self {
            open: flows.len(),
            flows: flows.into_iter().map(|flow| Conversation::new(flow, &work, span)).collect(),
            poll,
            wait: PunctualWait::new(sends && work.pace.is_some()),
            ready: Vec::new(),
            outgoing,
            incoming: Incoming::new(&work.sizes, work.gso && receives),
            coalescing: may_wait.then(ReceiveCoalescing::default),
            span,
            sends,
            over_ns: span.end_ns,
            pushback: 0,
            errors: BTreeMap::new(),
            late: (sends && work.pace.is_some()).then(Histogram::new),
            work,
        })
    }

    /// Until the start, `Hello`s are still answered: the response to an earlier one may have been lost.
    fn wait_for_start(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let mut now = monotonic_ns();
        while now < self.span.at_ns && !signal.stopped() {
            self.receive(Some(self.span.at_ns.min(now + TURN_NS)))?;
            now = monotonic_ns();
        }
        Ok(())
    }

    /// Sends and receives once; returns whether any datagram was sent or received.
    fn run_once(&mut self, signal: &ControlSignal, mut recorder: Option<&mut Recorder>) -> io::Result<bool> {
        let now = monotonic_ns();
        let stopped = signal.stopped();
        if stopped {
            self.over_ns = self.over_ns.min(now);
        }
        if let Some(recorder) = recorder.as_deref_mut() {
            recorder.roll(now);
        }
        let turn_ns = now + TURN_NS;
        let next = self.send_due(now, stopped, recorder).map_or(turn_ns, |due_ns| due_ns.min(turn_ns));
        if self.open == 0 {
            return Ok(self.sends);
        }
        if let Some(again_ns) = self.coalescing.as_ref().and_then(ReceiveCoalescing::next_ns) {
            // Asleep, not polling: a sender on this host would pay for each wake-up.
            sleep_until(again_ns.min(next));
        }
        let wake_ns = self.wait.wake_ns(next);
        let before_ns = monotonic_ns();
        let has_arrived = self.receive(Some(wake_ns))?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.looked(monotonic_ns(), has_arrived);
        }
        if before_ns < wake_ns && self.ready.is_empty() {
            self.wait.woke(wake_ns, monotonic_ns());
        }
        // What a thread that was kept off its CPU has not read yet is no silence.
        self.end_receivers(now, signal.abandoned());
        if self.open > 0 {
            self.wait.spin_until(next);
        }
        Ok(has_arrived || self.sends)
    }

    /// Sends a part of what is due on every sending flow, and ends the finished ones; returns when to call again, if a
    /// timer says so.
    fn send_due(&mut self, now: u64, stopped: bool, mut recorder: Option<&mut Recorder>) -> Option<u64> {
        let mut next = None;
        for index in 0..self.flows.len() {
            let flow = &mut self.flows[index];
            if !flow.open || flow.flow.role == Role::Receive {
                continue;
            }
            let last_call = stopped || flow.schedule.is_past(now);
            let allowed = flow.schedule.allowed(now, flow.next);
            for _ in 0..self.batches_per_turn() {
                let flow = &self.flows[index];
                if allowed.is_some_and(|allowed| flow.next >= allowed) || flow.blocked || last_call {
                    break;
                }
                self.send_batch(index, allowed, recorder.as_deref_mut());
            }
            let flow = &mut self.flows[index];
            let ended_ns = flow.schedule.ended_ns(now, flow.next, flow.last_ns, last_call);
            if ended_ns.is_some() {
                flow.ended_ns = ended_ns;
                let due = flow.schedule.due(now, flow.next).filter(|_| self.work.pace.is_some());
                flow.unsent = due.map_or(0, |due| due.saturating_sub(flow.next));
                flow.open = false;
                self.open -= 1;
            } else if !flow.blocked {
                let again_ns = flow.schedule.next_ns(now, flow.next);
                next = Some(next.map_or(again_ns, |next: u64| next.min(again_ns)));
            }
        }
        next
    }

    /// Without a rate, a turn's look at the clock and at the sockets serves several batches.
    fn batches_per_turn(&self) -> usize {
        if self.work.pace.is_none() {
            BATCHES_PER_TURN
        } else {
            1
        }
    }

    /// Sends the datagrams of one call; `due` (how many may have been sent by now) is more than the flow has sent, or `None` for as many as one call takes.
    fn send_batch(&mut self, index: usize, due: Option<u64>, recorder: Option<&mut Recorder>) {
        let flow = &mut self.flows[index];
        let most = self.outgoing.most(flow.segments);
        let count = due.map_or(most, |due| (due - flow.next).min(most as u64) as usize);
        let sent_ns = monotonic_ns();
        self.outgoing.prepare(flow.flow.id, flow.next, count, sent_ns);
        let taken = match self.outgoing.send(&flow.flow.socket, count, flow.segments > 1) {
            Ok(taken) => taken,
            // The next turn sends fewer together, or separate datagrams.
            Err(error) if flow.segments > 1 && count > 1 && segments::is_refusal(&error) => {
                flow.segments = fewer_segments(count);
                return;
            }
            Err(error) => {
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        self.pushback += 1;
                        flow.block(&self.poll, index);
                    }
                    Some(libc::EINTR) => {}
                    // The error belongs to an earlier datagram, which is lost; this one has not been sent.
                    Some(libc::ECONNREFUSED) => count_error(&mut self.errors, error_code(&error)),
                    // This datagram cannot be sent; another try would fail too.
                    _ => {
                        count_error(&mut self.errors, error_code(&error));
                        flow.next += 1;
                    }
                }
                return;
            }
        };
        // If the socket accepted only some, the next call reports the reason.
        flow.start_ns.get_or_insert(sent_ns);
        flow.last_ns = Some(sent_ns);
        if let (Some(late), Some(pace)) = (&mut self.late, self.work.pace) {
            let mut recorder = recorder;
            for sequence in flow.next..flow.next + taken as u64 {
                let due_ns = flow.schedule.due_ns(pace, sequence);
                let late_ns = sent_ns.saturating_sub(due_ns);
                late.record(late_ns);
                if let Some(recorder) = recorder.as_deref_mut() {
                    recorder.record(LATE, due_ns, late_ns);
                }
            }
        }
        let bytes = self.work.sizes.total(flow.next, taken as u64);
        flow.next += taken as u64;
        flow.flow.counters.sent(bytes, taken as u64);
    }

    /// Waits until the given instant, and receives what has arrived; returns whether anything has.
    fn receive(&mut self, until: Option<u64>) -> io::Result<bool> {
        self.ready.clear();
        self.ready.extend(self.poll.wait(until)?);
        let (mut has_arrived, now) = (false, monotonic_ns());
        for source in &self.ready {
            let flow = &mut self.flows[source.token as usize];
            if source.writable {
                flow.unblock(&self.poll, source.token as usize);
            }
            for _ in 0..CALLS_PER_TURN {
                let count = match self.incoming.receive(&flow.flow.socket) {
                    Ok(count) => count,
                    Err(error) => {
                        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                            count_error(&mut self.errors, error_code(&error));
                        }
                        break;
                    }
                };
                has_arrived |= count > 0;
                flow.last_read_ns = if count > 0 { Some(now) } else { flow.last_read_ns };
                for index in 0..count {
                    let (arrived_ns, bytes, each) = self.incoming.datagrams(index);
                    flow.handle_all(arrived_ns, bytes, each);
                }
                if !self.incoming.is_full(count) {
                    break;
                }
            }
        }
        Ok(has_arrived)
    }

    fn end_receivers(&mut self, now: u64, is_abandoned: bool) {
        for flow in self.flows.iter_mut().filter(|flow| flow.open && flow.flow.role == Role::Receive) {
            if flow.flow.expected.get().is_some() {
                flow.count_received_ns.get_or_insert(now);
            }
            let end = flow.progress().find_end(self.over_ns);
            if now >= end.at_ns || is_abandoned {
                flow.is_cut_off = end.is_cut_off;
                flow.open = false;
                self.open -= 1;
            }
        }
    }
}

struct Conversation {
    flow: DatagramFlow,
    /// When it sends.
    schedule: DatagramSchedule,
    receiver: DatagramReceiver,
    /// How many datagrams may be sent as one: fewer if the kernel has refused that; 1 for separate datagrams.
    segments: usize,
    open: bool,
    /// The socket is full; the poll waits for room.
    blocked: bool,
    /// The number of the next datagram; datagrams that could not be sent have numbers too.
    next: u64,
    /// Datagrams that were due when the flow ended and were not sent.
    unsent: u64,
    /// When the first datagram was sent.
    start_ns: Option<u64>,
    /// When the last datagram was sent.
    last_ns: Option<u64>,
    /// When a sender stopped trying.
    ended_ns: Option<u64>,
    /// When the receiver got the sender's count.
    count_received_ns: Option<u64>,
    /// When the receiver last found something in its socket, ns.
    last_read_ns: Option<u64>,
    /// Whether the receiver stopped counting while datagrams still arrived.
    is_cut_off: bool,
}

impl Conversation {
    fn new(flow: DatagramFlow, work: &DatagramWork, span: Span) -> Self {
        Self {
            schedule: DatagramSchedule::new(work.pace, work.number, span, flow.offset_ns).with_bursts(work.burst),
            receiver: DatagramReceiver::with_sizes(work.format, flow.id, work.sizes.clone()),
            segments: if work.gso && work.sizes.is_fixed() { MOST_SEGMENTS } else { 1 },
            flow,
            open: true,
            blocked: false,
            next: 0,
            unsent: 0,
            start_ns: None,
            last_ns: None,
            ended_ns: None,
            count_received_ns: None,
            last_read_ns: None,
            is_cut_off: false,
        }
    }

    fn progress(&self) -> ReceiverProgress {
        ReceiverProgress {
            expected: self.flow.expected.get(),
            count_received_ns: self.count_received_ns,
            received: self.receiver.tracker().received(),
            last_read_ns: self.last_read_ns,
        }
    }

    fn block(&mut self, poll: &Poll, index: usize) {
        // The socket is open and watched; the change cannot fail, and the next turn would try again.
        self.blocked = poll.modify(&self.flow.socket, index as u64, Interest::ReadWrite).is_ok();
    }

    fn unblock(&mut self, poll: &Poll, index: usize) {
        self.blocked = poll.modify(&self.flow.socket, index as u64, Interest::Read).is_err();
    }

    /// Takes the datagrams of one buffer, each of this length except the last one.
    fn handle_all(&mut self, arrived_ns: u64, bytes: &[u8], each: usize) {
        if bytes.len() <= each {
            return self.handle(arrived_ns, bytes);
        }
        let before = self.receiver.tracker().received();
        bytes.chunks(each).for_each(|datagram| self.handle(arrived_ns, datagram));
        self.receiver.coalesced(self.receiver.tracker().received() - before);
    }

    fn handle(&mut self, now: u64, datagram: &[u8]) {
        if self.receiver.handle(now, datagram) {
            self.flow.counters.received(datagram.len() as u64, 1);
            self.flow.counters.missing(self.receiver.tracker().missing());
        } else if let Ok(header @ Header { kind: HeaderKind::Hello, .. }) = Header::parse(datagram) {
            answer_hello(&self.flow.socket, header);
        }
    }

    fn report(&self) -> SideReport {
        let receives = self.flow.role == Role::Receive;
        let tracker = self.receiver.tracker();
        let span = self.receiver.span_ns();
        SideReport {
            flow: self.flow.id,
            start_ns: if receives { span.map(|(first, _)| first) } else { self.start_ns },
            end_ns: if receives { span.map(|(_, last)| last) } else { self.ended_ns.max(self.last_ns) },
            sent_bytes: self.flow.counters.sent_bytes(),
            received_bytes: self.receiver.bytes(),
            sent_units: (!receives).then(|| self.flow.counters.sent_units()),
            received_units: receives.then(|| tracker.received()),
            duplicates: receives.then(|| tracker.duplicates()),
            reordered: receives.then(|| tracker.reordered()),
            jitter_us: if receives { self.receiver.jitter_us() } else { None },
            socket_drops: if receives { receive_drops(&self.flow.socket) } else { None },
            stale: receives.then(|| tracker.stale()),
            strays: Some(self.receiver.strays()),
            unsent_units: (!receives && self.unsent > 0).then_some(self.unsent),
            datagrams: Some(Box::new(self.datagram_report())),
            ..SideReport::default()
        }
    }

    fn datagram_report(&self) -> DatagramReport {
        match self.flow.role {
            Role::Send => DatagramReport { segmented: Some(self.segments > 1), ..DatagramReport::default() },
            Role::Receive => {
                let is_cut_off = Some(self.is_cut_off);
                DatagramReport { is_cut_off, ..self.receiver.report(self.flow.expected.get()) }
            }
        }
    }
}

/// Confirms to a flow's client that the server knows its socket.
pub fn answer_hello(socket: &UdpSocket, hello: Header) {
    let mut answer = [0; HEADER_BYTES];
    Header { kind: HeaderKind::HelloAck, ..hello }.write(&mut answer);
    // A response that cannot be sent counts like a lost one: the client asks again.
    let _ = socket.send(&answer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_sys::net::{set_buffers, udp_socket};
    use leadline_testkit::until;

    const LENGTH_NS: u64 = 1_000_000_000;
    /// The span of flows that end by their number, however late they began.
    const LONG_NS: u64 = 60_000_000_000;

    /// Returns the figures of one flow that sends to a socket which is never read.
    fn one_sender(work: DatagramWork) -> (Span, WorkerReport) {
        sender_after(work, 0)
    }

    fn sender_after(work: DatagramWork, offset_ns: u64) -> (Span, WorkerReport) {
        let receiver_socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(receiver_socket.local_addr().unwrap()).unwrap();
        let expected = Arc::new(AtomicOption::none());
        let counters = Arc::default();
        let flow = DatagramFlow { id: 0, socket, role: Role::Send, counters, offset_ns, expected };
        let at_ns = monotonic_ns();
        let span = Span { at_ns, end_ns: at_ns + if work.number.is_some() { LONG_NS } else { LENGTH_NS } };
        (span, drive(vec![flow], work, span, &ControlSignal::default(), "udp-send", None).unwrap())
    }

    fn work(rate_pps: Option<f64>, number: Option<u64>) -> DatagramWork {
        let pace = rate_pps.and_then(Pace::per_second);
        let (format, sizes) = (DatagramFormat::Session(1), DatagramSizes::fixed(100));
        DatagramWork { format, sizes, pace, burst: 1, number, payload: Payload::Zeros, gso: false }
    }

    #[test]
    fn a_paced_flow_of_n_lasts_n_gaps() {
        let (span, report) = one_sender(work(Some(100.0), Some(3)));
        assert_eq!(report.flows[0].sent_units, Some(3));
        // Later only if this machine sent the last one later.
        let last_gap_ns = report.flows[0].end_ns.unwrap() - span.at_ns;
        assert!(last_gap_ns >= 30_000_000, "{last_gap_ns}");
    }

    #[test]
    fn a_flow_without_a_number_lasts_its_time() {
        for rate in [Some(30.0), None] {
            until("the flow sends within its time", || {
                let (span, report) = one_sender(work(rate, None));
                let flow = &report.flows[0];
                assert!(flow.sent_units == Some(0) || flow.end_ns >= Some(span.end_ns), "{flow:?}");
                (flow.sent_units > Some(0)).then_some(())
            });
        }
    }

    #[test]
    fn a_flow_with_an_offset_sends_as_many_datagrams_later() {
        let (span, report) = sender_after(work(Some(4.0), None), 30_000_000);
        let (sent, unsent) = (report.flows[0].sent_units.unwrap(), report.flows[0].unsent_units.unwrap_or(0));
        // A thread that could not run at the end leaves the last one unsent, and counts it.
        assert_eq!(sent + unsent, 4);
        assert!(report.flows[0].start_ns.is_none_or(|start_ns| start_ns >= span.at_ns + 30_000_000));
        assert_eq!(report.late.unwrap().count(), sent);
    }

    #[test]
    fn only_receivers_with_large_buffers_let_datagrams_wait() {
        for (role, buffer_bytes) in [(Role::Send, None), (Role::Receive, None), (Role::Receive, Some(100_000))] {
            let socket = udp_socket("127.0.0.1:0".parse().unwrap(), None, false).unwrap();
            if let Some(bytes) = buffer_bytes {
                set_buffers(&socket, bytes).unwrap();
            }
            let is_large = receive_buffer_bytes(&socket) >= COALESCED_BUFFER_BYTES;
            assert!(!is_large || buffer_bytes.is_none());
            let (counters, expected) = (Arc::default(), Arc::new(AtomicOption::none()));
            let flow = DatagramFlow { id: 0, socket, role, counters, offset_ns: 0, expected };
            let worker = Worker::new(vec![flow], work(None, None), Span { at_ns: 0, end_ns: 1 }).unwrap();
            // Without privileges a host may grant no large buffer.
            assert_eq!(worker.coalescing.is_some(), is_large && role == Role::Receive, "{role:?}, {buffer_bytes:?}");
        }
    }

    #[test]
    fn each_failed_send_counts_as_one_error() {
        let too_long = DatagramWork { sizes: DatagramSizes::fixed(70_000), ..work(Some(1000.0), Some(5)) };
        let (_, report) = one_sender(too_long);
        assert_eq!(report.errors, BTreeMap::from([("message_too_long".to_owned(), 5)]));
        assert_eq!((report.flows[0].sent_units, report.flows[0].unsent_units), (Some(0), None));
    }
}
