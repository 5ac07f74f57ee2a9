//! What the users of all threads share: variables, counters, positions in data, quotas, and the state of populations
//! and of the test.

use std::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicU8,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Mutex, OnceLock, PoisonError};

use leadline_wire::scenario::{FeederEnd, FeederOrder, FeederShare, Phase};

use super::program::{FeederTable, Population, Program};
use super::random::Random;
use super::throughput::Throughput;
use super::value::Value;

/// The shared state of a scenario that runs.
#[derive(Debug)]
pub struct Shared {
    variables: Vec<Mutex<Value>>,
    counters: Vec<AtomicI64>,
    feeders: Vec<FeederState>,
    /// Passes and executions.
    quotas: Vec<Mutex<(u64, u64)>>,
    marks: Vec<AtomicU64>,
    meetings: Vec<Meeting>,
    populations: Vec<SharedPopulation>,
    stop: AtomicU8,
    /// How the teardown was stopped: a stop before it does not concern it.
    teardown_stop: AtomicU8,
    phase_start_ns: [OnceLock<u64>; 3],
}

/// A rendezvous of users of all threads: the number of its round, and the users that wait in it.
#[derive(Debug, Default)]
pub struct Meeting(Mutex<(u64, usize)>);

impl Meeting {
    /// Joins a round of this many users: returns its number if others are awaited, `None` if this user completes it.
    pub fn join(&self, needed: usize) -> Option<u64> {
        let mut state = self.state();
        if state.1 + 1 >= needed {
            *state = (state.0 + 1, 0);
            return None;
        }
        state.1 += 1;
        Some(state.0)
    }

    /// Returns the number of the round that can be joined; earlier ones have ended.
    pub fn round(&self) -> u64 {
        self.state().0
    }

    /// Ends a round, if it has not ended.
    pub fn end(&self, round: u64) {
        let mut state = self.state();
        if state.0 == round {
            *state = (round + 1, 0);
        }
    }

    /// Ends a round in which at least this many users wait, if it has not ended.
    pub fn end_of(&self, round: u64, needed: usize) {
        let mut state = self.state();
        if state.0 == round && state.1 >= needed {
            *state = (round + 1, 0);
        }
    }

