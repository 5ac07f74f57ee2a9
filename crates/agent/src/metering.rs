//! The figures that hot loops write and the task's thread reads: per-flow counters without locks, histograms that
//! change hands once a second, and the CPU time of each thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Mutex, PoisonError};

use leadline_stats::{Bucket, Histogram};
use leadline_sys::tcp::TcpInfo;
use leadline_sys::usage::{ThreadAccount, ThreadUsage};
use leadline_wire::{FlowProgress, HistogramReport, ThreadReport};

use crate::atomic_option::AtomicOption;

/// The counters of one flow; on a separate cache line, written by one thread with plain stores.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct FlowCounters {
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    sent_units: AtomicU64,
    received_units: AtomicU64,
    missing_units: AtomicOption,
    retransmits: AtomicOption,
    rtt_us: AtomicOption,
    rtt_variance_us: AtomicOption,
    congestion_window_bytes: AtomicOption,
    path_mtu_bytes: AtomicOption,
    pacing_bps: AtomicOption,
    delivery_bps: AtomicOption,
    busy_us: AtomicOption,
    receiver_limited_us: AtomicOption,
    send_buffer_limited_us: AtomicOption,
    peer_window_bytes: AtomicOption,
    reorderings: AtomicOption,
    receive_rtt_us: AtomicOption,
    receive_window_bytes: AtomicOption,
    out_of_order: AtomicOption,
}

impl FlowCounters {
    /// Counts sent data. Only the flow's own thread may call it.
    #[inline]
    pub fn sent(&self, bytes: u64, units: u64) {
        add(&self.sent_bytes, bytes);
        add(&self.sent_units, units);
    }

    /// Takes back data that counted as sent and was not. Only the flow's own thread may call it.
    pub fn not_sent(&self, bytes: u64, units: u64) {
        for (counter, amount) in [(&self.sent_bytes, bytes), (&self.sent_units, units)] {
            counter.store(counter.load(Ordering::Relaxed).saturating_sub(amount), Ordering::Relaxed);
        }
    }

    /// Counts received data. Only the flow's own thread may call it.
    #[inline]
    pub fn received(&self, bytes: u64, units: u64) {
        add(&self.received_bytes, bytes);
        add(&self.received_units, units);
    }

    /// Stores how many datagrams are missing. Only the flow's own thread may call it.
    #[inline]
    pub fn missing(&self, units: u64) {
        self.missing_units.set(units);
    }

    /// Stores the kernel's figures of a sending connection: retransmitted segments since the flow began, and the
    /// round-trip time. Only the flow's own thread may call it.
    pub fn kernel(&self, retransmits: Option<u64>, rtt_us: u32) {
        if let Some(retransmits) = retransmits {
            self.retransmits.set(retransmits);
        }
        self.rtt_us.set(rtt_us.into());
    }

    /// Stores further figures of the kernel of a sending connection. Only the flow's own thread may call it.
    pub fn path(&self, rtt_variance_us: u32, congestion_window_bytes: u64, path_mtu_bytes: u32) {
        self.rtt_variance_us.set(rtt_variance_us.into());
        self.congestion_window_bytes.set(congestion_window_bytes);
        self.path_mtu_bytes.set(path_mtu_bytes.into());
    }

    /// Stores what the kernel says of the sending end of a connection, as growth since the flow began. Only the flow's own
    /// thread may call it.
    pub fn sending_end(&self, info: &TcpInfo, before: &TcpInfo) {
        let grown = |read: fn(&TcpInfo) -> Option<u64>| Some(read(info)?.saturating_sub(read(before).unwrap_or(0)));
        set_known(&self.pacing_bps, info.pacing_bps);
        set_known(&self.delivery_bps, info.delivery_bps);
        set_known(&self.busy_us, grown(|info| info.busy_us));
        set_known(&self.receiver_limited_us, grown(|info| info.receiver_limited_us));
        set_known(&self.send_buffer_limited_us, grown(|info| info.send_buffer_limited_us));
        set_known(&self.peer_window_bytes, info.peer_window_bytes.map(u64::from));
        set_known(&self.reorderings, grown(|info| info.reorderings.map(u64::from)));
    }

