//! One thread's clients and the loop that drives them: whose turn has come, whose timer has run out, whose socket has
//! something. Owns the sockets' readiness, the timers and the order of things; what happens to a client is `attempt`'s. Nothing
//! is allocated per packet: packets are received, opened, sealed and sent in the thread's own buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::minimize_timer_slack;
use leadline_tunnel::openvpn::client::{Client as OpenVpnClient, Counters, Received};
use leadline_tunnel::openvpn::profile::Transport;

use super::client::{Client, Phase, PHASES};
use super::fleet::Fleet;
use super::inner_traffic::Metrics;
use super::receive_coalescing::ReceiveCoalescing;
use super::report::{Failures, Snapshot, Tally, WorkerReport};
use super::scheduled_actions::ActionSchedule;
use super::traffic_phase::TrafficPhase;
use super::transport::{Buffers, Outbox, TransportSocket};
use super::tunnel_io::Pinging;
use crate::control_signal::ControlSignal;
use crate::flows::TURN_NS;
use crate::load::threads::{Latest, Recorder, ThreadMeter};

/// Sockets that one wait tells of: between two looks at them timers run.
const READY_BATCH: usize = 64;
/// Clients that begin, or act, before sockets are looked at again.
const BEGIN_BATCH: usize = 16;
/// Timers that run before sockets are looked at again, and between one socket and the next: each may be a burst of one client's.
pub const TIMER_BATCH: usize = 64;
const TIMERS_BETWEEN: usize = 16;
/// How often one socket is read before others are looked at.
const READS: usize = 4;
/// Ports that one attempt is offered, before it takes one that another of the fleet's clients has had.
const PORTS_TRIED: usize = 16;
/// The shortest sleep, ns: what falls due in it goes out together at its end, in fewer system calls, and is late by no more
/// than this. A socket that has something ends it.
const SHORTEST_SLEEP_NS: u64 = 200_000;

/// See the file's head.
pub struct Worker {
    pub fleet: Arc<Fleet>,
    /// Which thread it is, and of how many.
    pub number: u32,
    pub threads: u32,
    pub clients: Vec<Client>,
    /// How many are in each phase.
    pub phases: [u32; PHASES],
    pub poll: Poll,
    pub timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub buffers: Buffers,
    /// A control packet, with room for its length before it.
    pub control: Vec<u8>,
    pub outbox: Outbox,
    /// A packet from inside that is being made.
    pub packet: Vec<u8>,
    pub recorder: Recorder,
    pub tally: Tally,
    pub failures: Failures,
    actions: ActionSchedule,
    /// The next client to arrive; clients come in the order of their numbers.
    next_arrival: usize,
    /// Answers to packets from inside, of the batch that is being read.
    answers: Vec<u8>,
    pub pinging: Pinging,
    pub traffic_phase: TrafficPhase,
    /// Renewals that were asked for and have not come.
    pub renewals: u32,
    /// Clients that carry load.
    pub carrying: u32,
    /// Whether sockets tell when the kernel had what came.
    is_stamped: bool,
    coalescing: ReceiveCoalescing,
    is_busy: bool,
    /// The fleet leaves: what ends now is no failure, and nothing begins any more.
    pub is_tearing_down: bool,
    snapshots: Arc<Latest<Snapshot>>,
    snapshot_gap_ns: u64,
    next_snapshot_ns: u64,
}

/// What a worker is made of.
pub struct Parts {
    pub fleet: Arc<Fleet>,
    pub number: u32,
    pub threads: u32,
    pub recorder: Recorder,
    pub snapshots: Arc<Latest<Snapshot>>,
    pub snapshot_gap_ns: u64,
}

