//! The machine of a replay: the sessions of the source that one thread sends, each as a user. A request is sent at its due
//! time. If it began in the source after the answer before it, it waits for that answer here too, because it may depend on
//! it; what overlapped in the source may overlap here. Owns lateness: from when a request could be sent until it was, which
//! is the generator's own, and from when it was due, which the target's slowness adds to.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::Arc;

use leadline_wire::scenario::SampleRule;

use super::counts::ReplayCounts;
use super::request::{Answer, AnswerUse, OpenRecord, ReplayRequest, Role};
use super::session::{failure_of, outgoing, Outcome, Sent, Session};
use crate::browser::cookies::Destination;
use crate::executors::Limits;
use crate::figures::{Age, End, Figures, Slow};
use crate::program::Program;
use crate::programs::flow::{Effect, ExchangeEnd, ExchangeFailure, Send};
use crate::samples::{Sample, Samples};
use crate::shared::{Shared, Stop};
use crate::users::Users;

/// A request that is sent later than this after it could be counts as late, ns.
const LATE_NS: u64 = 1_000_000;
/// How often the machine looks for requests that have been read meanwhile, ns.
const LOOK_NS: u64 = 1_000_000;
/// Requests that wait in the machine for their time; the others wait at the reader.
const MAX_UPCOMING: usize = 2_048;
/// Bytes of those requests, about.
const MAX_UPCOMING_BYTES: usize = 16 << 20;
/// Bytes of requests that wait for the answers before them; a target that falls further behind drops requests.
const MAX_WAITING_BYTES: usize = 256 << 20;
/// Requests that are begun before sockets have their turn.
const MAX_BEGUN_AT_ONCE: usize = 512;
/// How long requests are awaited after the time is over or after a stop, ns.
const GRACE_NS: u64 = 5_000_000_000;
/// A session that has sent nothing for this long is forgotten, with its cookies, ns.
const IDLE_NS: u64 = 3_600_000_000_000;
/// Bytes of answers that wait for those of the record's other roles; beyond, answers are not compared.
const MAX_OPEN_BYTES: usize = 128 << 20;

/// The users of one thread of a replay.
pub struct Replayed {
    program: Arc<Program>,
    shared: Arc<Shared>,
    limits: Limits,
    /// The difference between the clock of cookies' expiry and that of the machine, ns.
    wall_offset_ns: i64,
    answers: AnswerUse,
    inbox: Option<Receiver<Vec<ReplayRequest>>>,
    /// When the reader last had nothing more, ns.
    empty_ns: Option<u64>,
    upcoming: VecDeque<ReplayRequest>,
    upcoming_bytes: usize,
    sessions: HashMap<u64, u32>,
    slots: Vec<Option<Box<Session>>>,
    vacant: Vec<u32>,
    /// Sessions in the order in which they were used last; one that was used since is here once more.
    used: VecDeque<(u32, u64)>,
    /// Records of which not all roles have an answer.
    open_records: HashMap<u64, OpenRecord>,
    /// Bytes of their answers.
    open_bytes: usize,
    next_exchange: u32,
    outstanding: u64,
    waiting: u64,
    waiting_bytes: usize,
    max_waiting_bytes: usize,
    effects: VecDeque<Effect>,
    figures: Figures,
    samples: Option<Samples>,
    counts: ReplayCounts,
    /// When no further request begins, ns, if the replay's time is over or it was stopped.
    over_ns: Option<u64>,
}

