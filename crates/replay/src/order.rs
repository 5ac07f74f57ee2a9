//! Requests in the order of their starts, with bounded memory: a log has them in the order of their ends. Owns the window
//! of log time within which they are put in order, and the spreading of whole seconds. Reads no clock: the caller says
//! how time goes by where a source is followed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::task::Poll;

use crate::recorded::{Cause, Causes, Recorded, Source, SourceError};

/// Stamps as exact as this, or less, are spread.
const SPREAD_FROM_NS: u32 = 1_000_000_000;

/// How far requests are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimits {
    /// Of log time, ns: a request that is further back than this is given at once, and counted.
    pub window_ns: i64,
    /// How many requests are kept at most.
    pub max_requests: usize,
    /// How many bytes they have at most.
    pub max_bytes: usize,
}

impl Default for OrderLimits {
    fn default() -> Self {
        Self { window_ns: 60_000_000_000, max_requests: 1_000_000, max_bytes: 256 << 20 }
    }
}

/// A source whose requests come in the order of their starts, which never go back. Of requests that start at once, the
/// first line is first.
pub struct Ordered<S> {
    source: S,
    window: Window,
    seen: Causes,
    causes: Causes,
    out_of_order: u64,
    is_at_end: bool,
}

impl<S: Source> Ordered<S> {
    /// Puts a source in order. Stamps of whole seconds are spread within their second, uniformly at random by this seed:
    /// Poisson arrivals given their count. Lines of one second keep their order.
    pub fn new(source: S, limits: OrderLimits, seed: u64) -> Self {
        let window = Window::new(limits, seed);
        Self { source, window, seen: Causes::default(), causes: Causes::default(), out_of_order: 0, is_at_end: false }
    }

