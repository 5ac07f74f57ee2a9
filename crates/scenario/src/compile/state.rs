//! The state of a compilation: tables of variables, labels and counters, and the limits of a plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use leadline_wire::scenario::{SourcePlace, SCENARIO_DEPTH_LIMIT, SCENARIO_NODE_LIMIT};
use thiserror::Error;

use crate::program::Program;

/// Why a plan cannot be executed. As text it has a line for each part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{}", self.line(), self.others.iter().map(|other| format!("\n{}", other.line())).collect::<String>())]
pub struct CompileError {
    /// Where the part is defined.
    pub place: Option<SourcePlace>,
    /// What it is, and why it cannot be executed.
    pub message: String,
    /// The plan's other parts that cannot be executed.
    pub others: Vec<CompileError>,
}

impl CompileError {
    /// Returns an error about one part.
    pub fn new(place: Option<SourcePlace>, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), others: Vec::new() }
    }

    /// Returns the part, with the place of its definition, in one line.
    fn line(&self) -> String {
        let place = self.place.as_ref().map_or(String::new(), |place| format!("{}:{}: ", place.file, place.line));
        let lines: Vec<&str> = self.message.lines().map(str::trim).collect();
        place + &lines.join(" ")
    }
}

/// How many parts that cannot be executed are named; the compilation ends with the last of them.
pub const MOST_REFUSED: usize = 100;

/// The state of a compilation.
#[derive(Default)]
pub struct Compiler {
    pub program: Program,
    pub files: HashMap<String, Arc<[u8]>>,
    /// The population that is being compiled.
    pub population: u32,
    /// The label of each name, kind and tags in that population.
    pub labels: HashMap<(String, bool, BTreeMap<String, String>), u32>,
    /// The tags of the node that is being compiled.
    pub tags: BTreeMap<String, String>,
    /// Whether a transaction around it hides its requests.
    pub is_hidden: bool,
    pub counters: HashMap<(Box<str>, bool), u32>,
    /// Marks and rendezvous that nodes of one name share.
    pub numbers: HashMap<(String, &'static str), u32>,
    /// Where the node is that is being compiled.
    pub place: Option<SourcePlace>,
    pub nodes: usize,
    /// The parts so far that cannot be executed.
    pub refused: Vec<CompileError>,
}

impl Compiler {
    pub fn error(&self, message: impl Into<String>) -> CompileError {
        CompileError::new(self.place.clone(), message)
    }

    /// Returns what was compiled. A part that cannot be executed is kept, so that the others are looked at too, unless
    /// there are too many parts.
    pub fn kept<T>(&mut self, compiled: Result<T, CompileError>) -> Result<Option<T>, CompileError> {
        match compiled {
            Err(error) if self.nodes > SCENARIO_NODE_LIMIT || self.refused.len() + 1 >= MOST_REFUSED => Err(error),
            Err(error) => {
                self.refused.push(error);
                Ok(None)
            }
            Ok(compiled) => Ok(Some(compiled)),
        }
    }

    /// Compiles each of several parts.
    pub fn each<S, T>(
        &mut self,
        parts: &[S],
        mut compile: impl FnMut(&mut Self, &S) -> Result<T, CompileError>,
    ) -> Result<Vec<T>, CompileError> {
        let mut made = Vec::with_capacity(parts.len());
        for part in parts {
            let compiled = compile(self, part);
            made.extend(self.kept(compiled)?);
        }
        Ok(made)
    }

    /// Returns the index of a user's variable.
    pub fn slot(&mut self, name: &str) -> u32 {
        let next = self.program.slots.len() as u32;
        *self.program.slots.entry(name.into()).or_insert(next)
    }

    pub fn shared_slot(&mut self, name: &str) -> u32 {
        let next = self.program.shared_slots.len() as u32;
        *self.program.shared_slots.entry(name.into()).or_insert(next)
    }

    pub fn count_node(&mut self, depth: usize) -> Result<(), CompileError> {
        self.nodes += 1;
        if self.nodes > SCENARIO_NODE_LIMIT {
            return Err(self.error(format!("the plan has more than {SCENARIO_NODE_LIMIT} nodes")));
        }
        if depth > SCENARIO_DEPTH_LIMIT {
            return Err(self.error(format!("nodes are nested more than {SCENARIO_DEPTH_LIMIT} deep")));
        }
        Ok(())
    }

    pub fn here(&self) -> u32 {
        self.program.code.len() as u32
    }
}
