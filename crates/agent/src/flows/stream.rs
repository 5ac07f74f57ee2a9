//! Bulk TCP: senders write blocks until the end of the span, receivers read until the sender's end of stream.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use leadline_pace::Pace;
use leadline_stats::Histogram;
use leadline_sys::clock::{self, monotonic_ns};
use leadline_sys::net;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_transport::SideReport;

use super::{count_error, Role, Span, WorkerReport, DRAIN_NS, LONGEST_DRAIN_NS, TURN_NS};
use crate::events::error_code;
use crate::gate::Gate;
use crate::load::threads::{FlowCounters, ThreadMeter};

/// One connection of a worker.
pub struct StreamFlow {
    /// Its number within the session.
    pub id: u32,
    /// Open and introduced.
    pub socket: TcpStream,
    /// Which way its payload goes.
    pub role: Role,
    /// What the reporter reads.
    pub counters: Arc<FlowCounters>,
}

/// What all flows of a worker do.
#[derive(Clone, Copy, Debug)]
pub struct StreamWork {
    /// Bytes per call.
    pub block_bytes: usize,
    /// Payload rate per flow, bit/s.
    pub rate_bps: Option<u64>,
    /// Time between TCP_INFO samples, ns.
    pub sample_ns: u64,
}

/// Calls per ready socket and turn, so that one fast flow does not starve the others of its thread.
const CALLS_PER_TURN: usize = 16;

