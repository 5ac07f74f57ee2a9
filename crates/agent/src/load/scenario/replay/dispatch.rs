//! Makes requests of what a source has: chooses them, gives them their targets, due times, names and roles, and passes
//! them on to the threads in the order in which they are due. Owns what is left out and why, and the bounds of what is
//! read ahead.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};

use leadline_http::Url;
use leadline_replay::{Recorded, RecordedAnswer};
use leadline_scenario::replay::{label_of, Answer, LabelNames, Pattern, ReplayRequest, Role};
use leadline_scenario::Program;
use leadline_sys::clock::monotonic_ns;
use leadline_wire::scenario::{Replay, ReplayInstant, ReplayPace, ReplaySource};

/// Requests of a batch.
const BATCH_REQUESTS: usize = 256;
/// Time after which batches are passed on though they are not full, ns, and how many requests are read between two looks
/// at the clock.
const FLUSH_NS: u64 = 20_000_000;
const LOOKS_AT_CLOCK: u32 = 256;
/// Bytes after which a batch is passed on.
const BATCH_BYTES: usize = 1 << 20;
/// By how much copies of a session are shifted against each other at most, ns.
const MAX_SHIFT_NS: u64 = 1_000_000_000;
/// By how much requests are later that are read while the replay runs, ns: the time in which they are passed on.
const READ_DELAY_NS: u64 = 100_000_000;
/// Stamps that are as inexact as this, ns, are spread: their requests come by up to this much later.
const SPREAD_FROM_NS: u32 = 1_000_000_000;
/// Sessions that are counted by themselves.
const MAX_COUNTED_SESSIONS: usize = 1 << 20;
/// Names of targets that are remembered.
const MAX_KNOWN_TARGETS: usize = 10_000;

/// What became of the requests of a source.
#[derive(Clone, Debug, Default)]
pub struct Dispatched {
    pub read: u64,
    pub passed_on: u64,
    pub left_out: BTreeMap<String, u64>,
    /// Requests that lay too far back to be put in order.
    pub reordered: u64,
    pub sessions: u64,
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
    pub precision_ns: u32,
}

/// Where requests go, and the Host that they have there: the target's own unless the source's is kept.
struct Target {
    url: Url,
    prefix: String,
    host: String,
}

impl Target {
    /// Reads a target.
    fn parse(text: &str, host: Option<&str>) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?.with_lower_host();
        let prefix = url.target.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned();
        let host = host.map_or_else(|| url.authority(), str::to_owned);
        Ok(Self { url, prefix, host })
    }

    fn url_of(&self, target: &str) -> Url {
        let target = if self.prefix.is_empty() { target.into() } else { format!("{}{target}", self.prefix).into() };
        Url { target, ..self.url.clone() }
    }
}

/// A request that waits for those which are due before it: copies are shifted.
struct Shifted {
    due_ns: u64,
    number: u64,
    request: ReplayRequest,
}

impl PartialEq for Shifted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Shifted {}

impl PartialOrd for Shifted {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shifted {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

/// Makes requests and passes them on.
pub struct Dispatch {
    replay: Replay,
    only: Vec<Pattern>,
    target: Target,
    against: Option<Target>,
    hosts: HashMap<String, Target>,
    names: LabelNames,
    /// Labels by method and target, so that a name is made once for each.
    labels: HashMap<Vec<u8>, (u32, u32)>,
    /// The key of the last one.
    key: Vec<u8>,
    seed: u64,
    /// By how much all requests are later, ns: what is read while it is written comes late.
    delay_ns: u64,
    inboxes: Vec<SyncSender<Vec<ReplayRequest>>>,
    is_over: Arc<AtomicBool>,
    start_ns: Arc<OnceLock<u64>>,
    batches: Vec<(Vec<ReplayRequest>, usize)>,
    shifted: BinaryHeap<Reverse<Shifted>>,
    counted: HashSet<u64>,
    records: u64,
    /// The time of the source's first request, which instants after its beginning count from.
    first_read_ns: Option<i64>,
    last_due_ns: u64,
    looks: u32,
    flushed_ns: u64,
    /// What became of the source so far.
    pub done: Dispatched,
}

impl Dispatch {
    /// Returns a dispatch to these threads.
    ///
    /// # Errors
    /// Which target is no URL, in words.
    pub fn new(
        replay: &Replay,
        program: &Arc<Program>,
        inboxes: Vec<SyncSender<Vec<ReplayRequest>>>,
        is_over: Arc<AtomicBool>,
        start_ns: Arc<OnceLock<u64>>,
    ) -> Result<Self, String> {
        let mut hosts = HashMap::new();
        for one in &replay.hosts {
            hosts.insert(one.host.to_ascii_lowercase(), Target::parse(&one.target, Some(&one.host))?);
        }
        Ok(Self {
            only: replay.only.iter().map(|text| Pattern::new(text)).collect(),
            target: Target::parse(&replay.target, None)?,
            against: replay.against.as_deref().map(|url| Target::parse(url, None)).transpose()?,
            hosts,
            names: LabelNames::new(Arc::clone(program)),
            labels: HashMap::new(),
            key: Vec::new(),
            seed: program.seed,
            delay_ns: 0,
            batches: inboxes.iter().map(|_| (Vec::new(), 0)).collect(),
            inboxes,
            is_over,
            start_ns,
            shifted: BinaryHeap::new(),
            counted: HashSet::new(),
            records: 0,
            first_read_ns: None,
            looks: 0,
            flushed_ns: 0,
            last_due_ns: 0,
            done: Dispatched::default(),
            replay: replay.clone(),
        })
    }

