//! The state of a compilation: tables of variables, labels and counters, and the limits of a plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use leadline_wire::scenario::{SourcePlace, SCENARIO_DEPTH_LIMIT, SCENARIO_NODE_LIMIT};
use thiserror::Error;

use crate::scenario::program::Program;

/// Why a plan cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", .place.as_ref().map_or(String::new(), |place| format!("{}:{}: ", place.file, place.line)))]
pub struct CompileError {
    /// Where the part is defined.
    pub place: Option<SourcePlace>,
    /// What it is, and why it cannot be executed.
    pub message: String,
}

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
}

impl Compiler {
    pub fn error(&self, message: impl Into<String>) -> CompileError {
        CompileError { place: self.place.clone(), message: message.into() }
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
