//! The figures of a scenario, from those of its threads: while it runs, and at its end. Every request that was sent is
//! in exactly one of the ended ones (with or without a failure) and `interrupted` of its label.

use std::collections::BTreeMap;
use std::sync::Arc;

use leadline_scenario::figures::{
    merge_all, Figures, LabelFigures, LabelHistograms, PopulationHistograms, Recent, ITERATION_METRICS, METRICS,
};
use leadline_scenario::{Program, Shared};
use leadline_stats::Histogram;
use leadline_wire::scenario::{
    CheckReport, LabelKind, LabelProgress, LabelReport, Phase, PopulationProgress, PopulationReport, ScenarioProgress,
    ScenarioReport, SlowRequest,
};
use leadline_wire::{
    Counts, Direction, FlowReport, HistogramReport, HttpCounts, LoadReport, Outcome, Side, Standing, ThreadReport,
};

use super::outbox::Snapshot;
use super::plan::Plan;
use super::worker::WorkerReport;
use crate::load::net::io_backend::Engine;
use crate::metering::FlowCounters;

/// The most names whose intervals have all their distributions in the journal: with more it would grow by several
/// hundred bytes for each of them in each second.
const MOST_DETAILED: usize = 40;
/// Places in [`METRICS`].
const LATENCY: usize = 0;
const WAITS: usize = 3;
const CENSORED: usize = 4;

/// What the threads have published.
#[derive(Default)]
pub struct Published {
    latest: BTreeMap<usize, (HttpCounts, Vec<PopulationProgress>, ThreadReport)>,
    recent: BTreeMap<u32, Recent>,
    /// Distributions since they were handed over last, by label.
    details: BTreeMap<u32, LabelHistograms>,
    /// The same by population.
    iterations: Vec<PopulationHistograms>,
    errors: BTreeMap<String, u64>,
    /// Figures since the beginning, by thread, since they were reported last.
    so_far: BTreeMap<usize, Box<Figures>>,
    is_new: bool,
}

impl Published {
    /// Takes a snapshot.
    pub fn take(&mut self, snapshot: Snapshot, program: &Program) {
        self.is_new = true;
        for (label, recent) in snapshot.recent {
            if program.labels[label as usize].kind == LabelKind::Request {
                for (cause, count) in &recent.errors {
                    *self.errors.entry(cause.to_string()).or_insert(0) += count;
                }
            }
            add_all(self.details.entry(label).or_default(), &recent.histograms);
            self.recent.entry(label).or_default().merge(recent);
        }
        self.iterations.resize_with(snapshot.iterations.len(), PopulationHistograms::default);
        for (sum, own) in self.iterations.iter_mut().zip(snapshot.iterations) {
            merge_all(sum, own.into_iter());
        }
        if let Some(figures) = snapshot.so_far {
            self.so_far.insert(snapshot.worker, figures);
        }
        self.latest.insert(snapshot.worker, (snapshot.counts, snapshot.populations, snapshot.thread));
    }

    /// Returns the state of the load, if it is newer than the last one.
    pub fn standing(&mut self) -> Option<Standing> {
        if !std::mem::take(&mut self.is_new) {
            return None;
        }
        let (mut counts, mut connections) = (HttpCounts::default(), 0);
        for (own, _, _) in self.latest.values() {
            counts.add(own);
            connections += own.connections.unwrap_or(0);
        }
        counts.connections = Some(connections);
        let threads = self.latest.values().map(|(_, _, thread)| thread.clone()).collect();
        Some(Standing { counts: Counts::Http(Box::new(counts)), errors: self.errors.clone(), threads })
    }

    /// Returns the state of the scenario. If it `hands_over`, it also returns the distributions of all requests,
    /// transactions and iterations since it did so last, and the state has those of each.
    pub fn progress(
        &mut self,
        program: &Program,
        shared: &Shared,
        hands_over: bool,
    ) -> (Vec<HistogramReport>, ScenarioProgress) {
        let details = if hands_over { std::mem::take(&mut self.details) } else { BTreeMap::new() };
        let iterations = if hands_over { std::mem::take(&mut self.iterations) } else { Vec::new() };
        let histograms = together(program, &details, &iterations);
        let labels = self.labels(program, &details);
        let populations = self.populations(&iterations);
        (histograms, ScenarioProgress { populations, labels, so_far: self.report_so_far(program, shared) })
    }

