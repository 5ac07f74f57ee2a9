//! One thread's clients and their loop: wait for events, pass each to its client's machine, carry out the machine's
//! actions, and arm the next timer. Owns the sockets' readiness, the timers and the order of the work; the machine
//! decides what an event means for its client. Nothing is allocated per packet: packets are received, opened, sealed
//! and sent in the thread's own buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::minimize_timer_slack;
use leadline_tunnel::client::effects::Scratch;
use leadline_tunnel::client::phase::{Phase, PHASES};
use leadline_tunnel::client::server::Transport;
use leadline_tunnel::client::{Action, Input, Progress, VpnClient};
use leadline_tunnel::timer::{earlier, is_due};
use leadline_wire::{TunnelActionKind, TunnelPacketSizes};

use super::client::Client;
use super::client_report::{attempt_rows, client_row};
use super::effects::{socket_error, Account, ClientEffects, ClientSocket, Receiving};
use super::fleet::Fleet;
use super::inner_traffic::TrafficPhase;
use super::report::{ReachedSteps, Snapshot, Tally, WorkerReport};
use super::scheduled_actions::ActionSchedule;
use super::transport::{Buffers, Outbox};
use crate::control_signal::ControlSignal;
use crate::failures::Failures;
use crate::flows::receive_coalescing::ReceiveCoalescing;
use crate::flows::TURN_NS;
use crate::metering::{Latest, Recorder, ThreadMeter};

/// Sockets that one wait returns: timers run between two waits.
const READY_BATCH: usize = 64;
/// Clients that begin, or perform an action, before sockets are polled again.
const BEGIN_BATCH: usize = 16;
/// Timers that run before sockets are polled again, and between one socket and the next: each may cause a burst of
/// one client.
pub const TIMER_BATCH: usize = 64;
const TIMERS_BETWEEN: usize = 16;
/// How often one socket is read before the next one.
const READS: usize = 4;
/// A timer that runs this late, ns, means that the thread could not run: its process was stopped, or had no CPU.
const HELD_UP_NS: u64 = 100_000_000;
/// The shortest sleep, ns. Packets that become due during a sleep leave together at its end, in fewer system calls,
/// and are late by no more than this. A ready socket ends the sleep.
const SHORTEST_SLEEP_NS: u64 = 200_000;

/// One thread's clients and their state.
pub struct Worker {
    pub fleet: Arc<Fleet>,
    /// The thread's number, and the number of threads.
    pub number: u32,
    pub threads: u32,
    pub clients: Vec<Client>,
    /// The number of clients in each phase.
    pub phases: [u32; PHASES],
    pub poll: Poll,
    /// When clients are to be woken, ns, and which. An entry is valid while it equals its client's `armed_ns`.
    pub timers: BinaryHeap<Reverse<(u64, u32)>>,
    buffers: Buffers,
    scratch: Scratch,
    outbox: Outbox,
    pub recorder: Recorder,
    pub tally: Tally,
    pub failures: Failures,
    actions: ActionSchedule,
    /// The next client to arrive; clients arrive in the order of their numbers.
    next_arrival: usize,
    /// Since when configured clients ping, ns; `None` before the settled clients have connected or failed, and once
    /// the fleet leaves.
    pub pings_since_ns: Option<u64>,
    pub traffic_phase: TrafficPhase,
    /// Clients with traffic.
    pub carrying: u32,
    /// Whether the kernel timestamps received packets.
    is_stamped: bool,
    coalescing: ReceiveCoalescing,
    is_busy: bool,
    snapshots: Arc<Latest<Snapshot>>,
    snapshot_gap_ns: u64,
    /// When the next snapshot is published, ns; `None` before the first one, which is due at once.
    next_snapshot_ns: Option<u64>,
}

/// The parts of which a worker is made.
pub struct WorkerParts {
    pub fleet: Arc<Fleet>,
    pub number: u32,
    pub threads: u32,
    pub recorder: Recorder,
    pub snapshots: Arc<Latest<Snapshot>>,
    pub snapshot_gap_ns: u64,
}