impl Replayed {
    /// Returns users that have not begun. The requests come through `inbox`, in the order in which they are due; it ends
    /// with them.
    #[must_use]
    pub fn new(
        program: Arc<Program>,
        shared: Arc<Shared>,
        limits: Limits,
        wall_offset_ns: i64,
        answers: AnswerUse,
        inbox: Option<Receiver<Vec<ReplayRequest>>>,
    ) -> Self {
        let mut figures = Figures::new(&program);
        figures.warm_until_ns = limits.at_ns.saturating_add(limits.warmup_ns);
        shared.population(0).begin(limits.at_ns);
        Self {
            program,
            shared,
            limits,
            wall_offset_ns,
            answers,
            inbox,
            empty_ns: None,
            max_waiting_bytes: MAX_WAITING_BYTES,
            open_bytes: 0,
            upcoming: VecDeque::new(),
            upcoming_bytes: 0,
            sessions: HashMap::new(),
            slots: Vec::new(),
            vacant: Vec::new(),
            used: VecDeque::new(),
            open_records: HashMap::new(),
            next_exchange: 0,
            outstanding: 0,
            waiting: 0,
            waiting_bytes: 0,
            effects: VecDeque::new(),
            figures,
            samples: None,
            counts: ReplayCounts::default(),
            over_ns: None,
        }
    }

    /// Bounds the bytes of requests that wait for the answers before them.
    #[cfg(test)]
    pub(super) fn bound_waiting(&mut self, bytes: usize) {
        self.max_waiting_bytes = bytes;
    }

    /// Says which requests are wanted one by one.
    pub fn keep_samples(&mut self, rule: Option<&SampleRule>) {
        match rule {
            None => {}
            Some(SampleRule::Slowest { count }) => {
                self.figures.slowest_most = *count as usize;
                self.figures.slowest_with_urls = true;
            }
            Some(SampleRule::All { with_urls }) => self.samples = Some(Samples::new(&self.program, *with_urls)),
        }
    }

    /// What it counts beside its figures.
    #[must_use]
    pub fn counts(&self) -> &ReplayCounts {
        &self.counts
    }

    /// Takes what the reader has passed on.
    fn take_read(&mut self, now_ns: u64) {
        while self.has_room() {
            let Some(inbox) = &self.inbox else { return };
            match inbox.try_recv() {
                Ok(batch) => {
                    // Late are those that were not there when this thread looked for them.
                    let looked_ns = self.empty_ns.unwrap_or(0);
                    let is_late = |request: &&ReplayRequest| self.due_ns(request).saturating_add(LATE_NS) < looked_ns;
                    self.counts.read_late += batch.iter().filter(is_late).count() as u64;
                    self.upcoming_bytes += batch.iter().map(ReplayRequest::memory_bytes).sum::<usize>();
                    self.upcoming.extend(batch);
                }
                Err(TryRecvError::Empty) => {
                    self.empty_ns = Some(now_ns);
                    return;
                }
                Err(TryRecvError::Disconnected) => self.inbox = None,
            }
        }
    }

    /// Whether further requests may wait here for their time.
    fn has_room(&self) -> bool {
        self.upcoming.len() < MAX_UPCOMING && self.upcoming_bytes < MAX_UPCOMING_BYTES
    }

    fn due_ns(&self, request: &ReplayRequest) -> u64 {
        self.limits.at_ns.saturating_add(request.due_ns)
    }

    /// Ends what has not begun, if the time is over or the replay was stopped.
    fn end_if_over(&mut self, now_ns: u64) {
        let end_ns = self.limits.at_ns.saturating_add(self.limits.duration_ns);
        let is_stopped = self.shared.stopped(self.program.populations[0].phase) != Stop::No;
        if self.over_ns.is_none() && (now_ns >= end_ns || is_stopped) {
            self.end(now_ns.min(end_ns));
        }
    }

    /// Ends what has not begun by an instant.
    fn end(&mut self, over_ns: u64) {
        self.over_ns = Some(over_ns);
        let unread = self.inbox.take().into_iter().flat_map(|inbox| inbox.try_iter().collect::<Vec<_>>());
        self.upcoming.extend(unread.flatten());
        let due = self.upcoming.iter().filter(|request| self.due_ns(request) < over_ns).count() as u64;
        self.upcoming.clear();
        (self.upcoming_bytes, self.waiting_bytes) = (0, 0);
        let mut waiting = 0;
        for session in self.slots.iter_mut().flatten() {
            waiting += session.waiting.len() as u64;
            session.waiting.clear();
        }
        self.waiting = 0;
        let iterations = &mut self.figures.populations[0].iterations;
        iterations.due += due;
        iterations.not_begun += due + waiting;
    }