    /// Stores what the kernel says of the receiving end of a connection, likewise. Only the flow's own thread may call it.
    pub fn receiving_end(&self, info: &TcpInfo, before: &TcpInfo) {
        set_known(&self.receive_rtt_us, Some(info.receive_rtt_us.into()).filter(|us| *us > 0));
        set_known(&self.receive_window_bytes, info.receive_window_bytes.map(u64::from));
        let grown = info.out_of_order.map(|count| u64::from(count.saturating_sub(before.out_of_order.unwrap_or(0))));
        set_known(&self.out_of_order, grown);
    }

    /// Payload bytes sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Payload bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Units sent so far.
    pub fn sent_units(&self) -> u64 {
        self.sent_units.load(Ordering::Relaxed)
    }

    /// Units received so far.
    pub fn received_units(&self) -> u64 {
        self.received_units.load(Ordering::Relaxed)
    }

    /// Returns the counters as a progress row; a byte stream has no units.
    pub fn progress(&self, flow: u32, has_units: bool) -> FlowProgress {
        FlowProgress {
            flow,
            sent_bytes: self.sent_bytes(),
            received_bytes: self.received_bytes(),
            sent_units: has_units.then(|| self.sent_units()),
            received_units: has_units.then(|| self.received_units()),
            missing_units: self.missing_units.get(),
            retransmits: self.retransmits.get(),
            rtt_us: short(&self.rtt_us),
            rtt_variance_us: short(&self.rtt_variance_us),
            congestion_window_bytes: self.congestion_window_bytes.get(),
            path_mtu_bytes: short(&self.path_mtu_bytes),
            pacing_bps: self.pacing_bps.get(),
            delivery_bps: self.delivery_bps.get(),
            busy_us: self.busy_us.get(),
            receiver_limited_us: self.receiver_limited_us.get(),
            send_buffer_limited_us: self.send_buffer_limited_us.get(),
            peer_window_bytes: short(&self.peer_window_bytes),
            reorderings: short(&self.reorderings),
            receive_rtt_us: short(&self.receive_rtt_us),
            receive_window_bytes: short(&self.receive_window_bytes),
            out_of_order: short(&self.out_of_order),
        }
    }
}

fn set_known(figure: &AtomicOption, value: Option<u64>) {
    if let Some(value) = value {
        figure.set(value);
    }
}

fn short(figure: &AtomicOption) -> Option<u32> {
    figure.get().and_then(|value| value.try_into().ok())
}

/// There is only one writer, so a load and a store do the same as an atomic addition, without its bus lock.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

/// The interval at which threads hand over their histograms, unless a workload says another.
pub const ROLL_NS: u64 = 1_000_000_000;

/// A reader may be behind by this many intervals; beyond this a thread keeps its histograms.
const UNREAD_ROLLS: usize = 2;

/// The histogram of one metric and one interval that a thread hands over.
#[derive(Debug)]
pub struct Rolled {
    metric: usize,
    warmup: bool,
    histogram: Histogram,
    /// The channel for its return, once it has been read and emptied.
    home: mpsc::Sender<Histogram>,
}

/// A thread's own histograms, one pair (measured, warm-up) per metric. Recording costs one histogram increment. A
/// histogram that is handed over is replaced by an empty one that has come back, because a measuring thread must not
/// spend time on copying and clearing.
pub struct Recorder {
    measured: Vec<Histogram>,
    warmup: Vec<Histogram>,
    /// Operations that were due before this instant, ns, count as warm-up; without warm-up it is one before all of them.
    warm_until_ns: u64,
    /// When the histograms are handed over next, ns; at once if absent, as before the first time.
    next_roll_ns: Option<u64>,
    roll_ns: u64,
    out: mpsc::Sender<Rolled>,
    home: mpsc::Sender<Histogram>,
    returned: mpsc::Receiver<Histogram>,
    /// Histograms that were handed over and have not come back, and their maximum number. While a reader is behind,
    /// the thread keeps its histograms and adds to them: nothing is lost, and memory is bounded.
    unread: usize,
    most_unread: usize,
}