impl Worker {
    /// With every UDP socket open: opening them is no client's time.
    ///
    /// # Errors
    /// The system's.
    pub fn new(parts: Parts) -> io::Result<Self> {
        let Parts { fleet, number, threads, recorder, snapshots, snapshot_gap_ns } = parts;
        let plan = &fleet.plan;
        let client = |number| Client::new(number, plan.first_remote(number));
        let clients: Vec<Client> = (number..plan.clients).step_by(threads as usize).map(client).collect();
        let mut phases = [0; PHASES];
        phases[Phase::Waiting as usize] = clients.len() as u32;
        let has = |transport| plan.remotes.iter().any(|remote| remote.transport == transport);
        let mut worker = Self {
            actions: ActionSchedule::new(&plan.actions, plan.clients, number, threads),
            buffers: Buffers::new(has(Transport::Udp), has(Transport::Tcp)),
            number,
            threads,
            clients,
            phases,
            poll: Poll::new(READY_BATCH)?,
            timers: BinaryHeap::new(),
            control: Vec::new(),
            outbox: Outbox::default(),
            packet: Vec::new(),
            recorder,
            tally: Tally::default(),
            failures: Failures::default(),
            next_arrival: 0,
            answers: Vec::new(),
            pinging: Pinging::default(),
            traffic_phase: TrafficPhase::default(),
            renewals: 0,
            carrying: 0,
            // A stream's packets have no stamps of their own.
            is_stamped: !has(Transport::Tcp) && plan.traffic.as_ref().is_some_and(|traffic| traffic.times_packets()),
            coalescing: ReceiveCoalescing::default(),
            is_busy: true,
            is_tearing_down: false,
            snapshots,
            snapshot_gap_ns,
            next_snapshot_ns: 0,
            fleet,
        };
        for index in 0..worker.clients.len() {
            if worker.fleet.plan.server(worker.clients[index].remote).transport == Transport::Udp {
                worker.open(index)?;
            }
        }
        Ok(worker)
    }

    /// The thread's whole life from the start on.
    pub fn run(mut self, signal: &ControlSignal) -> io::Result<WorkerReport> {
        minimize_timer_slack();
        // A thread's source of random numbers takes long to begin, which is no client's time.
        let plan = &self.fleet.plan;
        drop(OpenVpnClient::new(&plan.config, plan.identity(self.number), monotonic_ns()));
        signal.sleep_until(self.fleet.at_ns());
        let meter = ThreadMeter::begin(format!("tunnel-{}", self.number), monotonic_ns());
        let mut now_ns = monotonic_ns();
        while now_ns < self.fleet.end_ns() && !signal.stopped() && !self.fleet.is_done() {
            self.run_once(now_ns, self.fleet.end_ns(), signal)?;
            now_ns = monotonic_ns();
            if now_ns >= self.next_snapshot_ns {
                self.publish_snapshot(&meter, now_ns);
            }
        }
        self.tear_down(signal)?;
        let ended_ns = monotonic_ns();
        let thread = Some(meter.end(ended_ns));
        self.tally.phases = self.phases;
        self.clients
            .iter()
            .filter_map(|client| client.transport.as_ref())
            .for_each(|transport| self.tally.count_drops(transport));
        let rows = self.clients.iter().map(Client::report).collect();
        let attempts = self.clients.iter().flat_map(|client| client.log.reports(client.number, client.attempt()));
        let attempts = attempts.collect();
        let packet_sizes = self.clients.iter().find_map(|client| client.inner.packet_sizes());
        // A fleet whose tunnels have all gone ends before the traffic's time is over.
        let last_ns = if signal.stopped() { ended_ns } else { self.fleet.end_ns() };
        let over_ns = self.fleet.traffic_over_ns().min(last_ns);
        let figures = self.clients.iter_mut().filter_map(|client| client.inner.take_figures(over_ns)).collect();
        let Self { recorder, tally, failures, .. } = self;
        recorder.finish();
        Ok(WorkerReport { thread, tally, failures, rows, attempts, packet_sizes, figures })
    }

    /// Let everything happen that is due, then wait for what comes, until `until_ns` at most.
    fn run_once(&mut self, now_ns: u64, until_ns: u64, signal: &ControlSignal) -> io::Result<()> {
        self.begin_pings();
        self.take_freed(now_ns);
        let mut next_ns = self.begin_arrivals(now_ns).min(self.run_due_actions(now_ns));
        self.advance_traffic(now_ns);
        next_ns = next_ns.min(self.expire(now_ns, TIMER_BATCH));
        self.recorder.roll(now_ns);
        self.update_busy(now_ns);
        // What is due already is not waited for.
        let next_ns = if next_ns > now_ns { next_ns.max(now_ns + SHORTEST_SLEEP_NS) } else { now_ns };
        self.poll_io(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.stopped())
    }