    /// Lets a request begin whose time has come, or wait for the answer before it.
    fn take_due(&mut self, request: ReplayRequest, now_ns: u64) {
        self.figures.populations[0].iterations.due += 1;
        let slot = self.session(request.session, now_ns);
        let Some(session) = &mut self.slots[slot as usize] else { return };
        if !session.waiting.is_empty() || session.awaits_answer_before(&request) {
            let bytes = request.memory_bytes();
            if self.waiting_bytes + bytes > self.max_waiting_bytes {
                self.figures.populations[0].iterations.dropped += 1;
                self.compare(&request, None);
                return;
            }
            session.waiting.push_back(request);
            self.counts.waited += 1;
            (self.waiting, self.waiting_bytes) = (self.waiting + 1, self.waiting_bytes + bytes);
        } else {
            let ready_ns = self.due_ns(&request);
            self.begin(slot, request, ready_ns, now_ns);
        }
    }

    /// The place of a session.
    fn session(&mut self, key: u64, now_ns: u64) -> u32 {
        if let Some(slot) = self.sessions.get(&key) {
            return *slot;
        }
        let number = self.shared.population(0).users.fetch_add(1, Relaxed) + 1;
        let session = Session { key, number, used_ns: now_ns, ..Session::default() };
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(Box::new(session));
        self.sessions.insert(key, slot);
        self.used.push_back((slot, now_ns));
        self.counts.sessions += 1;
        let figures = &mut self.figures.populations[0];
        (figures.users_begun, figures.users) = (figures.users_begun + 1, self.sessions.len() as u64);
        figures.users_most = figures.users_most.max(figures.users);
        slot
    }

    /// Sends a request of a session that could be sent since `ready_ns`.
    fn begin(&mut self, slot: u32, request: ReplayRequest, ready_ns: u64, now_ns: u64) {
        let due_ns = self.due_ns(&request);
        let now_s = (now_ns as i64).wrapping_add(self.wall_offset_ns).div_euclid(1_000_000_000);
        let Some(session) = &mut self.slots[slot as usize] else { return };
        let (outgoing, replaced) = outgoing(session, &request, now_s);
        self.counts.replaced += replaced;
        self.counts.behind.record(now_ns.saturating_sub(due_ns));
        let late_ns = now_ns.saturating_sub(ready_ns);
        let population = &mut self.figures.populations[0];
        population.iterations.begun += 1;
        population.iterations.running += 1;
        population.iterations.late += u64::from(late_ns > LATE_NS);
        population.record(2, late_ns);
        let exchange = self.next_exchange;
        self.next_exchange = exchange.wrapping_add(1);
        session.used_ns = now_ns;
        let send = Send {
            user: slot,
            exchange,
            outgoing,
            due_ns,
            label: Some(request.label),
            connect_timeout_ns: None,
            response_timeout_ns: None,
            keeps_head: true,
            keeps_body: request.roles > 1 || request.has_body_before(),
        };
        session.outstanding.push(Sent { exchange, request, due_ns });
        self.outstanding += 1;
        self.effects.push_back(Effect::Send(Box::new(send)));
    }

    /// Takes a request out of those that await their answers.
    fn take_sent(&mut self, slot: u32, exchange: u32) -> Option<Sent> {
        let session = self.slots.get_mut(slot as usize)?.as_mut()?;
        let place = session.outstanding.iter().position(|sent| sent.exchange == exchange)?;
        self.outstanding -= 1;
        Some(session.outstanding.swap_remove(place))
    }

