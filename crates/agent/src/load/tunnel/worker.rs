//! One thread's clients and the loop that drives them: whose turn has come, whose timer has run out, whose socket has
//! something. Owns the sockets' readiness, the timers and the order of things; what happens to a client is `attempt`'s. Nothing
//! is allocated per packet: packets are received, opened, sealed and sent in the thread's own buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::sync::{mpsc, Arc};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::be_punctual;
use leadline_tunnel::openvpn::client::{Client, Received};
use leadline_tunnel::openvpn::profile::Transport;

use super::carriage::Carriage;
use super::deeds::Deeds;
use super::fleet::Fleet;
use super::inside::Ledger;
use super::link::{Buffers, Link, Outbox};
use super::member::{Member, Phase, PHASES};
use super::report::{Failures, Snapshot, Tally, WorkerReport};
use crate::flows::TURN_NS;
use crate::gate::Gate;
use crate::load::threads::{Recorder, ThreadMeter};

/// Sockets that one wait tells of: between two looks at them timers run.
const READY_BATCH: usize = 64;
/// Clients that begin, or act, before sockets are looked at again.
const BEGIN_BATCH: usize = 16;
/// How often one socket is read before others are looked at.
const READS: usize = 4;
/// The shortest sleep, ns: what falls due in it goes out together at its end, in fewer system calls, and is late by no more
/// than this. A socket that has something ends it.
const SHORTEST_SLEEP_NS: u64 = 200_000;
/// How long the answers to the last pings are waited for, ns.
const LAST_ANSWERS_NS: u64 = 1_000_000_000;
/// How long farewells may take to be acknowledged, ns; when the fleet is stopped.
const FAREWELL_NS: u64 = 1_000_000_000;
const SHORT_FAREWELL_NS: u64 = 300_000_000;

/// See the file's head.
pub struct Worker {
    pub fleet: Arc<Fleet>,
    /// Which thread it is, and of how many.
    pub number: u32,
    pub threads: u32,
    pub members: Vec<Member>,
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
    deeds: Deeds,
    /// The next member whose turn to arrive comes; members come in the order of their numbers.
    next_arrival: usize,
    /// Answers to packets from inside, of the batch that is being read.
    answers: Vec<u8>,
    pub carriage: Carriage,
    /// Renewals that were asked for and have not come.
    pub renewals: u32,
    /// Clients that carry load.
    pub carrying: u32,
    is_busy: bool,
    /// The fleet leaves: what ends now is no failure, and nothing begins any more.
    pub is_departing: bool,
    snapshots: mpsc::Sender<Snapshot>,
    snapshot_gap_ns: u64,
    next_snapshot_ns: u64,
}