    /// Wait for sockets until an instant, and serve those that have something, until `is_over`; timers run in between.
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
        // Those that are left over are told of again.
        for source in ready[..count].iter().take_while(|_| !is_over()) {
            self.serve(source.token as usize, *source);
            if !self.timers.is_empty() {
                self.expire(monotonic_ns(), TIMERS_BETWEEN);
            }
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, source: Ready) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if source.writable {
            if client.phase == Phase::Connecting {
                return self.connected(index);
            }
            self.resume(index);
        }
        if source.readable {
            self.read(index);
        }
    }

    /// The socket has room again.
    fn resume(&mut self, index: usize) {
        let Self { clients, tally, fleet, .. } = self;
        let Client { number, transport: Some(transport), inner, .. } = &mut clients[index] else { return };
        let waiting = transport.waiting_packets();
        match transport.resume() {
            Ok(true) => {
                // The socket is open and watched, so that the change cannot fail.
                let _ = transport.watch_for(&self.poll, index as u64, Interest::Read);
                self.drive(index);
                self.poll_traffic(index);
            }
            Ok(false) => {}
            Err(error) => {
                tally.not_sent += waiting;
                inner.not_sent(waiting, fleet.counters.get(*number as usize).map(Arc::as_ref));
                self.broken(index, &error);
            }
        }
    }

    /// Take what a socket has.
    pub fn read(&mut self, index: usize) {
        for _ in 0..READS {
            let times = self.fleet.times();
            let Self { fleet, clients, buffers, recorder, tally, answers, .. } = self;
            let client = &mut clients[index];
            let Client { number, transport: Some(transport), machine, inner, .. } = client else { return };
            let mut metrics = Metrics {
                recorder,
                pings: &mut tally.pings,
                times,
                counters: fleet.counters.get(*number as usize).map(Arc::as_ref),
            };
            let counted = |machine: &Option<Box<OpenVpnClient>>| {
                machine.as_ref().map_or(Counters::default(), |it| *it.counters())
            };
            let before = counted(machine);
            let (mut is_control, mut received_ns) = (false, None);
            let received = transport.receive(buffers, |arrived_ns, packet| {
                let now_ns = *received_ns.get_or_insert_with(monotonic_ns);
                // A socket without a machine has what was under way when its attempt ended.
                let Some(machine) = machine else { return };
                match machine.handle(now_ns, packet) {
                    Received::Payload(payload) => inner.take(arrived_ns, payload, &mut metrics, answers),
                    Received::Control => is_control = true,
                    Received::Nothing => {}
                }
            });
            tally.count_machine(&before, &counted(machine));
            let now_ns = received_ns.unwrap_or_else(monotonic_ns);
            if is_control {
                self.drive(index);
            } else {
                self.watch_machine(index);
            }
            self.after_packets(index, now_ns);
            match received {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.broken(index, &error),
            }
        }
    }

    /// What packets from inside have called for.
    fn after_packets(&mut self, index: usize, now_ns: u64) {
        if !self.answers.is_empty() {
            let mut answers = std::mem::take(&mut self.answers);
            self.answer(index, now_ns, &answers);
            answers.clear();
            // The memory is kept for the next ones.
            self.answers = answers;
        }
        if matches!(self.clients[index].phase, Phase::Proving | Phase::Overdue | Phase::Contested) {
            self.check_proof(index, now_ns);
        }
        if self.clients[index].inner.has_traffic() {
            self.poll_traffic(index);
        }
    }

    /// Let those whose turn has come begin; says when the next one's is.
    fn begin_arrivals(&mut self, now_ns: u64) -> u64 {
        for _ in 0..BEGIN_BATCH {
            let Some(client) = self.clients.get(self.next_arrival) else { return u64::MAX };
            let due_ns = self.fleet.due_ns(client.number);
            if due_ns > now_ns {
                return due_ns;
            }
            self.begin(self.next_arrival, due_ns, super::client::Occasion::Arrival);
            self.next_arrival += 1;
        }
        now_ns
    }

    /// Let connected clients do what they are to do; says when the next one's turn is.
    fn run_due_actions(&mut self, now_ns: u64) -> u64 {
        let arrivals_ns = self.fleet.times().arrivals_ns;
        let Some(elapsed_ns) = now_ns.checked_sub(arrivals_ns) else { return u64::MAX };
        for _ in 0..BEGIN_BATCH {
            let Some((after_ns, client, action)) = self.actions.take(elapsed_ns) else {
                return self.actions.next_ns().map_or(u64::MAX, |after_ns| arrivals_ns.saturating_add(after_ns));
            };
            self.run_action((client / self.threads) as usize, arrivals_ns + after_ns, action);
        }
        now_ns
    }

    /// Let timers run that have run out, `most` of them; says when the next one does.
    pub fn expire(&mut self, now_ns: u64, most: usize) -> u64 {
        // No more than there are now: what is set while they run has its turn after the sockets.
        for _ in 0..most.min(self.timers.len()) {
            let Some(&Reverse((due_ns, index))) = self.timers.peek() else { break };
            if due_ns > now_ns {
                return due_ns;
            }
            self.timers.pop();
            let client = &mut self.clients[index as usize];
            if client.armed_ns != due_ns {
                continue;
            }
            client.armed_ns = u64::MAX;
            self.on_timer(index as usize, due_ns, monotonic_ns());
        }
        self.timers.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// See to it that a client is woken when something is to be done for it.
    #[inline]
    pub fn rearm(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let due_ns = client.deadline_ns();
        if due_ns < client.armed_ns {
            client.armed_ns = due_ns;
            self.timers.push(Reverse((due_ns, index as u32)));
        }
    }

    /// Data went through a tunnel, which may have worn its keys out, and puts keepalives off.
    #[inline]
    pub fn watch_machine(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(machine) = &client.machine {
            client.machine_due_ns = machine.deadline_ns();
            self.rearm(index);
        }
    }

    /// A client goes on to another phase.
    pub fn enter_phase(&mut self, index: usize, phase: Phase) {
        let client = &mut self.clients[index];
        self.phases[client.phase as usize] -= 1;
        self.phases[phase as usize] += 1;
        client.phase = phase;
    }

    /// Open a client's socket towards the server of its present attempt, from its address and a port that no client has had.
    pub fn open(&mut self, index: usize) -> io::Result<()> {
        let client = &mut self.clients[index];
        let (server, from) = (self.fleet.plan.server(client.remote), self.fleet.plan.bind(client.number));
        let mut transport = TransportSocket::open(server, from, self.is_stamped)?;
        // Kept until another one is found, so that the system does not offer their ports again.
        let mut known = Vec::new();
        while !transport.is_stream() && transport.local().is_some_and(|source| !self.fleet.is_new_source(source)) {
            if known.len() == PORTS_TRIED {
                self.tally.ports_again += 1;
                break;
            }
            known.push(std::mem::replace(&mut transport, TransportSocket::open(server, from, self.is_stamped)?));
        }
        let interest = if transport.is_stream() { Interest::Write } else { Interest::Read };
        transport.watch(&self.poll, index as u64, interest)?;
        client.transport = Some(transport);
        Ok(())
    }

    /// A client needs its socket no more; what that had no room for is counted.
    pub fn close(&mut self, index: usize) -> Option<TransportSocket> {
        let transport = self.clients[index].transport.take()?;
        self.tally.count_drops(&transport);
        Some(transport)
    }

    /// Whether the thread still has something to do by itself.
    fn update_busy(&mut self, now_ns: u64) {
        let in_phase = |phase: Phase| self.phases[phase as usize];
        let trying = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving].map(in_phase);
        let later = [Phase::Overdue, Phase::Resting].map(in_phase);
        let plan = &self.fleet.plan;
        let is_to_come = self.clients.get(self.next_arrival).is_some_and(|next| plan.due_ns(next.number).is_some());
        let is_busy = is_to_come
            || trying.iter().chain(&later).sum::<u32>() > 0
            || self.actions.next_ns().is_some()
            || self.renewals > 0
            || self.carrying > 0
            || self.fleet.is_pinged(now_ns)
            || (plan.traffic.is_some() && self.traffic_phase != TrafficPhase::Begun);
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            self.fleet.set_busy(is_busy);
        }
    }

    fn publish_snapshot(&mut self, meter: &ThreadMeter, now_ns: u64) {
        self.next_snapshot_ns = now_ns + self.snapshot_gap_ns;
        self.accept_silence(now_ns);
        self.tally.phases = self.phases;
        self.snapshots.publish(Snapshot {
            worker: self.number,
            tally: self.tally.clone(),
            errors: self.failures.counts.clone(),
            thread: meter.so_far(now_ns),
        });
    }
}