    /// Takes the answer's cookies and values, and compares it.
    fn take_answer(&mut self, slot: u32, request: &ReplayRequest, end: &ExchangeEnd<'_>, now_ns: u64) {
        let now_s = (now_ns as i64).wrapping_add(self.wall_offset_ns).div_euclid(1_000_000_000);
        let Some(session) = &mut self.slots[slot as usize] else { return };
        let fields = end.head.lines().filter_map(|line| line.split_once(": "));
        for (_, value) in fields.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
            session.jar.receive(value, &Destination::of(&request.url, now_s));
        }
        let before = request.before.as_ref();
        let has_details = before.is_some_and(|before| before.body.is_some() || !before.head.is_empty());
        if request.roles == 1 && !has_details {
            if let Some(was) = before.and_then(|before| before.status).filter(|_| self.answers.compares) {
                self.counts.differences.compare_status(request.label, was, end.status);
            }
            return;
        }
        let answer = Answer::received(end);
        if let Some(before) = before.filter(|_| self.answers.correlates) {
            session.values.learn(before, &answer);
        }
        self.compare(request, Some(answer));
    }

    /// Compares an answer with that of the source, or with those of the record's other roles once all are there.
    fn compare(&mut self, request: &ReplayRequest, answer: Option<Answer>) {
        let differences = &mut self.counts.differences;
        if request.roles == 1 {
            if let (Some(before), Some(answer), true) = (&request.before, answer, self.answers.compares) {
                differences.compare(request.label, before, &answer);
            }
            return;
        }
        let record = self.open_records.entry(request.record).or_insert_with(|| OpenRecord {
            left: request.roles,
            label: request.label,
            before: None,
            bytes: 0,
            answers: [None, None, None],
        });
        record.left -= 1;
        let bytes = answer.as_ref().map_or(0, Answer::memory_bytes);
        if record.left > 0 && self.open_bytes + bytes > MAX_OPEN_BYTES {
            differences.not_compared += 1;
        } else {
            record.answers[request.role as usize] = answer;
            (record.bytes, self.open_bytes) = (record.bytes + bytes, self.open_bytes + bytes);
        }
        if request.role == Role::First {
            (record.label, record.before) = (request.label, request.before.clone());
        }
        if record.left > 0 {
            return;
        }
        let Some(OpenRecord { label, before, bytes, answers: [first, again, second], .. }) =
            self.open_records.remove(&request.record)
        else {
            return;
        };
        self.open_bytes -= bytes;
        if let (Some(first), Some(again)) = (&first, &again) {
            differences.notice_noise(label, first, again);
        }
        match (&first, &second, &before) {
            (Some(first), Some(second), _) => differences.compare(label, first, second),
            (Some(first), None, Some(before)) if self.answers.compares => differences.compare(label, before, first),
            _ => {}
        }
    }

    /// Continues a session after the end of an exchange.
    fn go_on(&mut self, slot: u32, now_ns: u64) {
        let Some(session) = &mut self.slots[slot as usize] else { return };
        session.answered_ns = now_ns;
        if self.over_ns.is_some() {
            return;
        }
        while let Some(session) = &mut self.slots[slot as usize] {
            let Some(next) = session.waiting.front() else { return };
            if session.awaits_answer_before(next) {
                return;
            }
            let ready_ns = self.limits.at_ns.saturating_add(next.due_ns).max(session.answered_ns);
            if let Some(next) = session.waiting.pop_front() {
                self.waiting -= 1;
                self.waiting_bytes -= next.memory_bytes();
                self.begin(slot, next, ready_ns, now_ns);
            }
        }
    }

    /// Records the end of a request.
    fn record(&mut self, slot: u32, sent: &Sent, end: &Outcome, now_ns: u64) {
        let Sent { request, due_ns, .. } = sent;
        let since_due = |at_ns: u64| at_ns.saturating_sub(*due_ns);
        let since_sent = |at_ns: Option<u64>| Some(at_ns?.saturating_sub(end.sent_ns?));
        let elapsed_ns = since_due(end.done_ns.unwrap_or(now_ns));
        let number = self.slots[slot as usize].as_ref().map_or(0, |session| session.number);
        let label = &mut self.figures.labels[request.label as usize];
        label.sent_bytes += end.sent_bytes;
        label.received_bytes += end.received_bytes;
        if self.figures.is_slow(elapsed_ns) {
            let url = self.figures.slowest_with_urls.then(|| request.url.absolute());
            self.figures.keep_slow(Slow {
                latency_ns: elapsed_ns,
                label: request.label,
                user: number,
                due_ns: *due_ns,
                before_sent_ns: since_due(end.sent_ns.unwrap_or(now_ns)),
                first_byte_ns: since_sent(end.first_ns),
                status: end.status,
                error: end.failure.as_ref().map(|(cause, _)| cause.to_string()),
                opening: end.opening,
                url,
            });
        }
        if let Some(samples) = &mut self.samples {
            let url = samples.with_urls.then(|| request.url.absolute());
            let active = self.sessions.len() as u32;
            let sample = Sample {
                label: request.label,
                user: number,
                due_ns: *due_ns,
                elapsed_ns,
                before_sent_ns: end.sent_ns.map(since_due),
                first_byte_ns: since_sent(end.first_ns),
                status: end.status,
                sent_bytes: end.sent_bytes,
                received_bytes: end.received_bytes,
                failure: end.failure.clone().map(|(cause, detail)| (cause.into_owned(), detail)),
                opening: end.opening,
                url,
                group_active: active,
                all_active: active,
                ..Sample::default()
            };
            samples.add(&self.program, sample);
        }
        let has_timed_out = end.failure.as_ref().is_some_and(|(cause, _)| cause.ends_with("_timeout"));
        let age = Age { latency_ns: Some(elapsed_ns), service_ns: since_sent(Some(now_ns)) };
        let population = &mut self.figures.populations[0];
        population.iterations.running -= 1;
        population.end_ns = now_ns;
        *(if end.failure.is_some() {
            &mut population.iterations.failed
        } else {
            &mut population.iterations.completed
        }) += 1;
        self.figures.end(
            request.label,
            End {
                due_ns: *due_ns,
                latency_ns: end.done_ns.map(since_due),
                service_ns: since_sent(end.done_ns),
                first_byte_ns: since_sent(end.first_ns),
                waits_ns: None,
                age: if has_timed_out { age } else { Age::default() },
                failure: end.failure.clone(),
            },
        );
    }

    /// Forgets sessions that have sent nothing for long.
    fn forget_idle(&mut self, now_ns: u64) {
        while let Some((slot, used_ns)) = self.used.front().copied() {
            if now_ns.saturating_sub(used_ns) < IDLE_NS {
                return;
            }
            self.used.pop_front();
            let Some(session) = &self.slots[slot as usize] else { continue };
            if session.used_ns > used_ns || !session.outstanding.is_empty() || !session.waiting.is_empty() {
                self.used.push_back((slot, session.used_ns.max(now_ns.saturating_sub(IDLE_NS / 2))));
                continue;
            }
            self.sessions.remove(&session.key);
            self.slots[slot as usize] = None;
            self.vacant.push(slot);
            self.figures.populations[0].users = self.sessions.len() as u64;
            self.effects.push_back(Effect::CloseConnections { user: slot });
        }
    }
}

