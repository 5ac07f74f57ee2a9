//! One thread's request-response flows: one poll, one heap of timers, shared buffers. Knows when a flow has to be
//! called, not what it does then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::Ready;
use leadline_sys::priority::minimize_timer_slack;
use leadline_transport::{Requester, SideReport};

use super::connecting::ConnectingFlow;
use super::persistent::PersistentFlow;
use super::thread_state::{FlowTimes, ThreadState, ThreadWork};
use crate::control_signal::ControlSignal;
use crate::flows::{Span, WorkerReport, TURN_NS};
use crate::metering::{FlowCounters, Recorder, ThreadMeter};

/// A flow by how it uses sockets.
pub enum RrFlow {
    /// One socket for all transactions.
    Persistent(PersistentFlow),
    /// One for each.
    Connecting(ConnectingFlow),
}

/// Runs the flows until they have ended.
pub fn drive(
    mut flows: Vec<RrFlow>,
    work: ThreadWork,
    span: Span,
    signal: &ControlSignal,
    name: String,
    recorder: Recorder,
) -> io::Result<WorkerReport> {
    let mut state = ThreadState::new(work, flows.len(), recorder)?;
    let mut sources = Vec::new();
    for (index, flow) in flows.iter_mut().enumerate() {
        let first = sources.len();
        sources.resize(first + flow.sources(), index);
        flow.register(first as u64, &state)?;
    }
    minimize_timer_slack();
    signal.sleep_until(span.at_ns);
    let meter = ThreadMeter::begin(name, monotonic_ns());
    let until_ns = run(&mut flows, &sources, &mut state, span, signal)?;
    let mut thread = meter.end(monotonic_ns());
    thread.spun_s = work.spins.then_some(state.spun_ns as f64 / 1e9);
    state.recorder.finish();
    let rows = flows.iter().map(|flow| flow.report(until_ns)).collect();
    let late = work.has_schedule.then_some(state.late);
    Ok(WorkerReport { thread, flows: rows, pushback: 0, errors: state.errors, late })
}

/// Returns when no further request was sent.
fn run(
    flows: &mut [RrFlow],
    sources: &[usize],
    state: &mut ThreadState,
    span: Span,
    signal: &ControlSignal,
) -> io::Result<u64> {
    let mut until_ns = span.end_ns;
    let mut timers = Timers::new(flows.len(), monotonic_ns());
    let mut ready: Vec<Ready> = Vec::new();
    let mut open = flows.len();
    let mut turn_ns = monotonic_ns();
    while open > 0 {
        let now = monotonic_ns();
        if state.spins && ready.is_empty() {
            state.spun_ns += now - turn_ns;
        }
        turn_ns = now;
        if signal.stopped() && now < until_ns {
            until_ns = now;
            for (index, flow) in flows.iter_mut().enumerate() {
                flow.stop(now);
                timers.arm(index, Some(now));
            }
        }
        if signal.abandoned() {
            flows.iter_mut().for_each(|flow| flow.abandon(now, state));
            break;
        }
        while let Some(index) = timers.next_expired(now) {
            if !flows[index].is_open() {
                continue;
            }
            open -= run_flow(&mut flows[index], now, state, &mut timers, index)?;
        }
        state.recorder.roll(now);
        let turn_end_ns = if state.spins { now } else { now + TURN_NS };
        let wait_until_ns = timers.next_ns().map_or(turn_end_ns, |next_ns| next_ns.min(turn_end_ns));
        ready.clear();
        ready.extend(state.poll.wait(Some(wait_until_ns))?);
        for source in &ready {
            let index = sources[source.token as usize];
            if !flows[index].is_open() {
                continue;
            }
            let now = flows[index].on_ready(*source, state)?;
            open -= run_flow(&mut flows[index], now, state, &mut timers, index)?;
        }
    }
    Ok(until_ns)
}

/// Lets an open flow act, and arms its timer; returns 1 if it has ended now.
fn run_flow(
    flow: &mut RrFlow,
    now: u64,
    state: &mut ThreadState,
    timers: &mut Timers,
    index: usize,
) -> io::Result<usize> {
    let due_ns = flow.advance(now, state)?;
    timers.arm(index, due_ns);
    Ok(usize::from(!flow.is_open()))
}

impl RrFlow {
    /// The number of tokens that its sockets use.
    fn sources(&self) -> usize {
        match self {
            Self::Persistent(_) => 1,
            Self::Connecting(flow) => flow.lanes(),
        }
    }