impl Recorder {
    /// Returns a recorder of `metrics` metrics; operations that were due before `warm_until_ns` count as warm-up.
    pub fn new(metrics: usize, warm_until_ns: u64, out: mpsc::Sender<Rolled>) -> Self {
        let fresh = || (0..metrics).map(|_| Histogram::new()).collect();
        let (home, returned) = mpsc::channel();
        Self {
            measured: fresh(),
            warmup: fresh(),
            warm_until_ns,
            next_roll_ns: None,
            roll_ns: ROLL_NS,
            out,
            home,
            returned,
            unread: 0,
            most_unread: UNREAD_ROLLS * 2 * metrics,
        }
    }

    /// The same with another interval between the histograms.
    pub fn rolling_every(self, roll_ns: u64) -> Self {
        Self { roll_ns, ..self }
    }

    /// Records one duration of a metric for an operation that was due at `due_ns`.
    #[inline]
    pub fn record(&mut self, metric: usize, due_ns: u64, value_ns: u64) {
        self.record_at(metric, due_ns, Histogram::bucket(value_ns));
    }

    /// As [`Recorder::record`], for a duration without a due time: it never counts as warm-up.
    pub fn record_measured(&mut self, metric: usize, value_ns: u64) {
        self.measured[metric].record_at(Histogram::bucket(value_ns));
    }

    /// Like [`Recorder::record`], for a duration whose bucket is known.
    #[inline]
    pub fn record_at(&mut self, metric: usize, due_ns: u64, bucket: Bucket) {
        let set = if due_ns < self.warm_until_ns { &mut self.warmup } else { &mut self.measured };
        set[metric].record_at(bucket);
    }

    /// Whether `roll` would hand histograms over now, which takes longer than an operation may be late.
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.next_roll_ns.is_none_or(|next_ns| now_ns >= next_ns)
    }

    /// Hands the histograms over if an interval has passed; call it on every turn of the loop.
    #[inline]
    pub fn roll(&mut self, now_ns: u64) {
        if self.is_due(now_ns) {
            self.hand_over(self.most_unread);
            self.next_roll_ns = Some(now_ns + self.roll_ns);
        }
    }

    /// From now on, operations that were due before this instant (ns) count as warm-up.
    pub fn warm_until(&mut self, warm_until_ns: u64) {
        self.warm_until_ns = warm_until_ns;
    }

    /// Hands the remaining histograms over.
    pub fn finish(mut self) {
        self.hand_over(usize::MAX);
    }

    fn hand_over(&mut self, most_unread: usize) {
        for (set, warmup) in [(&mut self.measured, false), (&mut self.warmup, true)] {
            for (metric, histogram) in set.iter_mut().enumerate() {
                if !histogram.is_empty() {
                    let empty = match self.returned.try_recv() {
                        Ok(empty) => empty,
                        Err(_) if self.unread >= most_unread => continue,
                        Err(_) => {
                            self.unread += 1;
                            Histogram::new()
                        }
                    };
                    let histogram = std::mem::replace(histogram, empty);
                    // The reader has ended only if the task is over and its figures are not needed.
                    let _ = self.out.send(Rolled { metric, warmup, histogram, home: self.home.clone() });
                }
            }
        }
    }
}