    /// Takes a request of the source; breaks if no more are wanted: the rest lies after the end, or the replay is over.
    pub fn take(&mut self, recorded: Recorded) -> ControlFlow<()> {
        self.flush_in_time();
        let first_read_ns = *self.first_read_ns.get_or_insert(recorded.start_ns);
        if is_before(self.replay.end, first_read_ns, recorded.start_ns) == Some(false) {
            return ControlFlow::Break(());
        }
        self.done.read += 1;
        if let Some(cause) = self.refusal(&recorded, first_read_ns) {
            self.leave_out(cause);
            return ControlFlow::Continue(());
        }
        self.done.precision_ns = self.done.precision_ns.max(recorded.precision_ns);
        if self.records == 0 {
            self.done.first_ns = Some(recorded.start_ns);
            // The time of the first request is when it is there, however long it was looked for.
            if let Some(at_ns) = self.start_ns.get() {
                self.delay_ns = monotonic_ns().saturating_sub(*at_ns) + READ_DELAY_NS;
            }
            if follows(&self.replay.source) {
                let spread_ns = if recorded.precision_ns >= SPREAD_FROM_NS { recorded.precision_ns } else { 0 };
                self.delay_ns = self.delay_ns.max(READ_DELAY_NS) + u64::from(spread_ns);
            }
        }
        self.done.last_ns = self.done.last_ns.max(Some(recorded.start_ns));
        self.pass_on_all(recorded)
    }

    /// Why a request is not sent, if it is not.
    fn refusal(&self, recorded: &Recorded, first_read_ns: i64) -> Option<&'static str> {
        let method = &*recorded.method;
        if is_before(self.replay.begin, first_read_ns, recorded.start_ns) == Some(true) {
            return Some("not_chosen");
        }
        let is_token = !method.is_empty() && method.len() <= 32 && method.iter().all(u8::is_ascii_alphanumeric);
        if !is_token || method == b"CONNECT" {
            return Some("not_a_request");
        }
        let is_target = recorded.target.first() == Some(&b'/') || (recorded.target == b"*" && method == b"OPTIONS");
        if !is_target || !recorded.target.iter().all(u8::is_ascii_graphic) {
            return Some("not_a_request");
        }
        if !self.only.is_empty() && !self.only.iter().any(|one| one.fits(method, &recorded.target)) {
            return Some("not_chosen");
        }
        if !self.replay.writes && !matches!(method, b"GET" | b"HEAD" | b"OPTIONS") {
            return Some("writing_method");
        }
        if recorded.body.is_none() && matches!(method, b"POST" | b"PUT" | b"PATCH") {
            return Some("body_missing");
        }
        None
    }

    /// Counts what the source has and does not give.
    pub fn leave_out(&mut self, cause: &str) {
        *self.done.left_out.entry(cause.to_owned()).or_default() += 1;
    }

