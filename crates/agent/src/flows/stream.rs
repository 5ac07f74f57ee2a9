//! Bulk TCP: senders write blocks until the end of the span, and receivers read until the end of the stream.

mod kernel_view;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::minimize_timer_slack;
use leadline_sys::tcp;
use leadline_transport::SideReport;
use leadline_wire::{ReceiveMethod, SendMethod, TcpReport};

use self::kernel_view::KernelView;
use self::source::{Sends, Source};

use super::payload::{ByteBudget, Payload};
use super::{count_error, Role, Span, WorkerReport, DRAIN_NS, MAX_DRAIN_NS, TURN_NS};
use crate::atomic_option::AtomicOption;
use crate::control_signal::ControlSignal;
use crate::events::error_code;
use crate::metering::{FlowCounters, ThreadMeter};
use crate::patience::patience_ns;

/// One connection of a worker.
pub struct StreamFlow {
    /// Its number within the session.
    pub id: u32,
    /// Open, and introduced to the session.
    pub socket: TcpStream,
    /// The direction of its payload.
    pub role: Role,
    /// Counters that the reporter reads.
    pub counters: Arc<FlowCounters>,
    /// How many bytes the sender sent, once it has told, if it does not end its stream.
    pub expected: Option<Arc<AtomicOption>>,
    /// What a sender may send, with other flows; unlimited if absent.
    pub budget: Option<Arc<ByteBudget>>,
}

impl StreamFlow {
    /// Returns a flow without a count of its peer's and without a limit.
    pub fn new(id: u32, socket: TcpStream, role: Role, counters: Arc<FlowCounters>) -> Self {
        Self { id, socket, role, counters, expected: None, budget: None }
    }
}

/// How a receiver knows that a stream has ended.
#[derive(Clone, Copy, Debug)]
pub enum StreamEnd {
    /// Senders end their streams.
    Fin,
    /// Streams stay open: a receiver has as many bytes as the sender told, or receives none for this long, ns.
    Count {
        /// The silence after the end, ns.
        silence_ns: u64,
    },
}

/// The parameters that all flows of a worker share.
#[derive(Clone, Debug)]
pub struct StreamWork {
    /// Bytes per call.
    pub block_bytes: usize,
    /// The pacing of senders; as fast as the socket accepts data if absent.
    pub paced: Option<PacedBlocks>,
    /// Time between TCP_INFO samples, ns.
    pub sample_ns: u64,
    /// How streams end.
    pub end: StreamEnd,
    /// Whether a sender ends once its budget is spent; otherwise it stays open until the test ends.
    pub ends_when_spent: bool,
    /// What senders send.
    pub payload: Payload,
    /// A file whose content they send instead.
    pub payload_file: Option<Arc<Path>>,
    /// How senders pass bytes to the kernel.
    pub send: SendMethod,
    /// What receivers do with bytes.
    pub receive: ReceiveMethod,
}

impl StreamWork {
    /// Returns work with zeros, plain reads and writes, and streams that end with their sender.
    pub fn plain(block_bytes: usize, paced: Option<PacedBlocks>, interval_ns: u64) -> Self {
        Self {
            block_bytes,
            paced,
            sample_ns: interval_ns.min(LONGEST_SAMPLE_NS),
            end: StreamEnd::Fin,
            ends_when_spent: true,
            payload: Payload::Zeros,
            payload_file: None,
            send: SendMethod::Write,
            receive: ReceiveMethod::Copy,
        }
    }
}

/// The kernel's figures are sampled at least this often, ns, if there are no more flows than this for a thread.
const LONGEST_SAMPLE_NS: u64 = 100_000_000;
const OFTEN_SAMPLED_FLOWS: u64 = 64;

/// The blocks in which a flow with a rate is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacedBlocks {
    /// Bytes per block.
    pub block_bytes: usize,
    /// The rate of the blocks.
    pub pace: Pace,
    /// How many blocks are due together.
    pub burst: u64,
}

