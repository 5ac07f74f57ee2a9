//! One thread's clients and the loop that drives them: whose turn has come, whose timer has run out, whose socket has
//! something. Owns the sockets' readiness, the timers and the order of things; what happens to a client is `attempt`'s. Nothing
//! is allocated per packet: packets are received, opened, sealed and sent in the thread's own buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::poll::{Interest, Poll, Ready};
use leadline_sys::priority::be_punctual;
use leadline_tunnel::openvpn::client::{Client, Counters, Received};
use leadline_tunnel::openvpn::profile::Transport;

use super::carriage::Carriage;
use super::fleet::Fleet;
use super::gathering::Gathering;
use super::inside::Ledger;
use super::link::{Buffers, Link, Outbox};
use super::member::{Member, Phase, PHASES};
use super::report::{Failures, Snapshot, Tally, WorkerReport};
use super::scheduled_actions::Deeds;
use super::through::Pinging;
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
    pub pinging: Pinging,
    pub carriage: Carriage,
    /// Renewals that were asked for and have not come.
    pub renewals: u32,
    /// Clients that carry load.
    pub carrying: u32,
    /// Whether sockets tell when the kernel had what came.
    is_stamped: bool,
    gathering: Gathering,
    is_busy: bool,
    /// The fleet leaves: what ends now is no failure, and nothing begins any more.
    pub is_departing: bool,
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
        let member = |number| Member::new(number, plan.first_remote(number));
        let members: Vec<Member> = (number..plan.clients).step_by(threads as usize).map(member).collect();
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
            pinging: Pinging::default(),
            carriage: Carriage::default(),
            renewals: 0,
            carrying: 0,
            // A stream's packets have no stamps of their own.
            is_stamped: !has(Transport::Tcp) && plan.traffic.as_ref().is_some_and(|traffic| traffic.times_packets()),
            gathering: Gathering::default(),
            is_busy: true,
            is_departing: false,
            snapshots,
            snapshot_gap_ns,
            next_snapshot_ns: 0,
            fleet,
        };
        for index in 0..worker.members.len() {
            if worker.fleet.plan.server(worker.members[index].remote).transport == Transport::Udp {
                worker.open(index)?;
            }
        }
        Ok(worker)
    }

    /// The thread's whole life from the start on.
    pub fn run(mut self, signal: &ControlSignal) -> io::Result<WorkerReport> {
        be_punctual();
        // A thread's source of random numbers takes long to begin, which is no client's time.
        let plan = &self.fleet.plan;
        drop(Client::new(&plan.config, plan.identity(self.number), monotonic_ns()));
        signal.sleep_until(self.fleet.at_ns());
        let meter = ThreadMeter::begin(format!("tunnel-{}", self.number), monotonic_ns());
        let mut now_ns = monotonic_ns();
        while now_ns < self.fleet.end_ns() && !signal.stopped() && !self.fleet.is_done() {
            self.turn(now_ns, self.fleet.end_ns(), signal)?;
            now_ns = monotonic_ns();
            if now_ns >= self.next_snapshot_ns {
                self.tell_standing(&meter, now_ns);
            }
        }
        self.depart(signal)?;
        let ended_ns = monotonic_ns();
        let thread = Some(meter.end(ended_ns));
        self.tally.phases = self.phases;
        self.members.iter().filter_map(|member| member.link.as_ref()).for_each(|link| self.tally.count_drops(link));
        let rows = self.members.iter().map(Member::report).collect();
        let attempts = self.members.iter().flat_map(|member| member.log.reports(member.number, member.attempt()));
        let attempts = attempts.collect();
        let packet_sizes = self.members.iter().find_map(|member| member.inside.packet_sizes());
        // A fleet whose tunnels have all gone ends before the traffic's time is over.
        let last_ns = if signal.stopped() { ended_ns } else { self.fleet.end_ns() };
        let over_ns = self.fleet.traffic_over_ns().min(last_ns);
        let figures = self.members.iter_mut().filter_map(|member| member.inside.take_figures(over_ns)).collect();
        let Self { recorder, tally, failures, .. } = self;
        recorder.finish();
        Ok(WorkerReport { thread, tally, failures, rows, attempts, packet_sizes, figures })
    }

    /// Let everything happen that is due, then wait for what comes, until `until_ns` at most.
    fn turn(&mut self, now_ns: u64, until_ns: u64, signal: &ControlSignal) -> io::Result<()> {
        self.begin_pings();
        self.take_freed(now_ns);
        let mut next_ns = self.begin_arrivals(now_ns).min(self.do_deeds(now_ns));
        self.look_after_traffic(now_ns);
        next_ns = next_ns.min(self.expire(now_ns, TIMER_BATCH));
        self.recorder.roll(now_ns);
        self.tell_busy(now_ns);
        // What is due already is not waited for.
        let next_ns = if next_ns > now_ns { next_ns.max(now_ns + SHORTEST_SLEEP_NS) } else { now_ns };
        self.look(until_ns.min(next_ns).min(now_ns + TURN_NS), || signal.stopped())
    }

    /// Wait for sockets until an instant, and serve those that have something, until `is_over`; timers run in between.
    pub fn look(&mut self, until_ns: u64, is_over: impl Fn() -> bool) -> io::Result<()> {
        if let (true, Some(next_ns)) = (self.is_stamped && self.carrying > 0, self.gathering.next_ns()) {
            sleep_until(next_ns.min(until_ns));
        }
        let mut ready = [Ready { token: 0, readable: false, writable: false }; READY_BATCH];
        let mut count = 0;
        for (slot, source) in ready.iter_mut().zip(self.poll.wait(Some(until_ns))?) {
            *slot = source;
            count += 1;
        }
        if self.is_stamped {
            self.gathering.looked(monotonic_ns(), count > 0);
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
        let Self { members, tally, fleet, .. } = self;
        let Member { number, link: Some(link), inside, .. } = &mut members[index] else { return };
        let waiting = link.waiting_packets();
        match link.resume() {
            Ok(true) => {
                // The socket is open and watched, so that the change cannot fail.
                let _ = link.watch_for(&self.poll, index as u64, Interest::Read);
                self.drive(index);
                self.poll_inside(index);
            }
            Ok(false) => {}
            Err(error) => {
                tally.not_sent += waiting;
                inside.not_sent(waiting, fleet.counters.get(*number as usize).map(Arc::as_ref));
                self.broken(index, &error);
            }
        }
    }

    /// Take what a socket has.
    pub fn read(&mut self, index: usize) {
        for _ in 0..READS {
            let times = self.fleet.times();
            let Self { fleet, members, buffers, recorder, tally, answers, .. } = self;
            let member = &mut members[index];
            let Member { number, link: Some(link), machine, inside, .. } = member else { return };
            let mut ledger = Ledger {
                recorder,
                pings: &mut tally.pings,
                times,
                counters: fleet.counters.get(*number as usize).map(Arc::as_ref),
            };
            let counted =
                |machine: &Option<Box<Client>>| machine.as_ref().map_or(Counters::default(), |it| *it.counters());
            let before = counted(machine);
            let (mut is_control, mut received_ns) = (false, None);
            let received = link.receive(buffers, |arrived_ns, packet| {
                let now_ns = *received_ns.get_or_insert_with(monotonic_ns);
                // A socket without a machine has what was under way when its attempt ended.
                let Some(machine) = machine else { return };
                match machine.handle(now_ns, packet) {
                    Received::Payload(payload) => inside.take(arrived_ns, payload, &mut ledger, answers),
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
        if matches!(self.members[index].phase, Phase::Proving | Phase::Overdue | Phase::Contested) {
            self.look_at_proof(index, now_ns);
        }
        if self.members[index].inside.has_traffic() {
            self.poll_inside(index);
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

    /// Let timers run that have run out, `most` of them; says when the next one does.
    pub fn expire(&mut self, now_ns: u64, most: usize) -> u64 {
        // No more than there are now: what is set while they run has its turn after the sockets.
        for _ in 0..most.min(self.timers.len()) {
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
            self.wake(index as usize, due_ns, monotonic_ns());
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

    /// Data went through a tunnel, which may have worn its keys out, and puts keepalives off.
    #[inline]
    pub fn watch_machine(&mut self, index: usize) {
        let member = &mut self.members[index];
        if let Some(machine) = &member.machine {
            member.machine_due_ns = machine.deadline_ns();
            self.rearm(index);
        }
    }

    /// A client goes on to another phase.
    pub fn enter(&mut self, index: usize, phase: Phase) {
        let member = &mut self.members[index];
        self.phases[member.phase as usize] -= 1;
        self.phases[phase as usize] += 1;
        member.phase = phase;
    }

    /// Open a client's socket towards the server of its present attempt, from its address and a port that no client has had.
    pub fn open(&mut self, index: usize) -> io::Result<()> {
        let member = &mut self.members[index];
        let (server, from) = (self.fleet.plan.server(member.remote), self.fleet.plan.bind(member.number));
        let mut link = Link::open(server, from, self.is_stamped)?;
        // Kept until another one is found, so that the system does not offer their ports again.
        let mut known = Vec::new();
        while !link.is_stream() && link.local().is_some_and(|source| !self.fleet.is_new_source(source)) {
            if known.len() == PORTS_TRIED {
                self.tally.ports_again += 1;
                break;
            }
            known.push(std::mem::replace(&mut link, Link::open(server, from, self.is_stamped)?));
        }
        let interest = if link.is_stream() { Interest::Write } else { Interest::Read };
        link.watch(&self.poll, index as u64, interest)?;
        member.link = Some(link);
        Ok(())
    }

    /// A client needs its socket no more; what that had no room for is counted.
    pub fn close(&mut self, index: usize) -> Option<Link> {
        let link = self.members[index].link.take()?;
        self.tally.count_drops(&link);
        Some(link)
    }

    /// Whether the thread still has something to do by itself.
    fn tell_busy(&mut self, now_ns: u64) {
        let in_phase = |phase: Phase| self.phases[phase as usize];
        let trying = [Phase::Connecting, Phase::Asking, Phase::Negotiating, Phase::Proving].map(in_phase);
        let later = [Phase::Overdue, Phase::Resting].map(in_phase);
        let plan = &self.fleet.plan;
        let is_to_come = self.members.get(self.next_arrival).is_some_and(|next| plan.due_ns(next.number).is_some());
        let is_busy = is_to_come
            || trying.iter().chain(&later).sum::<u32>() > 0
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