    /// Passes a request on, for each copy and role.
    fn pass_on_all(&mut self, recorded: Recorded) -> ControlFlow<()> {
        let Recorded { start_ns, session, method, target, host, fields, body, answer, .. } = recorded;
        let latency_ns = answer.latency_ns.and_then(|latency_ns| i64::try_from(latency_ns).ok());
        let source_end_ns = latency_ns.map(|latency_ns| start_ns.saturating_add(latency_ns));
        let before = self.before(answer);
        let (label, second_label) = self.label(&method, &target);
        let target = String::from_utf8_lossy(&target).into_owned();
        let reads_bodies = self.replay.compares || self.replay.correlates;
        let (other_fields, cookie) = split_fields(&fields, reads_bodies);
        let known = self.target_of(&host);
        let mut roles = vec![(Role::First, label, known.url_of(&target), known.host.clone())];
        if self.replay.notices_noise {
            roles.push((Role::Again, label, known.url_of(&target), known.host.clone()));
        }
        if let Some(against) = &self.against {
            roles.push((Role::Second, second_label, against.url_of(&target), against.host.clone()));
        }
        let count = roles.len() as u8;
        let (method, body): (Box<[u8]>, Box<[u8]>) = (method.into(), body.unwrap_or_default().into());
        for copy in 0..self.replay.copies.max(1) {
            let copied = mix(session ^ mix(self.seed ^ u64::from(copy)));
            if self.counted.len() < MAX_COUNTED_SESSIONS && self.counted.insert(copied) {
                self.done.sessions += 1;
            }
            let record = self.records;
            let due_ns = self.due_ns(start_ns, copied, copy);
            self.records += 1;
            for (role, label, url, host) in &roles {
                let mut fields = Vec::with_capacity(host.len() + other_fields.len() + 8);
                fields.extend_from_slice(b"Host: ");
                fields.extend_from_slice(host.as_bytes());
                fields.extend_from_slice(b"\r\n");
                fields.extend_from_slice(&other_fields);
                let request = ReplayRequest {
                    due_ns,
                    source_ns: start_ns,
                    source_end_ns,
                    // The roles of a record are of different users, and of one thread.
                    session: copied ^ (*role as u64),
                    record,
                    role: *role,
                    roles: count,
                    label: *label,
                    url: url.clone(),
                    method: method.clone(),
                    fields: fields.into(),
                    cookie: cookie.as_slice().into(),
                    body: body.clone(),
                    before: before.clone(),
                };
                if self.replay.copies > 1 {
                    self.shift(request);
                } else if self.send(request) == ControlFlow::Break(()) {
                    return ControlFlow::Break(());
                }
            }
        }
        self.send_shifted(Some(self.last_due_ns))
    }

    /// Where the requests for a recorded host go.
    fn target_of(&self, host: &[u8]) -> &Target {
        if self.hosts.is_empty() {
            return &self.target;
        }
        let own = String::from_utf8_lossy(host).to_ascii_lowercase();
        let found = self.hosts.get(&own).or_else(|| self.hosts.get(own.split(':').next().unwrap_or_default()));
        found.unwrap_or(&self.target)
    }

    /// When a request is due, ns after the start: no earlier than those before it in the source.
    fn due_ns(&mut self, start_ns: i64, session: u64, copy: u32) -> u64 {
        let shift_ns = if copy == 0 { 0 } else { mix(session) % MAX_SHIFT_NS };
        match self.replay.pace {
            ReplayPace::Recorded { speed } => {
                let since_ns = start_ns.saturating_sub(self.done.first_ns.unwrap_or(start_ns)).max(0);
                self.last_due_ns =
                    self.last_due_ns.max(((since_ns as f64 / speed) as u64).saturating_add(self.delay_ns));
                // Copies are as far apart as in the recording.
                self.last_due_ns.saturating_add((shift_ns as f64 / speed.max(1.0)) as u64)
            }
            ReplayPace::Rate { per_s } => {
                self.last_due_ns = (self.records as f64 / per_s * 1e9) as u64;
                self.last_due_ns
            }
        }
    }

    /// The answer that the source has, as far as it is used.
    fn before(&self, answer: RecordedAnswer) -> Option<Arc<Answer>> {
        let RecordedAnswer { status, fields, body, body_is_decoded, .. } = answer;
        if !self.replay.compares && !self.replay.correlates {
            return status.map(|status| Arc::new(Answer { status: Some(status), ..Answer::default() }));
        }
        if status.is_none() && body.is_none() {
            return None;
        }
        let head = fields.map_or_else(String::new, |fields| String::from_utf8_lossy(&fields).replace("\r\n", "\n"));
        if body_is_decoded {
            return Some(Arc::new(Answer { status, head, body }));
        }
        Some(Arc::new(Answer::recorded(status, head, body)))
    }

    /// The labels of a request at the first and at the second target.
    fn label(&mut self, method: &[u8], target: &[u8]) -> (u32, u32) {
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        self.key.clear();
        for part in [method, b" ", path] {
            self.key.extend_from_slice(part);
        }
        if let Some(labels) = self.labels.get(&self.key) {
            return *labels;
        }
        let name = label_of(method, target);
        let first = self.names.place(&name);
        let second = self.against.as_ref().map(|_| self.names.place(&format!("{name} (against)"))).unwrap_or(first);
        if self.labels.len() < MAX_KNOWN_TARGETS {
            self.labels.insert(self.key.clone(), (first, second));
        }
        (first, second)
    }

    fn shift(&mut self, request: ReplayRequest) {
        let number = request.record * 4 + request.role as u64;
        self.shifted.push(Reverse(Shifted { due_ns: request.due_ns, number, request }));
    }