impl Worker {
    /// Returns a worker with all UDP sockets open, so that opening them does not count as any client's time.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn new(parts: WorkerParts) -> io::Result<Self> {
        let WorkerParts { fleet, number, threads, recorder, snapshots, snapshot_gap_ns } = parts;
        let plan = &fleet.plan;
        let client = |number| Client::new(number, &plan.settings, plan.first_remote(number));
        let clients: Vec<Client> = (number..plan.clients).step_by(threads as usize).map(client).collect();
        let mut phases = [0; PHASES];
        phases[Phase::Waiting as usize] = clients.len() as u32;
        let has = |transport| plan.settings.servers.iter().any(|server| server.transport == transport);
        let mut worker = Self {
            actions: ActionSchedule::new(&plan.actions, plan.clients, number, threads),
            buffers: Buffers::new(has(Transport::Udp), has(Transport::Tcp)),
            number,
            threads,
            clients,
            phases,
            poll: Poll::new(READY_BATCH)?,
            timers: BinaryHeap::new(),
            scratch: Scratch::default(),
            outbox: Outbox::default(),
            recorder,
            tally: Tally::default(),
            failures: Failures::default(),
            next_arrival: 0,
            pings_since_ns: None,
            traffic_phase: TrafficPhase::default(),
            carrying: 0,
            // Packets in a stream have no timestamps of their own.
            is_stamped: !has(Transport::Tcp) && plan.traffic.as_ref().is_some_and(|traffic| traffic.times_packets()),
            coalescing: ReceiveCoalescing::default(),
            is_busy: true,
            snapshots,
            snapshot_gap_ns,
            next_snapshot_ns: None,
            fleet,
        };
        for index in 0..worker.clients.len() {
            worker.open_ahead(index)?;
        }
        Ok(worker)
    }

    /// Runs the whole thread from the start on.
    pub fn run(mut self, signal: &ControlSignal) -> io::Result<WorkerReport> {
        minimize_timer_slack();
        // The first use of a thread's random number generator is slow; this time must not count towards a client.
        let plan = &self.fleet.plan;
        drop(plan.settings.protocol.begin(self.number, None, monotonic_ns()));
        signal.sleep_until(self.fleet.at_ns().unwrap_or_else(monotonic_ns));
        let meter = ThreadMeter::begin(format!("tunnel-{}", self.number), monotonic_ns());
        let mut now_ns = monotonic_ns();
        while !is_due(self.fleet.end_ns(), now_ns) && !signal.stopped() && !self.fleet.is_done() {
            self.run_once(now_ns, self.fleet.end_ns(), signal)?;
            now_ns = monotonic_ns();
            if self.next_snapshot_ns.is_none_or(|next_ns| now_ns >= next_ns) {
                self.publish_snapshot(&meter, now_ns);
            }
        }
        self.tear_down(signal)?;
        let ended_ns = monotonic_ns();
        let thread = Some(meter.end(ended_ns));
        self.tally.phases = self.phases;
        let steps = self.fleet.plan.settings.protocol.steps();
        self.tally.reached = ReachedSteps::of(steps, self.clients.iter().map(|client| &client.machine));
        self.clients
            .iter()
            .filter_map(|client| client.transport.as_ref())
            .for_each(|transport| self.tally.sockets.count_drops(transport));
        // A fleet whose tunnels have all ended leaves before the traffic's time is over.
        let last_ns = self.fleet.end_ns().filter(|_| !signal.stopped()).unwrap_or(ended_ns);
        let over_ns = self.fleet.traffic_over_ns().map_or(last_ns, |over_ns| over_ns.min(last_ns));
        let packet_sizes = self.clients.iter().find_map(packet_sizes);
        let (mut rows, mut attempts, mut figures) = (Vec::with_capacity(self.clients.len()), Vec::new(), Vec::new());
        // Each client's memory is free for the rows of the next one: the figure of a fleet's memory is its peak.
        for mut client in std::mem::take(&mut self.clients) {
            rows.push(client_row(&client));
            attempts.extend(attempt_rows(&client));
            figures.extend(client.traffic.take_figures(over_ns));
        }
        let Self { recorder, tally, failures, .. } = self;
        recorder.finish();
        Ok(WorkerReport { thread, tally, failures, rows, attempts, packet_sizes, figures })
    }

    /// Performs the due work, then waits for events, until `until_ns` at most if it is known.
    fn run_once(&mut self, now_ns: u64, until_ns: Option<u64>, signal: &ControlSignal) -> io::Result<()> {
        self.begin_pings();
        self.free_claims(now_ns);
        let next_ns = earlier(self.begin_arrivals(now_ns), self.run_due_actions(now_ns));
        self.advance_traffic(now_ns);
        let next_ns = earlier(next_ns, self.expire(now_ns, TIMER_BATCH));
        self.recorder.roll(now_ns);
        self.update_busy(now_ns);
        // If work is already due, do not wait.
        let next_ns = next_ns.map(|at_ns| if at_ns > now_ns { at_ns.max(now_ns + SHORTEST_SLEEP_NS) } else { now_ns });
        let turn_ns = now_ns + TURN_NS;
        self.poll_io(earlier(until_ns, next_ns).map_or(turn_ns, |at_ns| at_ns.min(turn_ns)), || signal.stopped())
    }

    /// Waits for sockets until an instant, and serves the ready ones, until `is_over`; timers run in between.
    pub fn poll_io(&mut self, until_ns: u64, is_over: impl Fn() -> bool) -> io::Result<()> {
        if let (true, Some(next_ns)) = (self.is_stamped && self.carrying > 0, self.coalescing.next_ns()) {
            sleep_until(next_ns.min(until_ns));
        }
        let mut ready = [Ready { token: 0, readable: false, writable: false }; READY_BATCH];
        let mut count = 0;
        for (slot, source) in ready.iter_mut().zip(self.poll.wait(Some(until_ns))?) {
            *slot = source;
            count += 1;
        }
        if self.is_stamped {
            self.coalescing.looked(monotonic_ns(), count > 0);
        }
        // The next poll reports the remaining ones again.
        for source in ready[..count].iter().take_while(|_| !is_over()) {
            self.serve(source.token as usize, *source);
            if !self.timers.is_empty() {
                self.expire(monotonic_ns(), TIMERS_BETWEEN);
            }
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, source: Ready) {
        let Some(client) = self.clients.get(index) else { return };
        if source.writable {
            if client.machine.phase() == Phase::Connecting {
                return self.connected(index);
            }
            self.resume(index);
        }
        if source.readable {
            self.read(index);
        }
    }

    /// Handles the end of a TCP handshake, successful or not.
    fn connected(&mut self, index: usize) {
        let Some(transport) = &self.clients[index].transport else { return };
        let watched = match transport.failure() {
            None => transport.watch_for(&self.poll, index as u64, Interest::Read),
            Some(error) => Err(error),
        };
        match watched {
            Ok(()) => self.hand(index, monotonic_ns(), Input::Connected),
            Err(error) => self.hand(index, monotonic_ns(), Input::ConnectFailed(socket_error(error))),
        }
    }

    /// Handles a socket that has room again.
    fn resume(&mut self, index: usize) {
        let Client { machine, transport: Some(transport), traffic, .. } = &mut self.clients[index] else { return };
        let waiting = transport.waiting_packets();
        match transport.resume() {
            Ok(true) => {
                // The socket is open and watched; the change cannot fail.
                let _ = transport.watch_for(&self.poll, index as u64, Interest::Read);
                self.drive(index, monotonic_ns(), Input::Writable);
                self.poll_traffic(index);
                self.rearm(index);
            }
            Ok(false) => {}
            Err(error) => {
                self.tally.sockets.not_sent += waiting;
                machine.not_sent(waiting);
                traffic.not_sent(waiting, self.fleet.counters.get(machine.number() as usize).map(Arc::as_ref));
                self.hand(index, monotonic_ns(), Input::SocketFailed(socket_error(error)));
            }
        }
    }

    /// Reads the packets of a socket.
    pub fn read(&mut self, index: usize) {
        for _ in 0..READS {
            let Self { fleet, clients, buffers, recorder, tally, scratch, .. } = self;
            let Client { machine, transport: Some(transport), traffic, .. } = &mut clients[index] else { return };
            let mut inbox = Receiving {
                account: Account { recorder, counts: &mut tally.counts, times: fleet.times() },
                traffic,
                counters: fleet.counters.get(machine.number() as usize).map(Arc::as_ref),
                replies: &mut scratch.replies,
                space: &mut scratch.space,
            };
            let mut received_ns = None;
            let received = transport.receive(buffers, |arrived_ns, packet| {
                let now_ns = *received_ns.get_or_insert_with(monotonic_ns);
                machine.receive(now_ns, arrived_ns, packet, &mut inbox);
            });
            self.drive(index, received_ns.unwrap_or_else(monotonic_ns), Input::BatchReceived);
            self.poll_traffic(index);
            self.rearm(index);
            match received {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.hand(index, monotonic_ns(), Input::SocketFailed(socket_error(error))),
            }
        }
    }

    /// Passes an input to a client's machine, performs the due actions, and arms its timer.
    pub fn hand(&mut self, index: usize, now_ns: u64, input: Input) {
        self.drive(index, now_ns, input);
        self.rearm(index);
    }

    /// Passes an input to a client's machine, and performs the due actions. The timer is armed after the client's
    /// traffic was polled, which may be due now.
    fn drive(&mut self, index: usize, now_ns: u64, input: Input) {
        let (machine, mut effects) = self.client_and_effects(index);
        let mut progress = machine.handle(now_ns, input, &mut effects);
        self.end_broken_traffic(index);
        while progress == Progress::Again {
            // Earlier steps, such as TLS, may have taken long.
            let (machine, mut effects) = self.client_and_effects(index);
            progress = machine.poll(monotonic_ns(), &mut effects);
            self.end_broken_traffic(index);
        }
    }

    /// Returns a client's machine, and the effects that carry out its actions.
    pub fn client_and_effects(&mut self, index: usize) -> (&mut VpnClient, ClientEffects<'_>) {
        let Self { fleet, clients, phases, poll, scratch, outbox, recorder, tally, failures, .. } = self;
        let client = &mut clients[index];
        let number = client.machine.number();
        let is_blocked = client.is_blocked();
        let effects = ClientEffects {
            account: Account { recorder, counts: &mut tally.counts, times: fleet.times() },
            socket: ClientSocket {
                transport: &mut client.transport,
                outbox,
                tally: &mut tally.sockets,
                poll,
                fleet,
                client: number,
                token: index as u64,
                is_stamped: self.is_stamped,
                is_blocked,
                error: None,
            },
            scratch,
            failures,
            phases,
            traffic: &mut client.traffic,
            counters: fleet.counters.get(number as usize).map(Arc::as_ref),
            pings_since_ns: self.pings_since_ns,
        };
        (&mut client.machine, effects)
    }

    /// Opens the socket of a client's first attempt before the fleet begins, if it is a UDP socket.
    fn open_ahead(&mut self, index: usize) -> io::Result<()> {
        let plan = &self.fleet.plan;
        let server = plan.settings.server(plan.first_remote(self.clients[index].machine.number()));
        match server.transport {
            Transport::Udp => self.client_and_effects(index).1.socket.open(server),
            Transport::Tcp => Ok(()),
        }
    }

    /// Begins the pings of configured clients, once all settled clients have connected or failed.
    pub fn begin_pings(&mut self) {
        let (None, Some(settled_ns)) = (self.pings_since_ns, self.fleet.times().settled_ns) else { return };
        self.pings_since_ns = Some(settled_ns);
        let now_ns = monotonic_ns();
        (0..self.clients.len()).for_each(|index| self.hand(index, now_ns, Input::StartPings));
    }

    /// Continues the verification of clients that have become the only holder of their assignment.
    pub fn free_claims(&mut self, now_ns: u64) {
        for client in self.fleet.register.take_freed(self.number, self.threads) {
            self.hand((client / self.threads) as usize, now_ns, Input::ClaimFreed);
        }
    }

    /// Begins the clients that are due; returns when the next one is due.
    fn begin_arrivals(&mut self, now_ns: u64) -> Option<u64> {
        for _ in 0..BEGIN_BATCH {
            let due_ns = self.fleet.due_ns(self.clients.get(self.next_arrival)?.machine.number())?;
            if due_ns > now_ns {
                return Some(due_ns);
            }
            self.hand(self.next_arrival, monotonic_ns(), Input::Arrive { due_ns });
            self.next_arrival += 1;
        }
        Some(now_ns)
    }

    /// Runs the actions that are due; returns when the next one is due.
    fn run_due_actions(&mut self, now_ns: u64) -> Option<u64> {
        let arrivals_ns = self.fleet.times().arrivals_ns?;
        let elapsed_ns = now_ns.checked_sub(arrivals_ns)?;
        for _ in 0..BEGIN_BATCH {
            let Some((after_ns, client, action)) = self.actions.take(elapsed_ns) else {
                return self.actions.next_ns().map(|after_ns| arrivals_ns.saturating_add(after_ns));
            };
            self.run_action((client / self.threads) as usize, arrivals_ns + after_ns, action);
        }
        Some(now_ns)
    }

    /// Runs an action of a client.
    pub fn run_action(&mut self, index: usize, due_ns: u64, action: TunnelActionKind) {
        let action = match action {
            TunnelActionKind::Renegotiate => Action::Renegotiate,
            TunnelActionKind::Reconnect => Action::Reconnect,
        };
        if index < self.clients.len() {
            self.hand(index, monotonic_ns(), Input::Act { action, due_ns });
        }
    }

    /// Runs up to `most` expired timers; returns when the next one expires.
    pub fn expire(&mut self, now_ns: u64, most: usize) -> Option<u64> {
        // Timers that are set meanwhile run after the sockets.
        for _ in 0..most.min(self.timers.len()) {
            let &Reverse((due_ns, index)) = self.timers.peek()?;
            if due_ns > now_ns {
                return Some(due_ns);
            }
            self.timers.pop();
            let client = &mut self.clients[index as usize];
            if client.armed_ns != Some(due_ns) {
                continue;
            }
            client.armed_ns = None;
            self.on_timer(index as usize, due_ns, monotonic_ns());
        }
        self.timers.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Handles a client's timer, which was due at `due_ns`.
    pub fn on_timer(&mut self, index: usize, due_ns: u64, now_ns: u64) {
        // Packets that wait in its socket may have arrived in time; they are read before the timeout is judged. The
        // end of a TCP handshake is reported in another way.
        let is_held_up = now_ns > due_ns.saturating_add(HELD_UP_NS);
        if is_held_up && self.clients[index].machine.phase() != Phase::Connecting {
            self.read(index);
        }
        self.drive(index, now_ns, Input::TimerDue);
        if is_due(self.clients[index].traffic.deadline_ns(), now_ns) {
            self.poll_traffic(index);
        }
        self.rearm(index);
    }

    /// Arms the client's timer for its next deadline.
    #[inline]
    pub fn rearm(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some(due_ns) = client.deadline_ns() else { return };
        if client.armed_ns.is_none_or(|armed_ns| due_ns < armed_ns) {
            client.armed_ns = Some(due_ns);
            self.timers.push(Reverse((due_ns, index as u32)));
        }
    }

    /// Updates whether the thread has work left.
    fn update_busy(&mut self, now_ns: u64) {
        let in_phase = |phase: Phase| self.phases[phase as usize];
        let trying = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving].map(in_phase);
        let later = [Phase::Overdue, Phase::Resting].map(in_phase);
        let plan = &self.fleet.plan;
        let is_to_come =
            self.clients.get(self.next_arrival).is_some_and(|next| plan.due_ns(next.machine.number()).is_some());
        let is_busy = is_to_come
            || trying.iter().chain(&later).sum::<u32>() > 0
            || self.actions.next_ns().is_some()
            || self.tally.counts.renewals_pending > 0
            || self.carrying > 0
            || self.fleet.is_pinged(now_ns)
            || (plan.traffic.is_some() && self.traffic_phase != TrafficPhase::Begun);
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            self.fleet.set_busy(is_busy);
        }
    }

    fn publish_snapshot(&mut self, meter: &ThreadMeter, now_ns: u64) {
        self.next_snapshot_ns = Some(now_ns + self.snapshot_gap_ns);
        let Self { clients, recorder, tally, fleet, .. } = self;
        let mut account = Account { recorder, counts: &mut tally.counts, times: fleet.times() };
        clients.iter_mut().for_each(|client| client.machine.accept_silence(now_ns, &mut account));
        self.tally.phases = self.phases;
        self.snapshots.publish(Snapshot {
            worker: self.number,
            tally: self.tally.clone(),
            errors: self.failures.counts.clone(),
            thread: meter.so_far(now_ns),
        });
    }
}

/// Returns the packet sizes that pass a client's tunnel, if they were measured.
fn packet_sizes(client: &Client) -> Option<TunnelPacketSizes> {
    let sizes = client.machine.packet_sizes()?;
    Some(TunnelPacketSizes { answered_bytes: sizes.answered_bytes, unanswered_bytes: sizes.unanswered_bytes })
}