impl PacedBlocks {
    /// Returns blocks of at most `most_bytes`, and of at most 10 ms of the rate: larger blocks would be bursts with
    /// pauses between them, not a rate. `None` if no schedule can keep the rate.
    pub fn new(rate_bps: u64, most_bytes: u32) -> Option<Self> {
        let block_bytes = (rate_bps / 800).min(most_bytes.into()).max(1);
        let pace = Pace::per_second(rate_bps as f64 / 8.0 / block_bytes as f64)?;
        Some(Self { block_bytes: block_bytes as usize, pace, burst: 1 })
    }

    /// Returns whole blocks of which this many are due together, however long their time is at the rate.
    pub fn in_bursts(rate_bps: u64, block_bytes: u32, burst: u32) -> Option<Self> {
        let pace = Pace::per_second(rate_bps as f64 / 8.0 / f64::from(block_bytes))?;
        Some(Self { block_bytes: block_bytes as usize, pace, burst: burst.max(1).into() })
    }

    /// Returns when block n is due, ns after the start.
    fn due_ns(&self, block: u64) -> u64 {
        self.pace.due_ns(block - block % self.burst)
    }
}

/// Calls per ready socket and turn, so that one fast flow does not delay the others of its thread.
const CALLS_PER_TURN: usize = 16;

/// Sends and receives until every flow has ended.
pub fn drive(
    flows: Vec<StreamFlow>,
    work: StreamWork,
    span: Span,
    signal: &ControlSignal,
    thread: &str,
) -> io::Result<WorkerReport> {
    let mut worker = Worker::new(flows, work, span)?;
    minimize_timer_slack();
    signal.sleep_until(span.at_ns);
    worker.flows.iter_mut().for_each(Connection::begin);
    let meter = ThreadMeter::begin(thread, monotonic_ns());
    while worker.open > 0 {
        worker.run_once(signal)?;
    }
    Ok(WorkerReport {
        thread: meter.end(monotonic_ns()),
        flows: worker.flows.iter().map(Connection::report).collect(),
        pushback: 0,
        errors: worker.errors,
        late: worker.late,
    })
}

struct Worker {
    flows: Vec<Connection>,
    poll: Poll,
    /// Filled again by each wait.
    ready: Vec<Ready>,
    /// What senders send; `None` without senders.
    source: Option<Source>,
    /// What receivers read into; empty if they discard what arrives.
    block: Vec<u8>,
    work: StreamWork,
    span: Span,
    /// When the kernel's view of each flow is sampled next, ns; the first time one interval after the beginning.
    next_sample_ns: u64,
    /// When the senders ended, here or by the span on the peer.
    over_ns: Option<u64>,
    open: usize,
    errors: BTreeMap<String, u64>,
    /// From when a paced block was due until its first byte was written.
    late: Option<Histogram>,
}

impl Worker {
    fn new(flows: Vec<StreamFlow>, work: StreamWork, span: Span) -> io::Result<Self> {
        let poll = Poll::new(flows.len().min(256))?;
        for (index, flow) in flows.iter().enumerate() {
            flow.socket.set_nonblocking(true)?;
            let interest = match flow.role {
                Role::Send => Interest::Write,
                Role::Receive => Interest::Read,
            };
            poll.add(&flow.socket, index as u64, interest)?;
        }
        let has = |role| flows.iter().any(|flow| flow.role == role);
        let source = has(Role::Send)
            .then(|| Source::new(work.block_bytes, work.payload, work.payload_file.as_deref(), work.send))
            .transpose()?;
        if let Some(source) = &source {
            let mut sending = flows.iter().filter(|flow| flow.role == Role::Send);
            sending.try_for_each(|flow| source.prepare(&flow.socket))?;
        }
        let reads = has(Role::Receive) && work.receive == ReceiveMethod::Copy;
        // Many flows are sampled less often: the samples must not take the time of sending.
        let times = (flows.len() as u64).div_ceil(OFTEN_SAMPLED_FLOWS).max(1);
        let work = StreamWork { sample_ns: work.sample_ns.saturating_mul(times), ..work };
        Ok(Self {
            open: flows.len(),
            flows: flows.into_iter().map(Connection::new).collect(),
            poll,
            ready: Vec::new(),
            source,
            block: vec![0; if reads { work.block_bytes } else { 0 }],
            span,
            next_sample_ns: span.at_ns.saturating_add(work.sample_ns),
            over_ns: None,
            late: work.paced.map(|_| Histogram::new()),
            work,
            errors: BTreeMap::new(),
        })
    }

