//! A replay: recorded requests that a thread of its own reads (`reader`, from what `open` recognises), chooses and passes
//! on (`dispatch`) to the threads of users, which send them (`leadline_scenario::replay`).

mod causes;
mod dispatch;
mod open;
mod reader;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use leadline_scenario::replay::{replay_program, Differences, ReplayCounts};
use leadline_scenario::Program;
use leadline_stats::Histogram;
use leadline_wire::scenario::{Replay, ReplayDifference, ReplayPace, ReplayReport, REPLAY_COPIES_LIMIT};
use leadline_wire::{ErrorReport, HistogramReport, ScenarioSpec};

use self::reader::ReadReport;
pub use self::reader::Reader;
use crate::events::input_error;

/// The differences that a report has one by one.
const MAX_DIFFERENCES: usize = 200;

/// Checks a replay and returns its program.
pub fn program(spec: &ScenarioSpec, replay: &Replay) -> Result<Program, ErrorReport> {
    let bad = |message: &str| Err(input_error("bad_replay", message));
    if !spec.plan.populations.is_empty() {
        return bad("a replay has no populations beside it");
    }
    if !(1..=REPLAY_COPIES_LIMIT).contains(&replay.copies) {
        return bad(&format!("copies have to be from 1 to {REPLAY_COPIES_LIMIT}"));
    }
    let pace = match replay.pace {
        ReplayPace::Recorded { speed } => speed,
        ReplayPace::Rate { per_s } => per_s,
    };
    if !pace.is_finite() || pace <= 0.0 {
        return bad("speed and rate have to be above 0");
    }
    Ok(replay_program(&spec.plan.name, spec.seed))
}

/// Returns what became of a replay.
pub fn report(program: &Arc<Program>, read: ReadReport, counts: Vec<ReplayCounts>) -> (ReplayReport, HistogramReport) {
    let mut sum = ReplayCounts::default();
    for own in counts {
        sum.differences.merge(own.differences);
        sum.behind.merge(&own.behind);
        sum.waited += own.waited;
        sum.read_late += own.read_late;
        sum.replaced += own.replaced;
    }
    let ReadReport { dispatched, format, sessions_by, broken_off, follows } = read;
    let length_ns =
        dispatched.last_ns.zip(dispatched.first_ns).map(|(last_ns, first_ns)| last_ns.saturating_sub(first_ns));
    let (differences, more_differences) = differences(program, &sum.differences);
    let report = ReplayReport {
        format,
        sessions_by,
        read: dispatched.read,
        passed_on: dispatched.passed_on,
        left_out: dispatched.left_out,
        reordered: dispatched.reordered,
        sessions: dispatched.sessions,
        first_epoch_ms: dispatched.first_ns.map(|first_ns| first_ns.div_euclid(1_000_000)),
        length_ms: length_ns.map(|length_ns| length_ns as f64 / 1e6),
        precision_ms: f64::from(dispatched.precision_ns) / 1e6,
        waited: sum.waited,
        read_late: (!follows).then_some(sum.read_late),
        compared: sum.differences.compared,
        differing: sum.differences.differing(),
        not_compared: sum.differences.not_compared,
        replaced: sum.replaced,
        differences,
        more_differences,
        broken_off,
    };
    (report, behind(&sum.behind))
}

fn behind(histogram: &Histogram) -> HistogramReport {
    HistogramReport { metric: "behind".to_owned(), count: histogram.count(), hdr_v2: histogram.encode() }
}

/// The most frequent differences, and how many answers had others.
fn differences(program: &Program, found: &Differences) -> (Vec<ReplayDifference>, u64) {
    let mut all: Vec<_> = found.parts.iter().collect();
    all.sort_by_key(|((label, part), own)| (std::cmp::Reverse(own.count), *label, part.clone()));
    let cut = all.split_off(all.len().min(MAX_DIFFERENCES));
    let more = found.more + cut.iter().map(|(_, own)| own.count).sum::<u64>();
    let row = |((label, part), own): (&(u32, String), &leadline_scenario::replay::Part)| ReplayDifference {
        label: program.labels[*label as usize].name.to_string(),
        part: part.clone(),
        count: own.count,
        is_noise: found.noise.contains(&(*label, part.clone())),
        before: own.example.as_ref().map(|(before, _)| before.clone()),
        after: own.example.as_ref().map(|(_, after)| after.clone()),
    };
    (all.into_iter().map(row).collect(), more)
}