    /// Returns the state of the labels, with the distributions that are handed over.
    fn labels(&mut self, program: &Program, details: &BTreeMap<u32, LabelHistograms>) -> Vec<LabelProgress> {
        let is_detailed = program.labels.len() <= MOST_DETAILED;
        let mut recent = std::mem::take(&mut self.recent);
        details.keys().filter(|_| is_detailed).for_each(|label| {
            recent.entry(*label).or_default();
        });
        let labels = recent.into_iter().map(|(index, recent)| {
            let label = &program.labels[index as usize];
            let Recent { ended, failed, errors, histograms: own } = recent;
            let mut latency = Histogram::new();
            own.iter().filter_map(|set| set[LATENCY].as_deref()).for_each(|one| latency.merge(one));
            LabelProgress {
                name: label.name.to_string(),
                kind: label.kind,
                ended,
                failed,
                errors: errors.into_iter().map(|(cause, count)| (cause.into_owned(), count)).collect(),
                latency: histogram("latency", &latency),
                tags: label.tags.clone(),
                histograms: is_detailed
                    .then(|| details.get(&index).map_or_else(Vec::new, |own| reports(&METRICS, "", &own[0]))),
            }
        });
        labels.collect()
    }

    /// Returns the state of the populations, with the distributions that are handed over.
    fn populations(&self, iterations: &[PopulationHistograms]) -> Vec<PopulationProgress> {
        let mut populations: Vec<PopulationProgress> = Vec::new();
        for (_, own, _) in self.latest.values() {
            if populations.is_empty() {
                populations.clone_from(own);
                continue;
            }
            populations.iter_mut().zip(own).for_each(|(sum, own)| add_population(sum, own));
        }
        for (population, own) in populations.iter_mut().zip(iterations) {
            population.histograms = reports(&ITERATION_METRICS, "", own);
        }
        populations
    }

    /// Returns the figures since the beginning, once all threads have passed on newer ones.
    fn report_so_far(&mut self, program: &Program, shared: &Shared) -> Option<Box<ScenarioReport>> {
        if self.so_far.is_empty() || self.so_far.len() < self.latest.len() {
            return None;
        }
        let mut figures = Figures::new(program);
        std::mem::take(&mut self.so_far).into_values().for_each(|own| figures.merge(*own));
        figures.slowest.clear();
        Some(Box::new(scenario_report(program, shared, figures, 0)))
    }
}

fn add_population(sum: &mut PopulationProgress, own: &PopulationProgress) {
    sum.users_active += own.users_active;
    sum.users += own.users;
    let (iterations, more) = (&mut sum.iterations, &own.iterations);
    iterations.due += more.due;
    iterations.begun += more.begun;
    iterations.late += more.late;
    iterations.dropped += more.dropped;
    iterations.not_begun += more.not_begun;
    iterations.completed += more.completed;
    iterations.failed += more.failed;
    iterations.interrupted += more.interrupted;
    iterations.running += more.running;
}

/// Adds the distributions of a label.
fn add_all(sums: &mut LabelHistograms, own: &LabelHistograms) {
    for (sum, own) in sums.as_flattened_mut().iter_mut().zip(own.as_flattened()) {
        if let Some(own) = own {
            sum.get_or_insert_default().merge(own);
        }
    }
}

/// Returns the distributions of all requests, of all transactions and of all iterations.
fn together(
    program: &Program,
    details: &BTreeMap<u32, LabelHistograms>,
    iterations: &[PopulationHistograms],
) -> Vec<HistogramReport> {
    let (mut requests, mut transactions) = (LabelHistograms::default(), LabelHistograms::default());
    for (label, own) in details {
        match program.labels[*label as usize].kind {
            LabelKind::Request => add_all(&mut requests, own),
            LabelKind::Transaction => add_all(&mut transactions, own),
        }
    }
    let mut histograms = request_reports(&requests);
    for (metric, name) in [(LATENCY, "transaction"), (CENSORED, "transaction_censored")] {
        histograms.extend(transactions[0][metric].as_deref().map(|own| histogram(name, own)));
    }
    histograms.extend(main_iterations(program, iterations));
    histograms
}

/// Returns the distributions of the main populations' iterations together.
fn main_iterations(program: &Program, iterations: &[PopulationHistograms]) -> Vec<HistogramReport> {
    let mut sums = PopulationHistograms::default();
    let main = iterations.iter().zip(&program.populations).filter(|(_, population)| population.phase == Phase::Main);
    main.for_each(|(own, _)| merge_all(&mut sums, own.iter().cloned()));
    reports(&ITERATION_METRICS, "", &sums)
}