    /// Leaves a round, if it has not ended.
    pub fn leave(&self, round: u64) {
        let mut state = self.state();
        if state.0 == round {
            state.1 = state.1.saturating_sub(1);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, (u64, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position in a feeder's rows.
#[derive(Debug)]
struct FeederState {
    /// One for all, or one for each population.
    next: Vec<AtomicU64>,
    /// The seed of the order of rows.
    seed: u64,
    /// The blocks of rows of each population's users.
    blocks: Vec<Option<Blocks>>,
}

/// The blocks into which a feeder's rows are divided, one for each user that is planned.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// The block of the population's first user.
    first: u64,
    /// The number of blocks.
    count: u64,
}

impl Blocks {
    /// Returns the blocks of each population; none where the users of one that shares the rows are not planned.
    fn of(program: &Program, table: &FeederTable) -> Vec<Option<Self>> {
        let users = |index: u32| program.populations[index as usize].planned_users().map(u64::from);
        let mut blocks = vec![None; program.populations.len()];
        let shares = table.feeder.share == FeederShare::Test;
        let all = table.populations.iter().map(|index| users(*index)).sum::<Option<u64>>();
        let mut first = 0;
        for index in &table.populations {
            let count = if shares { all } else { users(*index) };
            blocks[*index as usize] = count.map(|count| Self { first: if shares { first } else { 0 }, count });
            first += users(*index).unwrap_or(0);
        }
        blocks
    }
}

/// The state of a population over all threads.
#[derive(Debug)]
pub struct SharedPopulation {
    /// When it begins, ns.
    pub start_ns: OnceLock<u64>,
    /// Threads on which it has not ended.
    pub threads_left: AtomicU32,
    /// When its last part ended, ns.
    pub end_ns: AtomicU64,
    /// Iterations that have been taken.
    pub taken: AtomicU64,
    /// Numbers of users that have been given out.
    pub users: AtomicU32,
    /// Users that exist now.
    pub active: AtomicU32,
}

/// How the test was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It was not.
    No,
    /// No further iteration begins.
    Soon,
    /// Everything ends.
    Now,
}

impl Shared {
    /// Returns the state before the beginning.
    #[must_use]
    pub fn new(program: &Program, threads: u32) -> Self {
        let populations = program.populations.len();
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self {
            variables: program.shared_initial.iter().cloned().map(Mutex::new).collect(),
            counters: (0..program.shared_counters).map(|_| AtomicI64::new(0)).collect(),
            feeders: (program.feeders.iter().enumerate())
                .map(|(index, table)| FeederState {
                    next: zeros(populations.max(1)),
                    seed: program.seed ^ index as u64,
                    blocks: Blocks::of(program, table),
                })
                .collect(),
            quotas: (0..program.quotas).map(|_| Mutex::default()).collect(),
            marks: zeros(program.shared_marks),
            meetings: (0..program.rendezvous).map(|_| Meeting::default()).collect(),
            populations: program.populations.iter().map(|one| SharedPopulation::new(one, threads)).collect(),
            stop: AtomicU8::new(0),
            teardown_stop: AtomicU8::new(0),
            phase_start_ns: Default::default(),
        }
    }

    /// Returns a shared variable.
    #[must_use]
    pub fn get(&self, slot: u32) -> Value {
        self.variables[slot as usize].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets a shared variable.
    pub fn set(&self, slot: u32, value: Value) {
        *self.variables[slot as usize].lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Returns how often a counter was asked before.
    pub fn count(&self, counter: u32) -> i64 {
        self.counters[counter as usize].fetch_add(1, Relaxed)
    }

    /// Decides about a pass of a quota: `decide` gets the passes and executions before.
    pub fn quota(&self, quota: u32, decide: impl FnOnce(u64, u64) -> bool) -> bool {
        let mut counts = self.quotas[quota as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let executes = decide(counts.0, counts.1);
        counts.0 += 1;
        counts.1 += u64::from(executes);
        executes
    }

    /// Reserves the next instant of a shared rate: at the earliest `now_ns`; the one after it is a number of passes later.
    /// `None` if the rate stays 0.
    pub fn reserve(&self, mark: u32, now_ns: u64, rate: Throughput<'_>, passes: f64) -> Option<u64> {
        let mark = &self.marks[mark as usize];
        let mut next_ns = mark.load(Relaxed);
        loop {
            let at_ns = rate.first_ns(next_ns.max(now_ns))?;
            match mark.compare_exchange_weak(next_ns, rate.next_ns(at_ns, passes), Relaxed, Relaxed) {
                Ok(_) => return Some(at_ns),
                Err(other_ns) => next_ns = other_ns,
            }
        }
    }

    /// Returns the next row of a feeder; `None` after the last one. `own` is the user's position.
    pub fn row(
        &self,
        program: &Program,
        feeder: u32,
        population: u32,
        own: &mut u64,
        random: &mut Random,
    ) -> Option<usize> {
        let table = &program.feeders[feeder as usize];
        let (rows, state) = (table.rows.len() as u64, &self.feeders[feeder as usize]);
        if rows == 0 {
            return None;
        }
        if table.feeder.order == FeederOrder::Random {
            return Some(random.below(rows) as usize);
        }
        let recycles = matches!(table.feeder.at_end, FeederEnd::Recycle {});
        let at = match table.feeder.share {
            FeederShare::User => std::mem::replace(own, *own + 1),
            FeederShare::Test => state.next[0].fetch_add(1, Relaxed),
            FeederShare::Population => state.next[population as usize].fetch_add(1, Relaxed),
        };
        if at >= rows && !recycles {
            return None;
        }
        match table.feeder.order {
            FeederOrder::Shuffled => Some(shuffled(at % rows, rows, state.seed ^ (at / rows))),
            _ => Some((at % rows) as usize),
        }
    }

    /// Returns the next row of a feeder whose rows are unique: user n of N has the rows n, n + N and so on, over all
    /// populations that share them. If one of these is an open model, whose users come and go, each row is for the next
    /// user that asks. `None` after the last one. `own` has a planned user's index and the number of rows that it took.
    pub fn unique_row(
        &self,
        program: &Program,
        feeder: u32,
        population: u32,
        own: Option<(u32, &mut u64)>,
    ) -> Option<usize> {
        let (table, state) = (&program.feeders[feeder as usize], &self.feeders[feeder as usize]);
        let rows = table.rows.len() as u64;
        let (first, step, at) = match (state.blocks[population as usize], own) {
            (Some(Blocks { first, count }), Some((index, taken))) => {
                *taken += 1;
                (first + u64::from(index), count, *taken - 1)
            }
            _ => {
                let cursor = if table.feeder.share == FeederShare::Test { 0 } else { population as usize };
                (0, 1, state.next[cursor].fetch_add(1, Relaxed))
            }
        };
        let block = rows.saturating_sub(first).div_ceil(step);
        let recycles = matches!(table.feeder.at_end, FeederEnd::Recycle {});
        let at = if recycles && block > 0 { at % block } else { at };
        (at < block).then(|| (first + at * step) as usize)
    }

    /// A rendezvous.
    #[must_use]
    pub fn meeting(&self, index: u32) -> &Meeting {
        &self.meetings[index as usize]
    }

    /// A population's state.
    #[must_use]
    pub fn population(&self, index: u32) -> &SharedPopulation {
        &self.populations[index as usize]
    }

    /// All populations' states.
    #[must_use]
    pub fn populations(&self) -> &[SharedPopulation] {
        &self.populations
    }

    /// Stops the test, or its teardown if that has begun.
    pub fn stop(&self, stop: Stop) {
        if self.phase_start_ns(2).is_some() {
            self.teardown_stop.fetch_max(stop as u8, Relaxed);
        }
        self.stop.fetch_max(stop as u8, Relaxed);
    }

    /// Stops the test with its teardown.
    pub fn stop_all(&self) {
        self.stop.store(Stop::Now as u8, Relaxed);
        self.teardown_stop.store(Stop::Now as u8, Relaxed);
    }

    /// Returns how the populations of a phase were stopped.
    #[must_use]
    pub fn stopped(&self, phase: Phase) -> Stop {
        let stop = if phase == Phase::Teardown { &self.teardown_stop } else { &self.stop };
        match stop.load(Relaxed) {
            0 => Stop::No,
            1 => Stop::Soon,
            _ => Stop::Now,
        }
    }

    /// Returns when a phase (0 to 2) began, or begins it now.
    pub fn begin_phase(&self, phase: usize, now_ns: u64) -> u64 {
        *self.phase_start_ns[phase].get_or_init(|| now_ns)
    }

    /// Returns when a phase began, ns, if it has.
    #[must_use]
    pub fn phase_start_ns(&self, phase: usize) -> Option<u64> {
        self.phase_start_ns[phase].get().copied()
    }
}

/// Returns the number of a phase: 0 to 2.
#[must_use]
pub fn phase_number(phase: Phase) -> usize {
    match phase {
        Phase::Setup => 0,
        Phase::Main => 1,
        Phase::Teardown | Phase::TeardownUnlessStopped => 2,
    }
}

impl SharedPopulation {
    fn new(population: &Population, threads: u32) -> Self {
        // The planned users of closed models have their numbers already.
        Self {
            start_ns: OnceLock::new(),
            threads_left: AtomicU32::new(threads),
            end_ns: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            users: AtomicU32::new(population.planned_users().unwrap_or(0)),
            active: AtomicU32::new(0),
        }
    }

    /// Whether it has ended on all threads; what it counted is then visible to the populations after it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads_left.load(Acquire) == 0
    }

    /// When it began, ns, if it has.
    #[must_use]
    pub fn started_ns(&self) -> Option<u64> {
        self.start_ns.get().copied()
    }

    /// Returns when it begins; decides that if no thread has.
    pub fn begin(&self, start_ns: u64) -> u64 {
        *self.start_ns.get_or_init(|| start_ns)
    }
}

/// Returns element `at` of a permutation of `rows` numbers (a Feistel network, walked until it stays in range), so
/// that a shuffled order needs no memory and all threads agree on it.
fn shuffled(at: u64, rows: u64, seed: u64) -> usize {
    let half_bits = (64 - rows.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half_bits) - 1;
    let mut value = at;
    loop {
        let (mut left, mut right) = (value >> half_bits, value & mask);
        for round in 0..4u64 {
            let mixed = Random::of(seed ^ round << 56, 0, right as u32).next() & mask;
            (left, right) = (right, left ^ mixed);
        }
        value = left << half_bits | right;
        if value < rows {
            return value as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn shuffled_rows_are_a_permutation() {
        for rows in [1u64, 2, 3, 10, 257] {
            for seed in [1, 2] {
                let mut seen: Vec<usize> = (0..rows).map(|at| shuffled(at, rows, seed)).collect();
                let order = seen.clone();
                seen.sort_unstable();
                assert_eq!(seen, (0..rows as usize).collect::<Vec<_>>());
                assert!(rows < 10 || order != seen);
            }
        }
    }
}