    fn register(&mut self, first: u64, state: &ThreadState) -> io::Result<()> {
        match self {
            Self::Persistent(flow) => flow.register(first, state),
            Self::Connecting(flow) => {
                flow.register(first);
                Ok(())
            }
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Self::Persistent(flow) => flow.is_open(),
            Self::Connecting(flow) => flow.is_open(),
        }
    }

    /// Sends what is due and gives up what has timed out; returns when to call again.
    #[inline]
    fn advance(&mut self, now: u64, state: &mut ThreadState) -> io::Result<Option<u64>> {
        match self {
            Self::Persistent(flow) => flow.advance(now, state),
            Self::Connecting(flow) => flow.advance(now, state),
        }
    }

    /// Reads and writes what the socket allows; returns the time after that.
    #[inline]
    fn on_ready(&mut self, source: Ready, state: &mut ThreadState) -> io::Result<u64> {
        match self {
            Self::Persistent(flow) => flow.on_ready(source, state),
            Self::Connecting(flow) => flow.on_ready(source, state),
        }
    }

    fn stop(&mut self, now: u64) {
        self.machine().stop(now);
    }

    /// Gives up every outstanding transaction: the load was aborted.
    fn abandon(&mut self, now: u64, state: &mut ThreadState) {
        let machine = self.machine();
        while let Some(transaction) = machine.give_up_oldest(now) {
            state.given_up(transaction, now);
        }
    }

    fn machine(&mut self) -> &mut Requester {
        match self {
            Self::Persistent(flow) => &mut flow.machine,
            Self::Connecting(flow) => &mut flow.machine,
        }
    }

    fn report(&self, until_ns: u64) -> SideReport {
        match self {
            Self::Persistent(flow) => report(flow.id, &flow.machine, &flow.counters, flow.times, until_ns),
            Self::Connecting(flow) => SideReport {
                connections_opened: Some(flow.connections_opened),
                ..report(flow.id, &flow.machine, &flow.counters, flow.times, until_ns)
            },
        }
    }
}

/// Returns a flow's figures. A flow ends at `until_ns`, or with the response to its last outstanding request; a flow
/// that failed or reached its number before that ended then. With a rate, the time of the last request counts too.
fn report(id: u32, machine: &Requester, counters: &FlowCounters, times: FlowTimes, until_ns: u64) -> SideReport {
    let unsent = machine.unsent();
    SideReport {
        flow: id,
        start_ns: times.start_ns,
        end_ns: times.closed_ns.map(|closed_ns| closed_ns.min(until_ns)).max(machine.over_ns()).max(times.last_ns),
        sent_bytes: counters.sent_bytes(),
        received_bytes: counters.received_bytes(),
        sent_units: Some(counters.sent_units()),
        received_units: Some(machine.completed()),
        unsent_units: Some(unsent.all),
        unsent_while_busy: Some(unsent.while_busy),
        due_while_busy: Some(machine.due_while_busy()),
        late_answers: Some(machine.late()),
        duplicate_answers: Some(machine.duplicates()),
        strays: Some(machine.unasked()),
        ..SideReport::default()
    }
}

/// The earliest call of each flow. An answer usually moves it later: the heap keeps the earlier one, which costs one
/// call too many once in a while instead of a change of the heap for each transaction.
struct Timers {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// When each flow is called, ns; absent while it is only called when its socket is ready. Each of these instants is in
    /// the heap; entries of the heap with another one are void.
    armed_ns: Vec<Option<u64>>,
}

impl Timers {
    fn new(flows: usize, now: u64) -> Self {
        let heap = (0..flows).map(|index| Reverse((now, index))).collect();
        Self { heap, armed_ns: vec![Some(now); flows] }
    }

    #[inline]
    fn arm(&mut self, index: usize, at_ns: Option<u64>) {
        let armed_ns = &mut self.armed_ns[index];
        if let Some(at_ns) = at_ns.filter(|at_ns| armed_ns.is_none_or(|armed_ns| *at_ns < armed_ns)) {
            *armed_ns = Some(at_ns);
            self.heap.push(Reverse((at_ns, index)));
        }
    }

    #[inline]
    fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    #[inline]
    fn next_expired(&mut self, now: u64) -> Option<usize> {
        while self.next_ns().is_some_and(|next_ns| next_ns <= now) {
            let Reverse((at_ns, index)) = self.heap.pop()?;
            if self.armed_ns[index] == Some(at_ns) {
                self.armed_ns[index] = None;
                return Some(index);
            }
        }
        None
    }
}
