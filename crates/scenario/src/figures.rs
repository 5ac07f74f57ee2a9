//! The figures of one thread: of each label and each population, in total and since they were taken last.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_stats::Histogram;
use leadline_wire::scenario::IterationCounts;

use super::program::Program;
use super::samples::Opening;

/// The slowest requests that are kept unless another number is wanted.
const SLOWEST: usize = 20;

/// The figures of one thread.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By label.
    pub labels: Vec<LabelFigures>,
    /// By population.
    pub populations: Vec<PopulationFigures>,
    /// The slowest requests, the slowest first.
    pub slowest: Vec<Slow>,
    /// Failed steps that are no requests, by cause.
    pub faults: BTreeMap<Cow<'static, str>, u64>,
    /// The first message of each cause.
    pub fault_examples: BTreeMap<Cow<'static, str>, String>,
    /// What is due before this instant is warm-up, ns.
    pub warm_until_ns: u64,
    /// How many of the slowest requests are kept.
    pub slowest_most: usize,
    /// Whether they have their URLs.
    pub slowest_with_urls: bool,
}

/// The figures of a label.
#[derive(Clone, Debug, Default)]
pub struct LabelFigures {
    /// Ended requests or transactions.
    pub ended: u64,
    /// Failed ones.
    pub failed: u64,
    /// Those without an end.
    pub interrupted: u64,
    /// Failures by cause.
    pub errors: BTreeMap<Cow<'static, str>, u64>,
    /// The first message of each cause.
    pub examples: BTreeMap<Cow<'static, str>, String>,
    /// Passed and failed checks.
    pub checks: Vec<(u64, u64)>,
    /// Extractions that found nothing.
    pub misses: BTreeMap<Arc<str>, u64>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Redirects followed.
    pub redirects: u64,
    /// Requests that the cache answered.
    pub cached: u64,
    /// Resources of its pages.
    pub resources: u64,
    /// Its distributions.
    pub histograms: LabelHistograms,
    /// What ended since the figures were taken last.
    pub recent: Recent,
}

/// The distributions of a label. Those that are censored hold ages: of a request that timed out or that was outstanding
/// when its iteration was interrupted, only a lower bound of the duration is known.
pub const METRICS: [&str; 6] = ["latency", "service", "first_byte", "waits", "latency_censored", "service_censored"];

/// What ended since the figures were taken last.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// How many ended.
    pub ended: u64,
    /// How many failed.
    pub failed: u64,
    /// By cause.
    pub errors: BTreeMap<Cow<'static, str>, u64>,
    /// As those of the label.
    pub histograms: LabelHistograms,
}

/// Distributions, measured and warm-up, in the order of [`METRICS`].
pub type LabelHistograms = [[Option<Box<Histogram>>; METRICS.len()]; 2];
/// Distributions in the order of [`ITERATION_METRICS`].
pub type PopulationHistograms = [Option<Box<Histogram>>; ITERATION_METRICS.len()];

/// The figures of a population.
#[derive(Clone, Debug, Default)]
pub struct PopulationFigures {
    /// Iterations.
    pub iterations: IterationCounts,
    /// Users that began.
    pub users_begun: u64,
    /// Users that exist.
    pub users: u64,
    /// The largest number of users at once.
    pub users_most: u64,
    /// When the last iteration ended, ns.
    pub end_ns: u64,
    /// `iteration`, `iteration_due` and `start_late`.
    pub histograms: PopulationHistograms,
    /// Those since the figures were taken last.
    pub recent: PopulationHistograms,
}

/// The distributions of a population.
pub const ITERATION_METRICS: [&str; 3] = ["iteration", "iteration_due", "start_late"];

/// One of the slowest requests.
#[derive(Clone, Debug)]
pub struct Slow {
    /// From due to its end, ns.
    pub latency_ns: u64,
    /// Its label.
    pub label: u32,
    /// The user's number.
    pub user: u32,
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// From due to sent, ns.
    pub before_sent_ns: u64,
    /// From sent to the first byte, ns.
    pub first_byte_ns: Option<u64>,
    /// Status code.
    pub status: Option<u16>,
    /// Cause of failure.
    pub error: Option<String>,
    /// The connection that was opened for it.
    pub opening: Option<Opening>,
    /// Its URL, if it is wanted.
    pub url: Option<String>,
}

/// The end of a request or transaction.
#[derive(Debug, Default)]
pub struct End {
    /// When it was wanted, ns.
    pub due_ns: u64,
    /// From due to its end, ns, if it had one.
    pub latency_ns: Option<u64>,
    /// From sent to its end, ns.
    pub service_ns: Option<u64>,
    /// From sent to the first byte, ns.
    pub first_byte_ns: Option<u64>,
    /// Waits in it, ns.
    pub waits_ns: Option<u64>,
    /// If it timed out: from due and from sent until then, ns.
    pub age: Age,
    /// Why it failed.
    pub failure: Option<(Cow<'static, str>, String)>,
}

/// How long ago a request without a response was due and was sent, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Age {
    /// Since due.
    pub latency_ns: Option<u64>,
    /// Since sent.
    pub service_ns: Option<u64>,
}