/// What a worker is made of.
pub struct Parts {
    pub fleet: Arc<Fleet>,
    pub number: u32,
    pub threads: u32,
    pub recorder: Recorder,
    pub snapshots: mpsc::Sender<Snapshot>,
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
        let members: Vec<Member> = (number..plan.clients).step_by(threads as usize).map(Member::new).collect();
        let mut phases = [0; PHASES];
        phases[Phase::Waiting as usize] = members.len() as u32;
        let has = |transport| plan.remotes.iter().any(|remote| remote.transport == transport);
        let mut worker = Self {
            deeds: Deeds::new(&plan.actions, plan.clients, number, threads),
            buffers: Buffers::new(has(Transport::Udp), has(Transport::Tcp)),
            number,
            threads,
            members,
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
            carriage: Carriage::default(),
            renewals: 0,
            carrying: 0,
            is_busy: true,
            is_departing: false,
            snapshots,
            snapshot_gap_ns,
            next_snapshot_ns: 0,
            fleet,
        };
        if worker.fleet.plan.server(0).transport == Transport::Udp {
            for index in 0..worker.members.len() {
                worker.open(index, None)?;
            }
        }
        Ok(worker)
    }

    /// The thread's whole life from the start on.
    pub fn run(mut self, gate: &Gate) -> io::Result<WorkerReport> {
        be_punctual();
        // A thread's source of random numbers takes long to begin, which is no client's time.
        let plan = &self.fleet.plan;
        drop(Client::new(&plan.config, plan.identity(self.number), monotonic_ns()));
        gate.sleep_until(self.fleet.at_ns());
        let meter = ThreadMeter::begin(format!("tunnel-{}", self.number), monotonic_ns());
        let mut now_ns = monotonic_ns();
        while now_ns < self.fleet.end_ns() && !gate.stopped() && !self.fleet.is_done() {
            self.turn(now_ns, self.fleet.end_ns())?;
            now_ns = monotonic_ns();
            if now_ns >= self.next_snapshot_ns {
                self.tell_standing(&meter, now_ns);
            }
        }
        self.depart(gate)?;
        let thread = meter.end(monotonic_ns());
        self.tally.phases = self.phases;
        let rows = self.members.iter().map(Member::report).collect();
        let figures = self.members.iter_mut().filter_map(|member| member.inside.figures.take()).map(|one| *one);
        let figures = figures.collect();
        let Self { recorder, tally, failures, .. } = self;
        recorder.finish();
        Ok(WorkerReport { thread, tally, failures, rows, figures })
    }

    /// Let everything happen that is due, then wait for what comes, until `until_ns` at most.
    fn turn(&mut self, now_ns: u64, until_ns: u64) -> io::Result<()> {
        let mut next_ns = self.begin_arrivals(now_ns).min(self.do_deeds(now_ns));
        self.look_after_traffic(now_ns);
        next_ns = next_ns.min(self.expire(now_ns));
        self.recorder.roll(now_ns);
        self.tell_busy(now_ns);
        // What is due already is not waited for.
        let next_ns = if next_ns > now_ns { next_ns.max(now_ns + SHORTEST_SLEEP_NS) } else { now_ns };
        self.look(until_ns.min(next_ns).min(now_ns + TURN_NS))
    }

    /// Wait for sockets until an instant, and serve those that have something; timers run in between.
    fn look(&mut self, until_ns: u64) -> io::Result<()> {
        let mut ready = [Ready { token: 0, readable: false, writable: false }; READY_BATCH];
        let mut count = 0;
        for (slot, source) in ready.iter_mut().zip(self.poll.wait(Some(until_ns))?) {
            *slot = source;
            count += 1;
        }
        for source in &ready[..count] {
            self.serve(source.token as usize, *source);
            if !self.timers.is_empty() {
                self.expire(monotonic_ns());
            }
        }
        Ok(())
    }

    fn serve(&mut self, index: usize, source: Ready) {
        let Some(member) = self.members.get_mut(index) else { return };
        if source.writable {
            if member.phase == Phase::Connecting {
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
        let Some(link) = &mut self.members[index].link else { return };
        match link.resume() {
            Ok(true) => {
                // The socket is open and watched, so that the change cannot fail.
                let _ = link.watch_for(&self.poll, index as u64, Interest::Read);
                self.drive(index);
                self.poll_inside(index, monotonic_ns());
            }
            Ok(false) => {}
            Err(error) => self.broken(index, &error),
        }
    }

    /// Take what a socket has.
    fn read(&mut self, index: usize) {
        for _ in 0..READS {
            let times = self.fleet.times();
            let Self { fleet, members, buffers, recorder, tally, answers, .. } = self;
            let member = &mut members[index];
            let Member { number, link: Some(link), machine, inside, .. } = member else { return };
            let settled = fleet.plan.settled;
            let mut ledger = Ledger {
                recorder,
                pings: &mut tally.pings,
                times,
                is_witness: settled == 0 || *number < settled,
                counters: fleet.counters.get(*number as usize).map(Arc::as_ref),
            };
            let (mut is_control, mut received_ns) = (false, None);
            let received = link.receive(buffers, |packet| {
                let now_ns = *received_ns.get_or_insert_with(monotonic_ns);
                // A socket without a machine has what was under way when its attempt ended.
                let Some(machine) = machine else { return };
                match machine.handle(now_ns, packet) {
                    Received::Payload(payload) => inside.take(now_ns, payload, &mut ledger, answers),
                    Received::Control => is_control = true,
                    Received::Nothing => {}
                }
            });
            let now_ns = received_ns.unwrap_or_else(monotonic_ns);
            if is_control {
                self.drive(index);
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
        if matches!(self.members[index].phase, Phase::Proving | Phase::Overdue) {
            self.look_at_proof(index, now_ns);
        }
        if self.members[index].inside.has_traffic() {
            self.poll_inside(index, now_ns);
        }
    }

    /// Let those whose turn has come begin; says when the next one's is.
    fn begin_arrivals(&mut self, now_ns: u64) -> u64 {
        for _ in 0..BEGIN_BATCH {
            let Some(member) = self.members.get(self.next_arrival) else { return u64::MAX };
            let due_ns = self.fleet.due_ns(member.number);
            if due_ns > now_ns {
                return due_ns;
            }
            self.begin(self.next_arrival, due_ns, super::member::Occasion::Arrival);
            self.next_arrival += 1;
        }
        now_ns
    }

    /// Let connected clients do what they are to do; says when the next one's turn is.
    fn do_deeds(&mut self, now_ns: u64) -> u64 {
        let arrivals_ns = self.fleet.times().arrivals_ns;
        let Some(elapsed_ns) = now_ns.checked_sub(arrivals_ns) else { return u64::MAX };
        for _ in 0..BEGIN_BATCH {
            let Some((after_ns, client, deed)) = self.deeds.take(elapsed_ns) else {
                return self.deeds.next_ns().map_or(u64::MAX, |after_ns| arrivals_ns.saturating_add(after_ns));
            };
            self.act((client / self.threads) as usize, arrivals_ns + after_ns, deed);
        }
        now_ns
    }

    /// Let timers run that have run out; says when the next one does.
    fn expire(&mut self, now_ns: u64) -> u64 {
        // As many as there are now: what is set while they run has its turn after the sockets.
        for _ in 0..self.timers.len() {
            let Some(&Reverse((due_ns, index))) = self.timers.peek() else { break };
            if due_ns > now_ns {
                return due_ns;
            }
            self.timers.pop();
            let member = &mut self.members[index as usize];
            if member.armed_ns != due_ns {
                continue;
            }
            member.armed_ns = u64::MAX;
            self.wake(index as usize, monotonic_ns());
        }
        self.timers.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// See to it that a client is woken when something is to be done for it.
    #[inline]
    pub fn rearm(&mut self, index: usize) {
        let member = &mut self.members[index];
        let due_ns = member.deadline_ns();
        if due_ns < member.armed_ns {
            member.armed_ns = due_ns;
            self.timers.push(Reverse((due_ns, index as u32)));
        }
    }

    /// A client goes on to another phase.
    pub fn enter(&mut self, index: usize, phase: Phase) {
        let member = &mut self.members[index];
        self.phases[member.phase as usize] -= 1;
        self.phases[phase as usize] += 1;
        member.phase = phase;
    }

    /// Open a client's socket towards the server of its present attempt, from this address and port where they are given.
    pub fn open(&mut self, index: usize, local: Option<SocketAddr>) -> io::Result<()> {
        let member = &mut self.members[index];
        let server = self.fleet.plan.server(member.remote);
        let from = local.map(|local| local.ip()).or(self.fleet.plan.bind(member.number));
        let link = Link::open(server, from, local.map_or(0, |local| local.port()))?;
        let interest = if link.is_stream() { Interest::Write } else { Interest::Read };
        link.watch(&self.poll, index as u64, interest)?;
        member.link = Some(link);
        Ok(())
    }

    /// Whether the thread still has something to do by itself.
    fn tell_busy(&mut self, now_ns: u64) {
        let in_phase = |phase: Phase| self.phases[phase as usize];
        let on_the_way = [Phase::Connecting, Phase::Negotiating, Phase::Proving, Phase::Overdue, Phase::Resting];
        let on_the_way = on_the_way.map(in_phase);
        let plan = &self.fleet.plan;
        let is_to_come = self.members.get(self.next_arrival).is_some_and(|next| plan.due_ns(next.number).is_some());
        let is_busy = is_to_come
            || on_the_way.iter().sum::<u32>() > 0
            || self.deeds.next_ns().is_some()
            || self.renewals > 0
            || self.carrying > 0
            || self.fleet.is_pinged(now_ns)
            || (plan.traffic.is_some() && self.carriage != Carriage::Begun);
        if is_busy != self.is_busy {
            self.is_busy = is_busy;
            self.fleet.set_busy(is_busy);
        }
    }

    fn tell_standing(&mut self, meter: &ThreadMeter, now_ns: u64) {
        self.next_snapshot_ns = now_ns + self.snapshot_gap_ns;
        self.tally.phases = self.phases;
        // The task's thread only goes away when nobody wants the figures.
        let _ = self.snapshots.send(Snapshot {
            worker: self.number,
            tally: self.tally.clone(),
            errors: self.failures.counts.clone(),
            thread: meter.so_far(now_ns),
        });
    }

    /// The time is over: wait for the last answers, end the traffic, and leave in order.
    fn depart(&mut self, gate: &Gate) -> io::Result<()> {
        let began_ns = monotonic_ns();
        for index in 0..self.members.len() {
            self.end_inside(index, began_ns);
        }
        let answers_ns = self.tally.pings.last_ns + LAST_ANSWERS_NS;
        let mut now_ns = began_ns;
        while self.tally.pings.answered < self.tally.pings.sent && now_ns < answers_ns && !gate.stopped() {
            self.look(answers_ns.min(now_ns + TURN_NS))?;
            now_ns = monotonic_ns();
        }
        let patience_ns = if gate.stopped() { SHORT_FAREWELL_NS } else { FAREWELL_NS };
        let until_ns = now_ns + patience_ns;
        self.is_departing = true;
        for index in 0..self.members.len() {
            self.leave(index, now_ns);
        }
        while now_ns < until_ns && !gate.abandoned() && self.is_anyone_leaving() {
            self.expire(now_ns);
            self.look(until_ns.min(now_ns + TURN_NS / 10))?;
            now_ns = monotonic_ns();
        }
        Ok(())
    }
}