/// Move payload until every flow has ended.
pub fn drive(
    flows: Vec<StreamFlow>,
    work: StreamWork,
    span: Span,
    gate: &Gate,
    thread: &str,
) -> io::Result<WorkerReport> {
    let mut worker = Worker::new(flows, work, span)?;
    clock::use_precise_timers();
    gate.sleep_until(span.at_ns);
    let meter = ThreadMeter::begin(thread, monotonic_ns());
    while worker.open > 0 {
        worker.turn(gate)?;
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
    block: Vec<u8>,
    work: StreamWork,
    /// When block n of a paced flow is due; `None` sends as fast as the socket takes it.
    pace: Option<Pace>,
    span: Span,
    next_sample_ns: u64,
    /// When the senders were ended, here or by the span at the peer.
    over_ns: Option<u64>,
    open: usize,
    errors: BTreeMap<String, u64>,
    /// From a paced block's coming due to its first byte's being written.
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
        let pace = work.rate_bps.and_then(|bits| Pace::per_second(bits as f64 / 8.0 / work.block_bytes as f64));
        Ok(Self {
            open: flows.len(),
            flows: flows.into_iter().map(Connection::new).collect(),
            poll,
            block: vec![0; work.block_bytes],
            work,
            pace,
            span,
            next_sample_ns: span.at_ns.saturating_add(work.sample_ns),
            over_ns: None,
            late: pace.map(|_| Histogram::new()),
            errors: BTreeMap::new(),
        })
    }

    fn turn(&mut self, gate: &Gate) -> io::Result<()> {
        let now = monotonic_ns();
        if now >= self.span.end_ns || gate.stopped() {
            self.end_senders();
            let over_ns = *self.over_ns.get_or_insert(now);
            self.give_up_receivers(now, over_ns, gate.abandoned());
        }
        if now >= self.next_sample_ns {
            self.flows.iter_mut().filter(|flow| flow.open).for_each(Connection::sample);
            self.next_sample_ns = now + self.work.sample_ns;
        }
        if self.open == 0 {
            return Ok(());
        }
        let until = self.wake_paced(now)?.min(now + TURN_NS);
        let until = if now < self.span.end_ns { until.min(self.span.end_ns) } else { until };
        let ready: Vec<Ready> = self.poll.wait(Some(until))?.collect();
        for source in ready {
            self.serve(source);
        }
        Ok(())
    }

    /// Paced flows that have sent all that is due are not watched for room; those whose next block has come due are again.
    fn wake_paced(&mut self, now: u64) -> io::Result<u64> {
        let Some(pace) = self.pace else { return Ok(u64::MAX) };
        let mut next = u64::MAX;
        for (index, flow) in self.flows.iter_mut().enumerate().filter(|(_, flow)| flow.open && flow.resting) {
            let due = self.span.at_ns.saturating_add(pace.due_ns(flow.blocks));
            if due <= now {
                flow.resting = false;
                self.poll.add(&flow.flow.socket, index as u64, Interest::Write)?;
            } else {
                next = next.min(due);
            }
        }
        Ok(next)
    }

    fn serve(&mut self, source: Ready) {
        let flow = &mut self.flows[source.token as usize];
        if !flow.open {
            return;
        }
        let result = match flow.flow.role {
            Role::Send => flow.send(&self.block, self.pace.zip(self.late.as_mut()), self.span, &self.poll),
            Role::Receive => flow.receive(&mut self.block),
        };
        match result {
            Ok(Progress::More) => {}
            Ok(Progress::Ended) => self.close(source.token as usize),
            Err(error) => {
                let code = error_code(&error);
                count_error(&mut self.errors, code);
                self.flows[source.token as usize].error = Some(code.to_owned());
                self.close(source.token as usize);
            }
        }
    }

    fn end_senders(&mut self) {
        for index in 0..self.flows.len() {
            if self.flows[index].open && self.flows[index].flow.role == Role::Send {
                // Fails only when the peer has gone, which the peer's report tells.
                let _ = self.flows[index].flow.socket.shutdown(Shutdown::Write);
                self.close(index);
            }
        }
    }

    /// Receivers wait for what is under way, but neither in silence nor for ever.
    fn give_up_receivers(&mut self, now: u64, over_ns: u64, abandoned: bool) {
        for index in 0..self.flows.len() {
            let flow = &mut self.flows[index];
            let quiet_since_ns = flow.end_ns.unwrap_or(0).max(over_ns);
            let too_long = now >= quiet_since_ns + DRAIN_NS || now >= over_ns + LONGEST_DRAIN_NS;
            if flow.open && (too_long || abandoned) {
                flow.error = Some("no_end_of_stream".to_owned());
                count_error(&mut self.errors, "no_end_of_stream");
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.sample();
        flow.open = false;
        self.open -= 1;
        if !flow.resting {
            // The descriptor is open, so this cannot fail; and if it did, `serve` ignores a closed flow.
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
    /// Not watched: a paced flow whose next block is not due yet.
    resting: bool,
    /// Whole blocks sent, and bytes sent of the next one.
    blocks: u64,
    partial: usize,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    rtt_sum_us: u64,
    rtt_samples: u64,
    retransmits: Option<u64>,
    error: Option<String>,
}

impl Connection {
    fn new(flow: StreamFlow) -> Self {
        Self {
            flow,
            open: true,
            resting: false,
            blocks: 0,
            partial: 0,
            start_ns: None,
            end_ns: None,
            rtt_sum_us: 0,
            rtt_samples: 0,
            retransmits: None,
            error: None,
        }
    }

    fn send(
        &mut self,
        block: &[u8],
        mut paced: Option<(Pace, &mut Histogram)>,
        span: Span,
        poll: &Poll,
    ) -> io::Result<Progress> {
        let Span { at_ns, end_ns } = span;
        for _ in 0..CALLS_PER_TURN {
            let now = monotonic_ns();
            if paced.is_none() && now >= end_ns {
                break;
            }
            let due_ns = paced.as_ref().map_or(0, |(pace, _)| at_ns.saturating_add(pace.due_ns(self.blocks)));
            if due_ns > now || due_ns >= end_ns {
                self.resting = true;
                poll.remove(&self.flow.socket)?;
                break;
            }
            let written = match self.flow.socket.write(&block[self.partial..]) {
                Ok(written) => written,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            };
            if let (0, Some((_, late))) = (self.partial, &mut paced) {
                late.record(now - due_ns);
            }
            self.partial += written;
            if self.partial == block.len() {
                self.blocks += 1;
                self.partial = 0;
            }
            self.flow.counters.sent(written as u64, 0);
            self.start_ns.get_or_insert(now);
            self.end_ns = Some(monotonic_ns());
        }
        Ok(Progress::More)
    }

    fn receive(&mut self, block: &mut [u8]) -> io::Result<Progress> {
        for _ in 0..CALLS_PER_TURN {
            let read = match self.flow.socket.read(block) {
                Ok(0) => return Ok(Progress::Ended),
                Ok(read) => read,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            };
            self.flow.counters.received(read as u64, 0);
            let now = monotonic_ns();
            self.start_ns.get_or_insert(now);
            self.end_ns = Some(now);
        }
        Ok(Progress::More)
    }

    fn sample(&mut self) {
        if self.flow.role == Role::Send {
            if let Ok(info) = net::tcp_info(&self.flow.socket) {
                self.rtt_sum_us += u64::from(info.rtt_us);
                self.rtt_samples += 1;
                self.retransmits = Some(u64::from(info.retransmits));
            }
        }
    }

    fn report(&self) -> SideReport {
        SideReport {
            flow: self.flow.id,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            sent_bytes: self.flow.counters.sent_bytes(),
            received_bytes: self.flow.counters.received_bytes(),
            retransmits: self.retransmits,
            rtt_mean_us: (self.rtt_samples > 0).then(|| self.rtt_sum_us as f64 / self.rtt_samples as f64),
            error: self.error.clone(),
            ..SideReport::default()
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