impl Figures {
    /// Returns empty figures.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let label = |label: &super::program::Label| LabelFigures {
            checks: vec![(0, 0); label.checks.len()],
            ..LabelFigures::default()
        };
        Self {
            labels: program.labels.iter().map(label).collect(),
            populations: program.populations.iter().map(|_| PopulationFigures::default()).collect(),
            slowest_most: SLOWEST,
            ..Self::default()
        }
    }

    /// Records the end of a request or transaction.
    pub fn end(&mut self, label: u32, end: End) {
        self.measure(label, &end);
        let figures = &mut self.labels[label as usize];
        figures.ended += 1;
        figures.recent.ended += 1;
        if let Some((cause, detail)) = end.failure {
            figures.failed += 1;
            figures.recent.failed += 1;
            *figures.recent.errors.entry(cause.clone()).or_insert(0) += 1;
            if !figures.examples.contains_key(&cause) {
                figures.examples.insert(cause.clone(), detail);
            }
            *figures.errors.entry(cause).or_insert(0) += 1;
        }
    }

    /// Records the age of a request or transaction that is outstanding when it is given up; `interrupted` counts it.
    pub fn outstanding(&mut self, label: u32, due_ns: u64, age: Age) {
        self.measure(label, &End { due_ns, age, ..End::default() });
    }

    fn measure(&mut self, label: u32, end: &End) {
        let set = usize::from(end.due_ns < self.warm_until_ns);
        let figures = &mut self.labels[label as usize];
        let known = [end.latency_ns, end.service_ns, end.first_byte_ns, end.waits_ns];
        let ages = [end.age.latency_ns, end.age.service_ns];
        let histograms = figures.histograms[set].iter_mut().zip(&mut figures.recent.histograms[set]);
        for ((whole, recent), value) in histograms.zip(known.into_iter().chain(ages)) {
            if let Some(value) = value {
                let bucket = Histogram::bucket(value);
                whole.get_or_insert_default().record_at(bucket);
                recent.get_or_insert_default().record_at(bucket);
            }
        }
    }

    /// Counts a step that is no request and failed.
    pub fn fault(&mut self, cause: &'static str, detail: String) {
        *self.faults.entry(cause.into()).or_insert(0) += 1;
        self.fault_examples.entry(cause.into()).or_insert(detail);
    }

    /// Whether a request of that latency belongs to the slowest.
    #[must_use]
    pub fn is_slow(&self, latency_ns: u64) -> bool {
        self.slowest.len() < self.slowest_most || self.slowest.last().is_some_and(|last| latency_ns > last.latency_ns)
    }

    /// Keeps a request among the slowest.
    pub fn keep_slow(&mut self, slow: Slow) {
        let place = self.slowest.partition_point(|other| other.latency_ns >= slow.latency_ns);
        self.slowest.insert(place, slow);
        self.slowest.truncate(self.slowest_most);
    }

    /// Adds the figures of another thread.
    pub fn merge(&mut self, other: Self) {
        for (own, other) in self.labels.iter_mut().zip(other.labels) {
            own.merge(other);
        }
        for (own, other) in self.populations.iter_mut().zip(other.populations) {
            own.merge(other);
        }
        self.slowest_most = self.slowest_most.max(other.slowest_most);
        other.slowest.into_iter().for_each(|slow| self.keep_slow(slow));
        for (cause, count) in other.faults {
            *self.faults.entry(cause).or_insert(0) += count;
        }
        for (cause, example) in other.fault_examples {
            self.fault_examples.entry(cause).or_insert(example);
        }
    }

    /// Takes what ended since the last call, by label.
    pub fn take_recent(&mut self) -> Vec<(u32, Recent)> {
        let is_new = |recent: &Recent| {
            recent.ended > 0 || recent.histograms.iter().flatten().any(|histogram| histogram.is_some())
        };
        let recent = self.labels.iter_mut().zip(0..).filter(|(label, _)| is_new(&label.recent));
        recent.map(|(label, index)| (index, std::mem::take(&mut label.recent))).collect()
    }

    /// Takes the distributions of iterations since the last call, by population.
    pub fn take_recent_iterations(&mut self) -> Vec<PopulationHistograms> {
        self.populations.iter_mut().map(|population| std::mem::take(&mut population.recent)).collect()
    }
}