fn histogram(metric: &str, histogram: &Histogram) -> HistogramReport {
    HistogramReport { metric: metric.to_owned(), count: histogram.count(), hdr_v2: histogram.encode() }
}

/// Returns the outcome of a scenario.
pub fn outcome(
    plan: &Plan,
    shared: &Shared,
    at_ns: u64,
    engine: (Engine, Option<String>),
    reports: Vec<WorkerReport>,
    counters: &[Arc<FlowCounters>],
) -> Outcome {
    let program = &plan.program;
    let mut figures = Figures::new(program);
    let (mut counts, mut flows, mut threads) = (HttpCounts::default(), Vec::new(), Vec::new());
    let mut phases = [
        ("dns", Histogram::new()),
        ("connect", Histogram::new()),
        ("tls_full", Histogram::new()),
        ("tls_resumed", Histogram::new()),
    ];
    let mut memory_bytes = 0;
    for ((report, counters), flow) in reports.into_iter().zip(counters).zip(0..) {
        flows.push(flow_report(flow, at_ns, &report, counters));
        counts.add(&report.counts);
        memory_bytes += report.memory_bytes;
        let own = [&report.phases.dns, &report.phases.connect, &report.phases.tls_full, &report.phases.tls_resumed];
        phases.iter_mut().zip(own).for_each(|((_, sum), own)| sum.merge(own));
        figures.merge(report.figures);
        threads.push(report.thread);
    }
    let redirects = figures.labels.iter().map(|label| label.redirects).sum();
    counts.redirects = (redirects > 0).then_some(redirects);
    let mut histograms = request_histograms(program, &figures);
    histograms.extend(phases.iter().filter(|(_, sum)| !sum.is_empty()).map(|(name, sum)| histogram(name, sum)));
    let late = figures.populations.iter().filter_map(|population| population.histograms[2].as_deref());
    let late = late.fold(None, |sum: Option<Histogram>, own| {
        let mut sum = sum.unwrap_or_default();
        sum.merge(own);
        Some(sum)
    });
    let late_p99_us = late.as_ref().and_then(|late| late.quantile_ns(0.99)).map(|late_ns| late_ns as f64 / 1e3);
    histograms.extend(late.map(|late| histogram("late", &late)));
    let (errors, error_examples) = errors(program, &figures);
    let wall_s = threads.iter().map(|thread: &ThreadReport| thread.wall_s).fold(0.0, f64::max);
    let generator = LoadReport {
        side: Side::Local,
        wall_s,
        threads,
        pushback: 0,
        late_p99_us,
        socket_drops: None,
        engine: Some(engine.0.name().to_owned()),
        engine_reason: engine.1,
        machine: None,
        quota: None,
    };
    Outcome {
        flows,
        histograms,
        errors,
        error_examples,
        generator,
        receiver: None,
        counts: Counts::Http(Box::new(counts)),
        tunnel: None,
        crypto: None,
        scenario: Some(Box::new(scenario_report(program, shared, figures, memory_bytes))),
        packets: None,
    }
}

/// Returns the distributions of all requests together.
fn request_histograms(program: &Program, figures: &Figures) -> Vec<HistogramReport> {
    let mut sums = LabelHistograms::default();
    let requests = figures.labels.iter().zip(&program.labels).filter(|(_, label)| label.kind == LabelKind::Request);
    requests.for_each(|(own, _)| add_all(&mut sums, &own.histograms));
    request_reports(&sums)
}

/// Returns the distributions of requests; only transactions have waits.
fn request_reports(sums: &LabelHistograms) -> Vec<HistogramReport> {
    let mut found = Vec::new();
    for (set, prefix) in sums.iter().zip(["", "warmup_"]) {
        found.extend(reports(&METRICS[..WAITS], prefix, &set[..WAITS]));
        found.extend(reports(&METRICS[WAITS + 1..], prefix, &set[WAITS + 1..]));
    }
    found
}

/// Returns the failures of requests, and of steps that are no requests.
fn errors(program: &Program, figures: &Figures) -> (BTreeMap<String, u64>, BTreeMap<String, String>) {
    let (mut errors, mut examples) = (BTreeMap::new(), BTreeMap::new());
    let requests = figures.labels.iter().zip(&program.labels).filter(|(_, label)| label.kind == LabelKind::Request);
    for (own, _) in requests {
        for (cause, count) in &own.errors {
            *errors.entry(cause.to_string()).or_insert(0) += count;
        }
        for (cause, example) in &own.examples {
            examples.entry(cause.to_string()).or_insert_with(|| example.clone());
        }
    }
    for (cause, count) in &figures.faults {
        *errors.entry(cause.to_string()).or_insert(0) += count;
    }
    for (cause, example) in &figures.fault_examples {
        examples.entry(cause.to_string()).or_insert_with(|| example.clone());
    }
    (errors, examples)
}