/// The latest value that one thread publishes for another. Each value replaces the one before, so it must contain
/// everything so far.
#[derive(Debug)]
pub struct Latest<T>(Mutex<Option<T>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Latest<T> {
    /// Stores a value, unless the reader holds the lock at this moment: then the next value will do. Never waits.
    pub fn publish(&self, value: T) {
        if let Ok(mut place) = self.0.try_lock() {
            *place = Some(value);
        }
    }

    /// Removes and returns the latest value, unless it has been taken already.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The reader of the threads' recorders: totals of the whole task, and the histograms since the last progress event.
pub struct Collector {
    names: &'static [&'static str],
    totals: BTreeMap<(bool, usize), Histogram>,
    recent: BTreeMap<(bool, usize), Histogram>,
}

impl Collector {
    /// Returns a collector of metrics with these names, in the order of `Recorder`'s numbers.
    pub fn new(names: &'static [&'static str]) -> Self {
        Self { names, totals: BTreeMap::new(), recent: BTreeMap::new() }
    }

    /// Adds a histogram that a thread handed over, and returns it empty.
    pub fn take(&mut self, rolled: Rolled) {
        let Rolled { metric, warmup, mut histogram, home } = rolled;
        for set in [&mut self.totals, &mut self.recent] {
            set.entry((warmup, metric)).or_default().merge(&histogram);
        }
        histogram.clear();
        // Its thread may have ended.
        let _ = home.send(histogram);
    }

    /// Records one value that no thread has recorded.
    pub fn record(&mut self, metric: usize, value_ns: u64) {
        for set in [&mut self.totals, &mut self.recent] {
            set.entry((false, metric)).or_default().record(value_ns);
        }
    }

    /// Returns one metric of the whole task, without its warm-up.
    pub fn total(&self, metric: usize) -> Histogram {
        self.totals.get(&(false, metric)).cloned().unwrap_or_default()
    }

    /// Returns the histograms since the last call.
    pub fn recent(&mut self) -> Vec<HistogramReport> {
        let reports = self.reports(&self.recent);
        self.recent.values_mut().for_each(Histogram::clear);
        reports
    }

    /// Returns the histograms of the whole task.
    pub fn totals(&self) -> Vec<HistogramReport> {
        self.reports(&self.totals)
    }

    /// The number of values beyond a histogram's range, of all metrics.
    pub fn overflow(&self) -> u64 {
        self.totals.values().map(Histogram::overflow).sum()
    }

    fn reports(&self, set: &BTreeMap<(bool, usize), Histogram>) -> Vec<HistogramReport> {
        let report = |(&(warmup, metric), histogram): (&(bool, usize), &Histogram)| {
            let prefix = if warmup { "warmup_" } else { "" };
            HistogramReport {
                metric: format!("{prefix}{}", self.names[metric]),
                count: histogram.count(),
                hdr_v2: histogram.encode(),
            }
        };
        set.iter().filter(|(_, histogram)| !histogram.is_empty()).map(report).collect()
    }
}

/// Measures the cost of a part of a thread's life. CPU time and wall time always cover the same part.
pub struct ThreadMeter {
    name: String,
    account: ThreadAccount,
    before: ThreadUsage,
    began_ns: u64,
    /// The usage when the thread's silence began, if it is silent.
    resting: Option<(ThreadUsage, u64)>,
}

impl ThreadMeter {
    /// Returns a meter that starts now; its readings must be made on the same thread.
    pub fn begin(name: impl Into<String>, now_ns: u64) -> Self {
        let account = ThreadAccount::of_this_thread();
        Self { name: name.into(), before: account.now(), account, began_ns: now_ns, resting: None }
    }

    /// Records that no data has moved for a while: the time from here on does not count unless `go_on` is called.
    pub fn rest(&mut self, now_ns: u64) {
        self.resting.get_or_insert_with(|| (self.account.now(), now_ns));
    }

    /// Records that data moves again: the silence was part of the test.
    pub fn go_on(&mut self) {
        self.resting = None;
    }

    /// Returns the usage so far, and continues.
    pub fn so_far(&self, now_ns: u64) -> ThreadReport {
        let used = self.account.now().since(&self.before);
        self.report(&used, now_ns)
    }

    /// Returns the usage until now, or until the beginning of a silence that lasts.
    pub fn end(self, now_ns: u64) -> ThreadReport {
        let (usage, now_ns) = self.resting.unwrap_or_else(|| (self.account.now(), now_ns));
        self.report(&usage.since(&self.before), now_ns)
    }

