//! The program of a replay: one population, and labels that get their names while the source is read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use leadline_wire::scenario::{Arrivals, FirstArrival, IterationEnd, LabelKind, OnError, Phase, Spacing};

use crate::program::{Label, LabelName, Population, Program};

/// The number of labels; the last one is for all further names.
pub const LABEL_LIMIT: usize = 200;
/// The name of the last label.
const OTHERS: &str = "other requests";

/// Returns the program of a replay.
#[must_use]
pub fn replay_program(name: &str, seed: u64) -> Program {
    let label = |_| Label {
        name: LabelName::default(),
        kind: LabelKind::Request,
        population: 0,
        checks: Vec::new(),
        tags: BTreeMap::new(),
        is_hidden: false,
    };
    let population = Population {
        name: "sessions".to_owned(),
        phase: Phase::Main,
        after: Vec::new(),
        delay_ns: 0,
        arrivals: Arrivals::Open {
            stages: Vec::new(),
            spacing: Spacing::Even,
            first: FirstArrival::AtStart,
            users_at_start: 0,
            users_most: None,
            drop_while_growing: false,
        },
        end: IterationEnd::Iteration { grace_ms: 0 },
        on_error: OnError::Continue,
        new_user: false,
        clears_cookies: false,
        clears_cache: false,
        closes_connections: false,
        variables: Vec::new(),
        before: 0,
        flow: 0,
        afterwards: 0,
    };
    Program {
        name: name.to_owned(),
        seed,
        labels: (0..LABEL_LIMIT).map(label).collect(),
        populations: vec![population],
        ..Program::default()
    }
}

/// Gives labels to names, in the order in which they come.
pub struct LabelNames {
    program: Arc<Program>,
    places: HashMap<String, u32>,
}

impl LabelNames {
    /// Returns names for a program's labels, none of which has one.
    #[must_use]
    pub fn new(program: Arc<Program>) -> Self {
        Self { program, places: HashMap::new() }
    }

    /// Returns the label of a name.
    pub fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let next = self.places.len();
        if next + 1 >= self.program.labels.len() {
            let last = self.program.labels.len() - 1;
            self.program.labels[last].name.set(OTHERS.to_owned());
            return last as u32;
        }
        self.program.labels[next].name.set(name.to_owned());
        self.places.insert(name.to_owned(), next as u32);
        next as u32
    }
}