fn scenario_report(program: &Program, shared: &Shared, figures: Figures, memory_bytes: u64) -> ScenarioReport {
    let Figures { labels, populations, slowest, .. } = figures;
    let populations = populations.into_iter().zip(&program.populations).zip(shared.populations());
    let populations = populations.map(|((own, population), state)| PopulationReport {
        name: population.name.clone(),
        is_main: population.phase == Phase::Main,
        iterations: own.iterations,
        users_begun: own.users_begun,
        users_most: own.users_most,
        start_ns: state.started_ns(),
        end_ns: (own.end_ns > 0).then_some(own.end_ns),
        histograms: reports(&ITERATION_METRICS, "", &own.histograms),
    });
    let slowest = slowest.into_iter().map(|slow| SlowRequest {
        label: slow.label,
        user: slow.user,
        due_ns: slow.due_ns,
        latency_us: us(slow.latency_ns),
        before_sent_us: us(slow.before_sent_ns),
        first_byte_us: slow.first_byte_ns.map(us),
        status: slow.status,
        error: slow.error,
        dns_us: slow.opening.and_then(|opening| opening.dns_ns).map(us),
        connect_us: slow.opening.map(|opening| us(opening.connect_ns)),
        tls_us: slow.opening.and_then(|opening| opening.tls_ns).map(us),
        url: slow.url,
    });
    // The labels of a replay that no request has had are the last ones.
    let known = program.labels.iter().rposition(|label| label.name.is_known()).map_or(0, |last| last + 1);
    let labels = labels.into_iter().zip(&program.labels).take(known);
    ScenarioReport {
        populations: populations.collect(),
        labels: labels.map(|(own, label)| label_report(own, label)).collect(),
        replay: None,
        slowest: slowest.collect(),
        users_memory_bytes: (memory_bytes > 0).then_some(memory_bytes),
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn label_report(own: LabelFigures, label: &leadline_scenario::Label) -> LabelReport {
    let mut histograms = reports(&METRICS, "", &own.histograms[0]);
    histograms.extend(reports(&METRICS, "warmup_", &own.histograms[1]));
    let checks = label.checks.iter().zip(own.checks);
    LabelReport {
        name: label.name.to_string(),
        kind: label.kind,
        population: label.population,
        ended: own.ended,
        failed: own.failed,
        interrupted: own.interrupted,
        errors: own.errors.into_iter().map(|(cause, count)| (cause.into_owned(), count)).collect(),
        error_examples: own.examples.into_iter().map(|(cause, example)| (cause.into_owned(), example)).collect(),
        checks: checks.map(|(name, (passed, failed))| CheckReport { name: name.clone(), passed, failed }).collect(),
        misses: own.misses.into_iter().map(|(variable, count)| (variable.to_string(), count)).collect(),
        sent_bytes: own.sent_bytes,
        received_bytes: own.received_bytes,
        redirects: own.redirects,
        cached: own.cached,
        resources: own.resources,
        histograms,
        tags: label.tags.clone(),
        is_hidden: label.is_hidden,
    }
}

fn reports(names: &[&str], prefix: &str, histograms: &[Option<Box<Histogram>>]) -> Vec<HistogramReport> {
    let present = names.iter().zip(histograms).filter_map(|(name, own)| Some((name, own.as_deref()?)));
    present.map(|(name, own)| histogram(&format!("{prefix}{name}"), own)).collect()
}

fn flow_report(flow: u32, at_ns: u64, report: &WorkerReport, counters: &FlowCounters) -> FlowReport {
    FlowReport {
        flow,
        direction: Direction::Down,
        due_ns: at_ns,
        start_ns: report.first_sent_ns,
        end_ns: report.end_ns,
        sent_bytes: Some(counters.sent_bytes()),
        received_bytes: Some(counters.received_bytes()),
        sent_units: Some(counters.sent_units()),
        received_units: Some(counters.received_units()),
        lost: None,
        duplicates: None,
        reordered: None,
        jitter_us: None,
        latency_mean_us: None,
        latency_max_us: None,
        retransmits: None,
        rtt_mean_us: None,
        congestion: None,
        peer_congestion: None,
        local: None,
        remote: None,
        datagrams: None,
        sender_tcp: None,
        receiver_tcp: None,
    }
}