    fn run_once(&mut self, signal: &ControlSignal) -> io::Result<()> {
        let now = monotonic_ns();
        if now >= self.span.end_ns || signal.stopped() {
            self.end_senders(now.min(self.span.end_ns));
            let over_ns = *self.over_ns.get_or_insert(now);
            self.give_up_receivers(now, over_ns, signal.abandoned());
        }
        if now >= self.next_sample_ns {
            self.flows.iter_mut().filter(|flow| flow.open).for_each(Connection::sample);
            self.next_sample_ns = now + self.work.sample_ns;
        }
        if self.open == 0 {
            return Ok(());
        }
        let end_ns = Some(self.span.end_ns).filter(|end_ns| now < *end_ns);
        let until = [Some(now + TURN_NS), self.wake_paced(now)?, end_ns].into_iter().flatten().min();
        self.ready.clear();
        self.ready.extend(self.poll.wait(until)?);
        let woke_ns = monotonic_ns();
        for at in 0..self.ready.len() {
            self.serve(self.ready[at].token as usize, woke_ns);
        }
        Ok(())
    }

    /// A paced flow that has sent all due blocks is not watched for room; once its next block is due, it is watched
    /// again. Returns when the next block is due, if a flow waits for one.
    fn wake_paced(&mut self, now: u64) -> io::Result<Option<u64>> {
        let Some(blocks) = self.work.paced else { return Ok(None) };
        let mut next = None;
        for (index, flow) in
            self.flows.iter_mut().enumerate().filter(|(_, flow)| flow.open && flow.resting && !flow.spent)
        {
            let due = self.span.at_ns.saturating_add(blocks.due_ns(flow.blocks));
            if due <= now {
                flow.resting = false;
                self.poll.add(&flow.flow.socket, index as u64, Interest::Write)?;
            } else {
                next = Some(next.map_or(due, |next: u64| next.min(due)));
            }
        }
        Ok(next)
    }

    fn serve(&mut self, index: usize, woke_ns: u64) {
        let flow = &mut self.flows[index];
        if !flow.open {
            return;
        }
        let result = match (&self.source, flow.flow.role, self.work.paced) {
            (Some(source), Role::Send, None) => flow.send(source, self.work.block_bytes, self.span.end_ns, &self.poll),
            (Some(source), Role::Send, Some(blocks)) => {
                flow.send_buffer.drained(woke_ns);
                let late = self.late.get_or_insert_default();
                flow.send_due(source, blocks, self.span, &self.poll, late)
            }
            _ => flow.receive(&mut self.block, self.work.block_bytes),
        };
        let flow = &self.flows[index];
        // A stream that ends with its sender needs no more time once everything is sent.
        let result = match result {
            Ok(Progress::More) if flow.spent && self.work.ends_when_spent => {
                if let StreamEnd::Fin = self.work.end {
                    // This fails only if the peer has closed the connection, which its report shows.
                    let _ = flow.flow.socket.shutdown(Shutdown::Write);
                }
                Ok(Progress::Ended)
            }
            Ok(Progress::More) if flow.spent => {
                self.end_within_a_block(index);
                Ok(Progress::More)
            }
            result => result,
        };
        match result {
            Ok(Progress::More) => {}
            Ok(Progress::Ended) => self.close(index, monotonic_ns()),
            Err(error) => {
                count_error(&mut self.errors, error_code(&error));
                self.close(index, monotonic_ns());
            }
        }
    }

    /// Ends a stream whose budget is spent if it sent part of a block last: iperf3's clients from 3.16 on read whole
    /// blocks, and count a part only at the stream's end.
    fn end_within_a_block(&self, index: usize) {
        let flow = &self.flows[index].flow;
        if flow.counters.sent_bytes() % self.work.block_bytes as u64 != 0 {
            // This fails only if the peer has closed the connection, which its report shows.
            let _ = flow.socket.shutdown(Shutdown::Write);
        }
    }

