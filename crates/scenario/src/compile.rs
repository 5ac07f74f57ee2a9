//! Compiles a plan into a program. Owns every check of a plan: what cannot be executed is refused here, by name and
//! place, so that users cannot fail later because of a bad plan.

mod expressions;
mod flow;
mod requests;
mod state;

pub use self::state::CompileError;
use self::state::Compiler;
use super::evaluate::{Context, Tools};
use super::program::{FeederTable, Instruction, Population as Compiled, Program, Template};
use super::shared::Shared;
use super::user::User;
use super::value::Value;
use std::collections::BTreeSet;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use leadline_wire::scenario::{Arrivals, Feeder, Node, Population, ScenarioPlan, Variable};

/// Compiles a plan.
///
/// # Errors
/// The parts that cannot be executed, up to a hundred.
pub fn compile(plan: &ScenarioPlan, seed: u64, now_ms: i64) -> Result<Program, CompileError> {
    let mut compiler = Compiler::default();
    let compiled = compiler.plan(plan, seed, now_ms);
    let mut refused = std::mem::take(&mut compiler.refused).into_iter().chain(compiled.err());
    match refused.next() {
        None => Ok(compiler.program),
        Some(first) => Err(CompileError { others: refused.collect(), ..first }),
    }
}

impl Compiler {
    fn plan(&mut self, plan: &ScenarioPlan, seed: u64, now_ms: i64) -> Result<(), CompileError> {
        self.program.name.clone_from(&plan.name);
        self.program.seed = seed;
        self.program.targets = plan.targets.iter().map(|target| target.to_ascii_lowercase()).collect();
        self.program.masked = plan.masked.iter().map(|name| name.as_str().into()).collect();
        if plan.populations.is_empty() {
            return Err(self.error("the plan has no population"));
        }
        for file in &plan.files {
            let content = BASE64_STANDARD.decode(&file.content_base64);
            let content = content.map_err(|error| self.error(format!("file {}: {error}", file.name)))?;
            self.files.insert(file.name.clone(), content.into());
        }
        plan.variables.iter().filter(|variable| variable.is_shared).for_each(|variable| {
            self.shared_slot(&variable.name);
        });
        plan.populations.iter().for_each(|population| self.find_shared(&population.flow));
        plan.feeders.iter().for_each(|feeder| self.feeder(feeder));
        for (index, population) in plan.populations.iter().enumerate() {
            let compiled = self.population(plan, index, population);
            self.kept(compiled)?;
        }
        if self.refused.is_empty() {
            self.initial(&plan.variables, now_ms)
        } else {
            Ok(())
        }
    }

    /// Registers the shared variables that nodes set, before any expression reads them.
    fn find_shared(&mut self, nodes: &[Node]) {
        for node in nodes {
            if let leadline_wire::scenario::NodeAction::Set { variable, is_shared: true, .. } = &node.action {
                self.shared_slot(variable);
            }
            for inner in flow::inner_nodes(&node.action) {
                self.find_shared(inner);
            }
        }
    }

    fn feeder(&mut self, feeder: &Feeder) {
        let slots = feeder.columns.iter().map(|column| self.slot(column)).collect();
        let text = |row: &Vec<String>, column: usize| {
            row.get(column).map_or_else(|| Value::from(""), |text| Value::from(text.as_str()))
        };
        let rows = feeder.rows.iter().map(|row| (0..feeder.columns.len()).map(|column| text(row, column)).collect());
        let table = FeederTable {
            rows: rows.collect(),
            slots,
            populations: BTreeSet::new(),
            feeder: Feeder { rows: Vec::new(), ..feeder.clone() },
        };
        self.program.feeders.push(table);
    }