    /// Passes on what is due up to an instant, ns after the start; all if there is none.
    fn send_shifted(&mut self, until_ns: Option<u64>) -> ControlFlow<()> {
        while let Some(Reverse(next)) = self.shifted.peek() {
            if until_ns.is_some_and(|until_ns| next.due_ns > until_ns) {
                break;
            }
            let Some(Reverse(next)) = self.shifted.pop() else { break };
            if self.send(next.request) == ControlFlow::Break(()) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes a request on to its thread, in batches.
    fn send(&mut self, request: ReplayRequest) -> ControlFlow<()> {
        let thread = ((request.session >> 2) % self.inboxes.len() as u64) as usize;
        let (batch, bytes) = &mut self.batches[thread];
        *bytes += request.memory_bytes();
        batch.push(request);
        self.done.passed_on += 1;
        if batch.len() < BATCH_REQUESTS && *bytes < BATCH_BYTES {
            return ControlFlow::Continue(());
        }
        self.flush_one(thread)
    }

    fn flush_one(&mut self, thread: usize) -> ControlFlow<()> {
        let (batch, _) = std::mem::take(&mut self.batches[thread]);
        if batch.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.inboxes[thread].try_send(batch) {
            Ok(()) => ControlFlow::Continue(()),
            Err(TrySendError::Disconnected(_)) => ControlFlow::Break(()),
            Err(TrySendError::Full(batch)) => {
                // While this thread has enough, the others need what has been read for them.
                self.try_flush_all();
                let sent = self.inboxes[thread].send(batch);
                sent.map_or(ControlFlow::Break(()), ControlFlow::Continue)
            }
        }
    }

    /// Passes on what was read some time ago: few requests of a long source may be chosen.
    fn flush_in_time(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        if self.looks % LOOKS_AT_CLOCK != 0 {
            return;
        }
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.flushed_ns) > FLUSH_NS {
            self.flushed_ns = now_ns;
            self.try_flush_all();
        }
    }

    /// Passes on what is in the batches, as far as there is room.
    fn try_flush_all(&mut self) {
        for (inbox, batch) in self.inboxes.iter().zip(&mut self.batches) {
            if batch.0.is_empty() {
                continue;
            }
            let (full, bytes) = std::mem::take(batch);
            if let Err(TrySendError::Full(back)) = inbox.try_send(full) {
                *batch = (back, bytes);
            }
        }
    }

    /// Whether a thread takes requests: with none left to take them, the replay is over.
    pub fn is_wanted(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    /// Passes everything on.
    pub fn flush(&mut self) -> ControlFlow<()> {
        for thread in 0..self.inboxes.len() {
            if self.flush_one(thread) == ControlFlow::Break(()) {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes on what is left at the end of the source.
    pub fn finish(mut self) -> Dispatched {
        if self.send_shifted(None) == ControlFlow::Continue(()) {
            // With nothing left to take them, the requests are not wanted.
            let _ = self.flush();
        }
        self.done
    }
}

/// Whether a source is read while it is written.
pub fn follows(source: &ReplaySource) -> bool {
    matches!(source, ReplaySource::File { follows: true, .. } | ReplaySource::Capture { .. })
}

/// Whether a time lies before an instant of the source; `None` if no instant was given.
fn is_before(instant: Option<ReplayInstant>, first_ns: i64, at_ns: i64) -> Option<bool> {
    let instant_ns = match instant? {
        ReplayInstant::At { epoch_ms } => epoch_ms.saturating_mul(1_000_000),
        ReplayInstant::After { ms } => {
            first_ns.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000))
        }
    };
    Some(at_ns < instant_ns)
}

/// Returns header fields without Cookie, and the value of Cookie. Where bodies are read, codings that cannot be are not
/// asked for.
fn split_fields(fields: &[u8], reads_bodies: bool) -> (Vec<u8>, Vec<u8>) {
    let (mut others, mut cookie) = (Vec::with_capacity(fields.len()), Vec::new());
    for line in fields.split_inclusive(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        if name.eq_ignore_ascii_case(b"cookie") {
            if !cookie.is_empty() {
                cookie.extend_from_slice(b"; ");
            }
            cookie.extend_from_slice(value.trim_ascii());
        } else if reads_bodies && name.eq_ignore_ascii_case(b"accept-encoding") {
            others.extend_from_slice(b"Accept-Encoding: gzip, deflate\r\n");
        } else {
            others.extend_from_slice(line);
        }
    }
    (others, cookie)
}

/// Mixes the bits of a number (the finaliser of SplitMix64), and leaves two low bits for the role.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ (value >> 31)) & !3
}