    fn end_senders(&mut self, ended_ns: u64) {
        for index in 0..self.flows.len() {
            if self.flows[index].open && self.flows[index].flow.role == Role::Send {
                if let StreamEnd::Fin = self.work.end {
                    // This fails only if the peer has closed the connection, which the peer's report shows.
                    let _ = self.flows[index].flow.socket.shutdown(Shutdown::Write);
                }
                self.close(index, ended_ns);
            }
        }
    }

    /// Receivers wait for payload in transit, but neither in silence nor without a limit.
    fn give_up_receivers(&mut self, now: u64, over_ns: u64, abandoned: bool) {
        let silence_ns = match self.work.end {
            StreamEnd::Fin => DRAIN_NS,
            StreamEnd::Count { silence_ns } => silence_ns,
        };
        for index in 0..self.flows.len() {
            let flow = &mut self.flows[index];
            let quiet_since_ns = flow.last_ns.unwrap_or(0).max(over_ns);
            let too_long = now >= quiet_since_ns + silence_ns || now >= over_ns + patience_ns(MAX_DRAIN_NS);
            if !flow.open {
                continue;
            }
            let expected = flow.flow.expected.as_ref().and_then(|expected| expected.get());
            if expected.is_some_and(|bytes| flow.flow.counters.received_bytes() >= bytes) {
                self.close(index, now);
            } else if too_long || abandoned {
                if expected.is_some() || matches!(self.work.end, StreamEnd::Fin) {
                    count_error(&mut self.errors, "no_end_of_stream");
                }
                self.close(index, now);
            }
        }
    }

    /// Closes a flow. `ended_ns` is when the flow stopped trying, which may be long after its last byte.
    fn close(&mut self, index: usize, ended_ns: u64) {
        let flow = &mut self.flows[index];
        flow.sample();
        flow.open = false;
        flow.ended_ns = Some(ended_ns);
        self.open -= 1;
        if !flow.resting {
            // The descriptor is open, so this cannot fail; and `serve` ignores a closed flow.
            let _ = self.poll.remove(&flow.flow.socket);
        }
    }
}

enum Progress {
    More,
    Ended,
}

struct Connection {
    flow: StreamFlow,
    open: bool,
    /// Whether it is not watched: a paced flow whose next block is not due yet, or one whose budget is spent.
    resting: bool,
    spent: bool,
    /// The completions of sends without copying.
    sends: Sends,
    send_buffer: SendBuffer,
    /// Complete blocks sent, and bytes sent of the next one.
    blocks: u64,
    partial: usize,
    start_ns: Option<u64>,
    /// When the last byte was sent or received.
    last_ns: Option<u64>,
    ended_ns: Option<u64>,
    kernel: KernelView,
}

impl Connection {
    fn new(flow: StreamFlow) -> Self {
        Self {
            flow,
            open: true,
            resting: false,
            spent: false,
            sends: Sends::default(),
            send_buffer: SendBuffer::default(),
            blocks: 0,
            partial: 0,
            start_ns: None,
            last_ns: None,
            ended_ns: None,
            kernel: KernelView::default(),
        }
    }

    fn send(&mut self, source: &Source, block_bytes: usize, end_ns: u64, poll: &Poll) -> io::Result<Progress> {
        for _ in 0..CALLS_PER_TURN {
            let now = monotonic_ns();
            if now >= end_ns || !self.write(source, block_bytes, now)? {
                break;
            }
        }
        self.rest_if_spent(poll)?;
        Ok(Progress::More)
    }

    /// Sends the blocks that are due; then the flow rests.
    fn send_due(
        &mut self,
        source: &Source,
        blocks: PacedBlocks,
        span: Span,
        poll: &Poll,
        late: &mut Histogram,
    ) -> io::Result<Progress> {
        for _ in 0..CALLS_PER_TURN {
            let now = monotonic_ns();
            let due_ns = span.at_ns.saturating_add(blocks.due_ns(self.blocks));
            if due_ns > now || due_ns >= span.end_ns {
                self.resting = true;
                poll.remove(&self.flow.socket)?;
                break;
            }
            let begins = self.partial == 0;
            if !self.write(source, blocks.block_bytes, now)? {
                self.send_buffer.filled();
                self.rest_if_spent(poll)?;
                break;
            }
            if begins {
                late.record(self.send_buffer.late_ns(now, due_ns));
            }
        }
        Ok(Progress::More)
    }