    fn population(&mut self, plan: &ScenarioPlan, index: usize, population: &Population) -> Result<(), CompileError> {
        self.population = index as u32;
        self.labels.clear();
        self.place.clone_from(&population.source);
        self.tags.clone_from(&population.tags);
        if plan.populations[..index].iter().any(|other| other.name == population.name) {
            return Err(self.error(format!("two populations are named `{}`", population.name)));
        }
        let mut after = Vec::new();
        for name in &population.after {
            let place = plan.populations[..index].iter().position(|other| other.name == *name);
            let place = place.ok_or_else(|| self.error(format!("`after`: no earlier population is named `{name}`")))?;
            after.push(place as u32);
        }
        self.check_arrivals(&population.arrivals)?;
        let mut variables = Vec::new();
        for variable in &population.variables {
            let slot = self.slot(&variable.name);
            variables.push((slot, self.template(&variable.value)?));
        }
        let before = self.routine(&population.before)?;
        let flow = self.routine(&population.flow)?;
        let afterwards = self.routine(&population.afterwards)?;
        self.program.populations.push(Compiled {
            name: population.name.clone(),
            phase: population.phase,
            after,
            delay_ns: population.start_delay_ms.saturating_mul(1_000_000),
            arrivals: population.arrivals.clone(),
            end: population.end,
            on_error: population.on_error,
            new_user: population.new_user_each_iteration,
            clears_cookies: population.clear_cookies_each_iteration,
            clears_cache: population.clear_cache_each_iteration,
            closes_connections: population.close_connections_each_iteration,
            variables,
            before,
            flow,
            afterwards,
        });
        Ok(())
    }

    fn check_arrivals(&self, arrivals: &Arrivals) -> Result<(), CompileError> {
        const MOST_USERS: u64 = 1_000_000;
        let most = match arrivals {
            Arrivals::Users { initial, stages, .. } => {
                u64::from(stages.iter().map(|stage| stage.users).fold(*initial, u32::max))
            }
            Arrivals::SharedIterations { users, iterations, .. } => {
                if *users == 0 || *iterations == 0 {
                    return Err(self.error("shared iterations need at least one user and one iteration"));
                }
                u64::from(*users)
            }
            Arrivals::Open { stages, users_at_start, users_most, .. } => {
                let is_rate = |per_s: f64| per_s.is_finite() && (0.0..=1e9).contains(&per_s);
                if stages.iter().any(|stage| !is_rate(stage.from_per_s) || !is_rate(stage.to_per_s)) {
                    return Err(self.error("a rate of iterations has to be from 0 to 10^9 per second"));
                }
                u64::from(users_most.unwrap_or(*users_at_start))
            }
            Arrivals::Schedule { due_us, users_at_start, users_most } => {
                if !due_us.is_sorted() {
                    return Err(self.error("the times of a schedule have to be in ascending order"));
                }
                u64::from(users_most.unwrap_or(*users_at_start))
            }
        };
        if most > MOST_USERS {
            return Err(self.error(format!("{most} users; at most {MOST_USERS} are possible")));
        }
        Ok(())
    }

    /// Compiles nodes that end a flow; returns the first instruction.
    fn routine(&mut self, nodes: &[Node]) -> Result<u32, CompileError> {
        let start = self.here();
        self.nodes(nodes, 0)?;
        self.program.code.push(Instruction::End);
        Ok(start)
    }

    /// Computes the variables of the whole test, in order.
    fn initial(&mut self, variables: &[Variable], now_ms: i64) -> Result<(), CompileError> {
        self.place = None;
        let mut values: Vec<(u32, bool, Template, &str)> = Vec::new();
        for variable in variables {
            let slot = if variable.is_shared { self.shared_slot(&variable.name) } else { self.slot(&variable.name) };
            values.push((slot, variable.is_shared, self.template(&variable.value)?, &variable.name));
        }
        self.program.initial = vec![Value::Nothing; self.program.slots.len()];
        self.program.shared_initial = vec![Value::Nothing; self.program.shared_slots.len()];
        let shared = Shared::new(&self.program, 1);
        let mut user = User::new(&self.program, 0, 0);
        let mut tools = Tools::new(now_ms.saturating_mul(1_000_000));
        for (slot, is_shared, template, name) in values {
            let mut context =
                Context { program: &self.program, shared: &shared, user: &mut user, tools: &mut tools, now_ns: 0 };
            let text = context.text(&template);
            let value = Value::from(
                text.map_err(|fault| CompileError::new(None, format!("variable `{name}`: {}", fault.detail)))?,
            );
            if is_shared {
                shared.set(slot, value.clone());
                self.program.shared_initial[slot as usize] = value;
            } else {
                user.registers[slot as usize] = value.clone();
                self.program.initial[slot as usize] = value;
            }
        }
        Ok(())
    }
}