impl Recent {
    /// Adds what ended on another thread.
    pub fn merge(&mut self, other: Self) {
        self.ended += other.ended;
        self.failed += other.failed;
        for (cause, count) in other.errors {
            *self.errors.entry(cause).or_insert(0) += count;
        }
        merge_all(self.histograms.as_flattened_mut(), other.histograms.into_iter().flatten());
    }
}

impl LabelFigures {
    /// Counts an extraction that found nothing.
    pub fn miss(&mut self, variable: &Arc<str>) {
        *self.misses.entry(Arc::clone(variable)).or_insert(0) += 1;
    }

    /// Counts a check.
    pub fn check(&mut self, place: u32, passed: bool) {
        let counts = &mut self.checks[place as usize];
        *if passed { &mut counts.0 } else { &mut counts.1 } += 1;
    }

    fn merge(&mut self, other: Self) {
        self.ended += other.ended;
        self.failed += other.failed;
        self.interrupted += other.interrupted;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.redirects += other.redirects;
        self.cached += other.cached;
        self.resources += other.resources;
        for (cause, count) in other.errors {
            *self.errors.entry(cause).or_insert(0) += count;
        }
        for (cause, example) in other.examples {
            self.examples.entry(cause).or_insert(example);
        }
        for (own, other) in self.checks.iter_mut().zip(other.checks) {
            *own = (own.0 + other.0, own.1 + other.1);
        }
        for (variable, count) in other.misses {
            *self.misses.entry(variable).or_insert(0) += count;
        }
        merge_all(self.histograms.as_flattened_mut(), other.histograms.into_iter().flatten());
    }
}

impl PopulationFigures {
    /// Records a value of a distribution.
    pub fn record(&mut self, metric: usize, value_ns: u64) {
        let bucket = Histogram::bucket(value_ns);
        self.histograms[metric].get_or_insert_default().record_at(bucket);
        self.recent[metric].get_or_insert_default().record_at(bucket);
    }

    /// Adds those of another thread. The largest numbers of users are added too: an upper bound.
    pub fn merge(&mut self, other: Self) {
        let (own, more) = (&mut self.iterations, other.iterations);
        own.due += more.due;
        own.begun += more.begun;
        own.late += more.late;
        own.dropped += more.dropped;
        own.not_begun += more.not_begun;
        own.completed += more.completed;
        own.failed += more.failed;
        own.interrupted += more.interrupted;
        own.running += more.running;
        self.users_begun += other.users_begun;
        self.users += other.users;
        self.users_most += other.users_most;
        self.end_ns = self.end_ns.max(other.end_ns);
        merge_all(&mut self.histograms, other.histograms.into_iter());
    }
}

/// Adds distributions to those at the same places.
pub fn merge_all(sums: &mut [Option<Box<Histogram>>], others: impl Iterator<Item = Option<Box<Histogram>>>) {
    for (sum, other) in sums.iter_mut().zip(others) {
        match (sum, other) {
            (Some(sum), Some(other)) => sum.merge(&other),
            (sum @ None, other) => *sum = other,
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_at_times_adds_up_to_the_whole() {
        let mut figures = Figures { labels: vec![LabelFigures::default()], warm_until_ns: 10, ..Figures::default() };
        figures.populations.push(PopulationFigures::default());
        let (mut sum, mut iterations) = (Recent::default(), PopulationHistograms::default());
        for number in 0..1000u64 {
            let latency_ns = Some(number * number * 1_000);
            let age = Age { latency_ns: (number % 9 == 0).then_some(number), service_ns: None };
            let end = End { due_ns: number, latency_ns, service_ns: latency_ns, age, ..End::default() };
            figures.end(0, end);
            figures.populations[0].record((number % 3) as usize, number * 7_000);
            if number % 100 == 50 {
                figures.take_recent().into_iter().for_each(|(_, own)| sum.merge(own));
                figures
                    .take_recent_iterations()
                    .into_iter()
                    .for_each(|own| merge_all(&mut iterations, own.into_iter()));
            }
        }
        figures.outstanding(0, 0, Age { latency_ns: Some(5), service_ns: Some(4) });
        figures.take_recent().into_iter().for_each(|(_, own)| sum.merge(own));
        figures.take_recent_iterations().into_iter().for_each(|own| merge_all(&mut iterations, own.into_iter()));
        assert!(figures.take_recent().is_empty(), "it was all taken");
        let values = |own: &[Option<Box<Histogram>>]| -> Vec<Vec<(u64, u64)>> {
            own.iter().map(|own| own.iter().flat_map(|own| own.recorded()).collect()).collect()
        };
        let label = &figures.labels[0];
        assert_eq!(sum.ended, label.ended);
        assert_eq!(values(sum.histograms.as_flattened()), values(label.histograms.as_flattened()));
        assert_eq!(values(&iterations), values(&figures.populations[0].histograms));
    }
}