    /// A flow whose budget is spent is not watched any more. It stays open until the test ends.
    fn rest_if_spent(&mut self, poll: &Poll) -> io::Result<()> {
        if self.spent && !std::mem::replace(&mut self.resting, true) {
            poll.remove(&self.flow.socket)?;
        }
        Ok(())
    }

    /// Writes the rest of a block once; returns whether there was room, and budget.
    fn write(&mut self, source: &Source, block_bytes: usize, now: u64) -> io::Result<bool> {
        let rest = block_bytes - self.partial;
        let granted = self.flow.budget.as_ref().map_or(rest, |budget| budget.take(rest));
        if granted == 0 {
            self.spent = true;
            return Ok(false);
        }
        let position = self.flow.counters.sent_bytes();
        let result = source.send(&self.flow.socket, position, granted, &mut self.sends);
        if let Some(budget) = &self.flow.budget {
            budget.give_back(granted - result.as_ref().map_or(0, |written| *written));
        }
        let written = match result {
            Ok(written) => written,
            Err(error) if would_block(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        self.partial += written;
        if written == rest {
            self.blocks += 1;
            self.partial = 0;
        }
        self.flow.counters.sent(written as u64, 0);
        self.start_ns.get_or_insert(now);
        self.last_ns = Some(monotonic_ns());
        Ok(true)
    }

    /// Reads into `block`, or discards as much at a time if it is empty.
    fn receive(&mut self, block: &mut [u8], block_bytes: usize) -> io::Result<Progress> {
        for _ in 0..CALLS_PER_TURN {
            let received = if block.is_empty() {
                tcp::discard(&self.flow.socket, block_bytes)
            } else {
                self.flow.socket.read(block)
            };
            let received = match received {
                Ok(0) => return Ok(Progress::Ended),
                Ok(received) => received,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            };
            self.flow.counters.received(received as u64, 0);
            let now = monotonic_ns();
            self.start_ns.get_or_insert(now);
            self.last_ns = Some(now);
            if received < block_bytes {
                // There was no more; a further read would return nothing.
                break;
            }
        }
        Ok(Progress::More)
    }

    /// Stores what the connection counted so far: it is older than the test.
    fn begin(&mut self) {
        self.kernel.begin(&self.flow.socket);
    }

    fn sample(&mut self) {
        let StreamFlow { id, socket, role, counters, .. } = &self.flow;
        self.kernel.sample(socket, *role, *id, counters);
    }

    /// Returns the kernel's figures, with what became of sends without copying.
    fn tcp_report(&self) -> Option<Box<TcpReport>> {
        let mut report = self.kernel.report(&self.flow.socket, self.flow.role, self.flow.id)?;
        let mut sends = self.sends;
        // What is still under way has no completion yet.
        let _ = sends.collect(&self.flow.socket);
        (report.zerocopy_sends, report.zerocopy_copied) = sends.counts().unzip();
        report.zerocopy_fallbacks = sends.fallbacks();
        Some(Box::new(report))
    }

    fn report(&self) -> SideReport {
        SideReport {
            flow: self.flow.id,
            start_ns: self.start_ns,
            end_ns: match self.flow.role {
                Role::Send => self.ended_ns.max(self.last_ns),
                Role::Receive => self.last_ns,
            },
            sent_bytes: self.flow.counters.sent_bytes(),
            received_bytes: self.flow.counters.received_bytes(),
            retransmits: self.kernel.retransmits(),
            rtt_mean_us: self.kernel.rtt_mean_us(),
            tcp: self.tcp_report(),
            ..SideReport::default()
        }
    }
}

/// Whether a paced flow's socket has room. While it is full, a block waits for the path or the receiver; the sender
/// itself is late only from the moment when there was room again.
#[derive(Default)]
struct SendBuffer {
    full: bool,
    since_ns: u64,
}

impl SendBuffer {
    fn filled(&mut self) {
        self.full = true;
    }

    fn drained(&mut self, now_ns: u64) {
        if std::mem::take(&mut self.full) {
            self.since_ns = now_ns;
        }
    }

    fn late_ns(&self, now_ns: u64, due_ns: u64) -> u64 {
        now_ns.saturating_sub(due_ns.max(self.since_ns))
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