impl Users for Replayed {
    fn run(&mut self, now_ns: u64) -> Option<u64> {
        self.take_read(now_ns);
        self.end_if_over(now_ns);
        for _ in 0..MAX_BEGUN_AT_ONCE {
            match self.upcoming.front() {
                Some(next) if self.due_ns(next) <= now_ns => {
                    if let Some(next) = self.upcoming.pop_front() {
                        self.upcoming_bytes -= next.memory_bytes();
                        self.take_due(next, now_ns);
                    }
                }
                _ => break,
            }
        }
        self.forget_idle(now_ns);
        if self.over_ns.is_some_and(|over_ns| now_ns >= over_ns.saturating_add(GRACE_NS)) {
            self.interrupt(now_ns);
        }
        let end_ns = self.limits.at_ns.saturating_add(self.limits.duration_ns);
        let next_ns = self.upcoming.front().map(|next| self.due_ns(next));
        let look_ns = (self.inbox.is_some() && self.upcoming.len() < MAX_UPCOMING / 2).then_some(now_ns + LOOK_NS);
        let over_ns = self.over_ns.map_or(end_ns, |over_ns| over_ns.saturating_add(GRACE_NS));
        [next_ns, look_ns, Some(over_ns)].into_iter().flatten().min()
    }

    fn answered(&mut self, slot: u32, exchange: u32, end: &ExchangeEnd<'_>, now_ns: u64) {
        let Some(sent) = self.take_sent(slot, exchange) else { return };
        self.take_answer(slot, &sent.request, end, now_ns);
        let outcome = Outcome {
            sent_ns: Some(end.sent_ns),
            first_ns: Some(end.first_ns),
            done_ns: Some(end.done_ns),
            status: Some(end.status),
            sent_bytes: end.sent_bytes,
            received_bytes: end.received_bytes,
            opening: end.opening,
            failure: failure_of(&sent.request, end.status),
        };
        self.record(slot, &sent, &outcome, now_ns);
        self.go_on(slot, now_ns);
    }