    fn report(&self, used: &ThreadUsage, now_ns: u64) -> ThreadReport {
        ThreadReport {
            name: self.name.clone(),
            user_s: used.user_s,
            system_s: used.system_s,
            runnable_wait_s: used.runnable_wait_s,
            spun_s: None,
            wall_s: now_ns.saturating_sub(self.began_ns) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreported_kernel_figures_are_unknown_and_not_zero() {
        let counters = FlowCounters::default();
        let unknown = counters.progress(3, false);
        assert_eq!((unknown.missing_units, unknown.retransmits, unknown.rtt_us), (None, None, None));
        counters.kernel(None, 250);
        assert_eq!(counters.progress(3, false), FlowProgress { rtt_us: Some(250), ..unknown });
        counters.kernel(Some(0), 260);
        counters.missing(0);
        let known = counters.progress(3, false);
        assert_eq!((known.missing_units, known.retransmits, known.rtt_us), (Some(0), Some(0), Some(260)));
    }

    #[test]
    fn warm_up_and_measurement_are_kept_apart_and_nothing_is_lost() {
        let (out, rolled) = mpsc::channel();
        let mut recorder = Recorder::new(2, 100, out);
        for due in 0..200 {
            recorder.record(0, due, due);
            recorder.record(1, due, 7);
            recorder.roll(due * ROLL_NS / 50);
        }
        recorder.finish();
        let mut collector = Collector::new(&["latency", "late"]);
        rolled.iter().for_each(|one| collector.take(one));
        let counts: Vec<_> = collector.totals().into_iter().map(|report| (report.metric, report.count)).collect();
        let expected = [("latency", 100), ("late", 100), ("warmup_latency", 100), ("warmup_late", 100)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)));
        assert_eq!(collector.recent().len(), 4);
        assert!(collector.recent().is_empty());
    }

    #[test]
    fn histograms_are_handed_over_at_the_interval_of_the_workload() {
        let (out, rolled) = mpsc::channel();
        let mut recorder = Recorder::new(1, 0, out).rolling_every(ROLL_NS / 10);
        for tenth in 1..4 {
            recorder.record(0, 1, 5);
            recorder.roll(tenth * ROLL_NS / 10);
            assert_eq!(rolled.try_iter().count(), 1);
            recorder.roll(tenth * ROLL_NS / 10 + 1);
            assert_eq!(rolled.try_iter().count(), 0);
        }
    }

    #[test]
    fn a_reader_that_is_behind_costs_neither_counts_nor_memory() {
        let (out, rolled) = mpsc::channel();
        let mut recorder = Recorder::new(2, 0, out);
        for second in 0..100 {
            recorder.record(0, 1, 5);
            recorder.record(1, 1, 5);
            recorder.roll(second * ROLL_NS);
        }
        recorder.finish();
        let rolled: Vec<Rolled> = rolled.iter().collect();
        // Two intervals of both metrics, measured and warm-up, and the rest at the end.
        assert!(rolled.len() <= 2 * 2 * 2 + 2, "{} histograms wait", rolled.len());
        let mut collector = Collector::new(&["latency", "late"]);
        rolled.into_iter().for_each(|one| collector.take(one));
        assert_eq!([collector.total(0).count(), collector.total(1).count()], [100, 100]);
    }

    #[test]
    fn the_latest_value_replaces_untaken_ones() {
        let latest = Latest::default();
        assert_eq!(latest.take(), None);
        (1..=3).for_each(|value| latest.publish(value));
        assert_eq!((latest.take(), latest.take()), (Some(3), None));
    }

    #[test]
    fn the_last_silence_counts_in_neither_cpu_nor_wall_time() {
        let spin = |seconds: f64| {
            let until = leadline_sys::usage::thread_cpu_s() + seconds;
            while leadline_sys::usage::thread_cpu_s() < until {}
        };
        let mut meter = ThreadMeter::begin("t", 0);
        meter.rest(1_000_000_000);
        meter.go_on();
        meter.rest(2_000_000_000);
        spin(0.3);
        meter.rest(3_000_000_000);
        let report = meter.end(4_000_000_000);
        assert_eq!(report.wall_s, 2.0);
        assert!(report.user_s + report.system_s < 0.25, "{report:?}");
    }
}