    /// The source itself.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The next request of a source that is followed: one whose reader fails with `WouldBlock` while nothing is there.
    /// `now_ns` is any clock that goes on steadily; log time goes on with it, so that the window empties though no
    /// further line comes. `Ready(None)`: the source has ended. `Pending`: call again when the source has more, or after
    /// `due_in_ns`.
    ///
    /// # Errors
    /// Why the source cannot be read any further.
    pub fn poll(&mut self, now_ns: u64) -> Result<Poll<Option<Recorded>>, SourceError> {
        loop {
            self.window.advance(now_ns);
            if let Some(recorded) = self.window.take() {
                return Ok(Poll::Ready(Some(recorded)));
            }
            if self.is_at_end {
                return Ok(Poll::Ready(None));
            }
            match self.pull() {
                Ok(()) => self.window.note_arrival(now_ns),
                Err(SourceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Poll::Pending);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// After `Pending`: in how many ns of the clock a request comes though the source gives none, if one is kept.
    pub fn due_in_ns(&self) -> Option<u64> {
        self.window.due_in_ns()
    }

    fn pull(&mut self) -> Result<(), SourceError> {
        let next = self.source.next();
        if *self.source.causes() != self.seen {
            self.seen = self.source.causes().clone();
            self.join_causes();
        }
        match next? {
            Some(recorded) => {
                if self.window.put(recorded) == Arrival::Late {
                    self.out_of_order += 1;
                    self.join_causes();
                }
            }
            None => {
                self.is_at_end = true;
                self.window.end();
            }
        }
        Ok(())
    }

    fn join_causes(&mut self) {
        self.causes = self.seen.clone();
        self.causes.add_count(Cause::OutOfOrder, self.out_of_order);
    }
}

impl<S: Source> Source for Ordered<S> {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        loop {
            if let Some(recorded) = self.window.take() {
                return Ok(Some(recorded));
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.pull()?;
        }
    }

    fn causes(&self) -> &Causes {
        &self.causes
    }
}

/// Whether a request came within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    InTime,
    Late,
}

/// The requests that are kept.
struct Window {
    limits: OrderLimits,
    seed: u64,
    /// Requests whose second may still get more of them, by their stamp's second.
    seconds: BTreeMap<i64, Vec<Recorded>>,
    /// How many requests of `seconds` begin at each time: none of them is overtaken.
    unspread_starts: BTreeMap<i64, usize>,
    /// Requests whose starts are known: start, number by arrival, place in `kept`.
    sorted: BinaryHeap<Reverse<(i64, u64, usize)>>,
    kept: Vec<Option<Recorded>>,
    free: Vec<usize>,
    /// Requests that came too late.
    late: VecDeque<Recorded>,
    count: usize,
    bytes: usize,
    arrivals: u64,
    /// The latest stamp, moved on by the clock of `advance`.
    latest_ns: i64,
    /// When the latest stamp came, by that clock.
    arrived_ns: Option<u64>,
    moved_ns: i64,
    /// A stamp far ahead of the others that the next one has to confirm.
    doubted_ns: Option<i64>,
    /// No request begins before this from now on.
    floor_ns: i64,
    has_ended: bool,
}

impl Window {
    fn new(limits: OrderLimits, seed: u64) -> Self {
        Self {
            limits,
            seed,
            seconds: BTreeMap::new(),
            unspread_starts: BTreeMap::new(),
            sorted: BinaryHeap::new(),
            kept: Vec::new(),
            free: Vec::new(),
            late: VecDeque::new(),
            count: 0,
            bytes: 0,
            arrivals: 0,
            latest_ns: i64::MIN,
            arrived_ns: None,
            moved_ns: 0,
            doubted_ns: None,
            floor_ns: i64::MIN,
            has_ended: false,
        }
    }

    fn put(&mut self, mut recorded: Recorded) -> Arrival {
        let stamp_ns = recorded.start_ns.saturating_add_unsigned(recorded.lead_ns);
        self.note_stamp(stamp_ns);
        if recorded.start_ns < self.floor_ns {
            recorded.start_ns = self.floor_ns;
            self.late.push_back(recorded);
            return Arrival::Late;
        }
        self.count += 1;
        self.bytes += count_bytes(&recorded);
        if recorded.precision_ns >= SPREAD_FROM_NS {
            *self.unspread_starts.entry(recorded.start_ns).or_default() += 1;
            let second = stamp_ns.div_euclid(i64::from(SPREAD_FROM_NS));
            self.seconds.entry(second).or_default().push(recorded);
        } else {
            self.keep(recorded);
        }
        Arrival::InTime
    }

    /// Moves the latest stamp on. One that is further ahead than the window is believed when the next one is there too: a
    /// single wrong date must not put an end to all order.
    fn note_stamp(&mut self, stamp_ns: i64) {
        let window_ns = self.limits.window_ns;
        let is_ahead = |from_ns: i64| stamp_ns > from_ns.saturating_add(window_ns);
        let mut reached_ns = stamp_ns;
        let doubted_ns = self.doubted_ns.take();
        if self.latest_ns != i64::MIN && is_ahead(self.latest_ns.saturating_add(self.moved_ns)) {
            let confirmed_ns = doubted_ns.filter(|doubted_ns| stamp_ns >= doubted_ns.saturating_sub(window_ns));
            if confirmed_ns.is_none_or(is_ahead) {
                self.doubted_ns = Some(stamp_ns);
                reached_ns = confirmed_ns.unwrap_or(self.latest_ns);
            }
        }
        if reached_ns > self.latest_ns {
            (self.latest_ns, self.moved_ns, self.arrived_ns) = (reached_ns, 0, None);
        }
    }

    fn keep(&mut self, recorded: Recorded) {
        let key = (recorded.start_ns, self.arrivals);
        self.arrivals += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        self.kept[place] = Some(recorded);
        self.sorted.push(Reverse((key.0, key.1, place)));
    }

    /// The next request whose turn it is.
    fn take(&mut self) -> Option<Recorded> {
        if let Some(late) = self.late.pop_front() {
            return Some(late);
        }
        let is_full = self.count > self.limits.max_requests || self.bytes > self.limits.max_bytes;
        let horizon_ns = if self.has_ended { i64::MAX } else { self.horizon_ns() };
        while let Some(&second) = self.seconds.keys().next() {
            let end_ns = (second + 1).saturating_mul(i64::from(SPREAD_FROM_NS));
            let must_go = is_full && !self.has_due_head(i64::MAX);
            if end_ns > horizon_ns && !must_go {
                break;
            }
            let requests = self.seconds.remove(&second).unwrap_or_default();
            self.spread(second, requests);
        }
        if !self.has_due_head(if is_full { i64::MAX } else { horizon_ns }) {
            return None;
        }
        let Reverse((start_ns, _, place)) = *self.sorted.peek()?;
        self.sorted.pop();
        self.free.push(place);
        let mut recorded = self.kept[place].take()?;
        self.count -= 1;
        self.bytes -= count_bytes(&recorded);
        self.floor_ns = self.floor_ns.max(start_ns);
        recorded.start_ns = self.floor_ns;
        Some(recorded)
    }

    /// Whether the first request is known, and begins by this time.
    fn has_due_head(&self, horizon_ns: i64) -> bool {
        let Some(Reverse((start_ns, _, _))) = self.sorted.peek() else { return false };
        let first_unspread = self.unspread_starts.first_key_value().map(|(first_ns, _)| *first_ns);
        *start_ns <= horizon_ns && first_unspread.is_none_or(|first_ns| *start_ns <= first_ns)
    }

    /// Before this, requests are in order.
    fn horizon_ns(&self) -> i64 {
        self.latest_ns.saturating_add(self.moved_ns).saturating_sub(self.limits.window_ns)
    }

    /// Gives each request of a second its place within it: as many numbers as requests, sorted, in the lines' order.
    fn spread(&mut self, second: i64, requests: Vec<Recorded>) {
        let mut random = self.seed ^ mix(second as u64);
        let mut offsets: Vec<u32> = Vec::with_capacity(requests.len());
        offsets.resize_with(requests.len(), || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            (((mix(random) >> 32) * u64::from(SPREAD_FROM_NS)) >> 32) as u32
        });
        offsets.sort_unstable();
        for (mut recorded, offset_ns) in requests.into_iter().zip(offsets) {
            if let Some(count) = self.unspread_starts.get_mut(&recorded.start_ns) {
                *count -= 1;
                if *count == 0 {
                    self.unspread_starts.remove(&recorded.start_ns);
                }
            }
            recorded.start_ns += i64::from(offset_ns);
            self.keep(recorded);
        }
    }

    fn note_arrival(&mut self, now_ns: u64) {
        if self.arrived_ns.is_none() {
            self.arrived_ns = Some(now_ns);
        }
    }

    fn advance(&mut self, now_ns: u64) {
        if let Some(arrived_ns) = self.arrived_ns {
            self.moved_ns = i64::try_from(now_ns.saturating_sub(arrived_ns)).unwrap_or(i64::MAX);
        }
    }

    /// When the first request is due though none follows, ns from now.
    fn due_in_ns(&self) -> Option<u64> {
        let sorted = self.sorted.peek().map(|Reverse((start_ns, _, _))| *start_ns);
        let second = self.seconds.keys().next().map(|second| (second + 1).saturating_mul(i64::from(SPREAD_FROM_NS)));
        let first = [sorted, second].into_iter().flatten().min()?;
        Some(first.saturating_sub(self.horizon_ns()).max(0).unsigned_abs())
    }

    fn end(&mut self) {
        self.has_ended = true;
    }
}

/// What a request takes up, about.
fn count_bytes(recorded: &Recorded) -> usize {
    let answer = &recorded.answer;
    let optional = [&recorded.body, &answer.fields, &answer.body].map(|bytes| bytes.as_ref().map_or(0, Vec::capacity));
    let own = [&recorded.method, &recorded.target, &recorded.host, &recorded.fields].map(Vec::capacity);
    size_of::<Recorded>() + own.iter().chain(&optional).sum::<usize>()
}

/// A number whose bits depend on all bits of another one (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