    fn failed(&mut self, slot: u32, exchange: u32, failure: ExchangeFailure, now_ns: u64) {
        let Some(sent) = self.take_sent(slot, exchange) else { return };
        self.compare(&sent.request, None);
        let outcome = Outcome {
            sent_ns: failure.sent_ns,
            sent_bytes: failure.sent_bytes,
            received_bytes: failure.received_bytes,
            opening: failure.opening,
            failure: Some((failure.cause, failure.detail)),
            ..Outcome::default()
        };
        self.record(slot, &sent, &outcome, now_ns);
        self.go_on(slot, now_ns);
    }

    fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn samples(&mut self) -> Option<&mut Samples> {
        self.samples.as_mut()
    }

    fn is_done(&self) -> bool {
        self.inbox.is_none() && self.upcoming.is_empty() && self.outstanding == 0 && self.waiting == 0
    }

    fn stop(&mut self) {
        self.shared.stop(Stop::Soon);
    }

    fn finish(&mut self, now_ns: u64) {
        // Of this thread alone: others may have more to do.
        if self.over_ns.is_none() && !self.is_done() {
            self.end(now_ns);
        }
        self.interrupt(now_ns);
        self.effects.clear();
    }

    fn tried_until_ns(&self) -> Option<u64> {
        self.over_ns
    }

    fn figures(&mut self) -> &mut Figures {
        &mut self.figures
    }

    fn memory(&self) -> (usize, usize) {
        let sessions = self.slots.iter().flatten();
        let own = |session: &Session| {
            let waiting: usize = session.waiting.iter().map(ReplayRequest::memory_bytes).sum();
            size_of::<Session>() + session.jar.memory_bytes() + session.values.memory_bytes() + waiting
        };
        let bytes: usize = sessions.map(|session| own(session)).sum();
        (bytes + self.slots.capacity() * 8 + self.sessions.capacity() * 16, self.sessions.len())
    }
}

impl Replayed {
    /// Gives up what awaits an answer.
    fn interrupt(&mut self, now_ns: u64) {
        for slot in 0..self.slots.len() {
            let Some(session) = &mut self.slots[slot] else { continue };
            if session.outstanding.is_empty() {
                continue;
            }
            for sent in session.outstanding.drain(..) {
                self.figures.labels[sent.request.label as usize].interrupted += 1;
                let iterations = &mut self.figures.populations[0].iterations;
                iterations.running -= 1;
                iterations.interrupted += 1;
                self.outstanding -= 1;
            }
            self.figures.populations[0].end_ns = now_ns;
            self.effects.push_back(Effect::Cancel { user: slot as u32 });
        }
        self.open_records.clear();
        self.open_bytes = 0;
    }
}
