//! Compiles the nodes of a flow into instructions.

use leadline_wire::scenario::{
    Branch, Case, Expression, LabelKind, LoopRule as Rule, Node, NodeAction, Template, WaitRule,
};

use super::state::{CompileError, Compiler};
use crate::program::{Instruction, Label, LoopRule, PassCounter, Target, Wait};
use crate::scripts::syntax_error;

/// Returns the lists of nodes in a node.
pub fn inner_nodes(action: &NodeAction) -> Vec<&[Node]> {
    match action {
        NodeAction::Sequence { nodes }
        | NodeAction::Parallel { nodes, .. }
        | NodeAction::Loop { nodes, .. }
        | NodeAction::Percent { nodes, .. }
        | NodeAction::Times { nodes, .. }
        | NodeAction::Once { nodes }
        | NodeAction::Transaction { nodes, .. } => vec![nodes],
        NodeAction::If { nodes, otherwise, .. } => vec![nodes, otherwise],
        NodeAction::Switch { cases, otherwise, .. } => {
            cases.iter().map(|case| &case.nodes[..]).chain([&otherwise[..]]).collect()
        }
        NodeAction::Weighted { branches }
        | NodeAction::Interleave { branches, .. }
        | NodeAction::Shuffle { branches } => branches.iter().map(|branch| &branch.nodes[..]).collect(),
        _ => Vec::new(),
    }
}

impl Compiler {
    pub fn nodes(&mut self, nodes: &[Node], depth: usize) -> Result<(), CompileError> {
        nodes.iter().try_for_each(|node| self.node(node, depth))
    }

    fn node(&mut self, node: &Node, depth: usize) -> Result<(), CompileError> {
        self.count_node(depth)?;
        let compiled = self.at(node, |compiler| compiler.action(node, depth + 1));
        self.kept(compiled).map(drop)
    }

    /// Compiles something with the place and the tags of a node.
    fn at<T>(
        &mut self,
        node: &Node,
        compile: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        let outer = node.source.is_some().then(|| std::mem::replace(&mut self.place, node.source.clone()));
        let outer_tags = (!node.tags.is_empty()).then(|| self.tags.clone());
        self.tags.extend(node.tags.iter().map(|(name, value)| (name.clone(), value.clone())));
        let compiled = compile(self);
        outer.into_iter().for_each(|place| self.place = place);
        outer_tags.into_iter().for_each(|tags| self.tags = tags);
        compiled
    }

    fn action(&mut self, node: &Node, depth: usize) -> Result<(), CompileError> {
        match &node.action {
            NodeAction::Sequence { nodes } => self.nodes(nodes, depth)?,
            NodeAction::Request(request) => {
                let index = self.request(node.label.as_deref(), request)?;
                self.emit(Instruction::Request(index));
            }
            NodeAction::Parallel { nodes, at_once } => self.parallel(nodes, *at_once, depth)?,
            NodeAction::Loop { rule, counter, nodes } => self.looped(rule, counter.as_deref(), nodes, depth)?,
            NodeAction::If { condition, nodes, otherwise } => self.conditional(condition, nodes, otherwise, depth)?,
            NodeAction::Switch { value, cases, otherwise } => self.switch(value, cases, otherwise, depth)?,
            NodeAction::Weighted { branches } => self.weighted(branches, depth)?,
            NodeAction::Interleave { branches, is_shared } => self.interleaved(branches, *is_shared, depth)?,
            NodeAction::Shuffle { branches } => {
                let start = self.emit(Instruction::Shuffle(Box::default(), 0));
                let targets = self.branches(branches.iter().map(|branch| &branch.nodes[..]), depth, true)?;
                self.program.code[start] = Instruction::Shuffle(targets.into(), self.here());
            }
            NodeAction::Percent { percent, is_per_user, nodes } => {
                let (percent, counter) = (self.expression(percent)?, self.pass_counter(*is_per_user));
                self.skippable(Instruction::Percent(percent, counter, 0), nodes, depth)?;
            }
            NodeAction::Times { times, is_per_user, nodes } => {
                let (times, counter) = (self.expression(times)?, self.pass_counter(*is_per_user));
                self.skippable(Instruction::Times(times, counter, 0), nodes, depth)?;
            }
            NodeAction::Once { nodes } => self.skippable(Instruction::Once(0), nodes, depth)?,
            NodeAction::Transaction { includes_waits, hides_requests, nodes } => {
                let name = node.label.as_deref().ok_or_else(|| self.error("a transaction needs a label"))?;
                self.transaction(name, (*includes_waits, *hides_requests), nodes, depth)?;
            }
            NodeAction::Outcome { passed, transaction } => {
                self.emit(Instruction::Outcome(transaction.as_deref().map(Box::from), *passed));
            }
            NodeAction::Wait { wait } => {
                let wait = self.wait(wait)?;
                self.emit(Instruction::Wait(wait));
            }
            NodeAction::Set { variable, value, is_shared } => {
                let target = if *is_shared {
                    Target::Shared(self.shared_slot(variable))
                } else {
                    Target::Own(self.slot(variable))
                };
                let value = self.expression(value)?;
                self.emit(Instruction::Set(target, value));
            }
            NodeAction::Feed { feeder } => self.feed(feeder)?,
            NodeAction::SetCookie { name, value, domain, path } => {
                let parts = [self.template(name)?, self.template(value)?, self.template(domain)?, self.template(path)?];
                self.emit(Instruction::SetCookie(Box::new(parts)));
            }
            NodeAction::Control { control } => {
                self.emit(Instruction::Control(*control));
            }
            NodeAction::Script { lua } => self.script(lua)?,
            NodeAction::Opaque { what, .. } => return Err(self.error(format!("{what} cannot be executed"))),
        }
        Ok(())
    }

    fn conditional(
        &mut self,
        condition: &Expression,
        nodes: &[Node],
        otherwise: &[Node],
        depth: usize,
    ) -> Result<(), CompileError> {
        let condition = self.expression(condition)?;
        let skip = self.emit(Instruction::JumpUnless(condition, 0));
        self.nodes(nodes, depth)?;
        let end = (!otherwise.is_empty()).then(|| self.emit(Instruction::Jump(0)));
        self.aim(skip);
        self.nodes(otherwise, depth)?;
        end.into_iter().for_each(|end| self.aim(end));
        Ok(())
    }

    fn switch(
        &mut self,
        value: &Template,
        cases: &[Case],
        otherwise: &[Node],
        depth: usize,
    ) -> Result<(), CompileError> {
        let value = self.template(value)?;
        let switch = self.emit(Instruction::Switch(value, Box::default(), 0));
        let mut targets = Vec::new();
        let mut ends = Vec::new();
        for case in cases {
            targets.push((case.value.as_str().into(), self.here()));
            self.nodes(&case.nodes, depth)?;
            ends.push(self.emit(Instruction::Jump(0)));
        }
        let last = self.here();
        self.nodes(otherwise, depth)?;
        if let Instruction::Switch(_, cases, default) = &mut self.program.code[switch] {
            (*cases, *default) = (targets.into(), last);
        }
        ends.into_iter().for_each(|end| self.aim(end));
        Ok(())
    }

    fn weighted(&mut self, branches: &[Branch], depth: usize) -> Result<(), CompileError> {
        let total: f64 = branches.iter().map(|branch| branch.weight).sum();
        if branches.is_empty()
            || !total.is_finite()
            || branches.iter().any(|branch| branch.weight < 0.0)
            || total <= 0.0
        {
            return Err(self.error("a weighted choice needs branches with weights above 0"));
        }
        let weights: Vec<f64> = branches.iter().map(|branch| branch.weight / total).collect();
        let start = self.emit(Instruction::Weighted(Box::default()));
        let targets = self.branches(branches.iter().map(|branch| &branch.nodes[..]), depth, false)?;
        let mut sum = 0.0;
        let cumulated = weights.into_iter().zip(targets).map(|(weight, target)| {
            sum += weight;
            (sum, target)
        });
        self.program.code[start] = Instruction::Weighted(cumulated.collect());
        Ok(())
    }

    fn interleaved(&mut self, branches: &[Branch], is_shared: bool, depth: usize) -> Result<(), CompileError> {
        if branches.is_empty() {
            return Ok(());
        }
        let counter = self.pass_counter(!is_shared);
        let start = self.emit(Instruction::Interleave(Box::default(), counter));
        let targets = self.branches(branches.iter().map(|branch| &branch.nodes[..]), depth, false)?;
        self.program.code[start] = Instruction::Interleave(targets.into(), counter);
        Ok(())
    }

    fn transaction(
        &mut self,
        name: &str,
        (includes_waits, hides_requests): (bool, bool),
        nodes: &[Node],
        depth: usize,
    ) -> Result<(), CompileError> {
        let label = self.label(name, LabelKind::Transaction);
        self.emit(Instruction::TransactionBegin(label, includes_waits, hides_requests));
        let outer = self.is_hidden;
        self.is_hidden |= hides_requests;
        self.nodes(nodes, depth)?;
        self.is_hidden = outer;
        self.emit(Instruction::TransactionEnd);
        Ok(())
    }

    fn feed(&mut self, feeder: &str) -> Result<(), CompileError> {
        let place = self.program.feeders.iter().position(|table| table.feeder.name == feeder);
        let place = place.ok_or_else(|| self.error(format!("no feeder is named `{feeder}`")))?;
        self.program.feeders[place].populations.insert(self.population);
        self.emit(Instruction::Feed(place as u32));
        Ok(())
    }

    fn script(&mut self, lua: &str) -> Result<(), CompileError> {
        if let Some(why) = syntax_error(lua) {
            return Err(self.error(format!("this is not Lua: {why}")));
        }
        self.program.scripts.push(lua.into());
        self.emit(Instruction::Script(self.program.scripts.len() as u32 - 1));
        Ok(())
    }

    fn emit(&mut self, instruction: Instruction) -> usize {
        self.program.code.push(instruction);
        self.program.code.len() - 1
    }

    /// Lets the jump of an instruction lead here.
    fn aim(&mut self, at: usize) {
        let here = self.here();
        match &mut self.program.code[at] {
            Instruction::Jump(target)
            | Instruction::JumpUnless(_, target)
            | Instruction::Percent(_, _, target)
            | Instruction::Times(_, _, target)
            | Instruction::Once(target)
            | Instruction::LoopBegin(_, _, target) => *target = here,
            _ => {}
        }
    }

    fn skippable(&mut self, instruction: Instruction, nodes: &[Node], depth: usize) -> Result<(), CompileError> {
        let skip = self.emit(instruction);
        self.nodes(nodes, depth)?;
        self.aim(skip);
        Ok(())
    }

    /// Compiles branches; each ends with a jump behind the last one, or with the next branch of a shuffle.
    fn branches<'n>(
        &mut self,
        branches: impl Iterator<Item = &'n [Node]>,
        depth: usize,
        is_shuffled: bool,
    ) -> Result<Vec<u32>, CompileError> {
        let (mut targets, mut ends) = (Vec::new(), Vec::new());
        for nodes in branches {
            targets.push(self.here());
            self.nodes(nodes, depth)?;
            ends.push(self.emit(if is_shuffled { Instruction::ShuffleNext } else { Instruction::Jump(0) }));
        }
        ends.into_iter().for_each(|end| self.aim(end));
        Ok(targets)
    }

    fn pass_counter(&mut self, is_per_user: bool) -> PassCounter {
        if is_per_user {
            // Two counters: passes and executions.
            self.program.user_counters += 2;
            PassCounter::Own(self.program.user_counters as u32 - 2)
        } else {
            self.program.quotas += 1;
            PassCounter::Shared(self.program.quotas as u32 - 1)
        }
    }

    fn parallel(&mut self, nodes: &[Node], at_once: Option<u32>, depth: usize) -> Result<(), CompileError> {
        let mut requests = Vec::new();
        for node in nodes {
            self.count_node(depth)?;
            let NodeAction::Request(request) = &node.action else {
                return Err(self.error("the nodes of a parallel node have to be requests"));
            };
            let compiled = self.at(node, |compiler| compiler.request(node.label.as_deref(), request));
            requests.extend(self.kept(compiled)?);
        }
        let at_once = at_once.unwrap_or(u32::MAX).max(1);
        self.emit(Instruction::Parallel(requests.into(), at_once));
        Ok(())
    }

    fn looped(&mut self, rule: &Rule, counter: Option<&str>, nodes: &[Node], depth: usize) -> Result<(), CompileError> {
        let rule = match rule {
            Rule::Count { times } => LoopRule::Count(self.expression(times)?),
            Rule::Forever {} => LoopRule::Forever,
            Rule::While { condition, checks_after } => LoopRule::While(self.expression(condition)?, *checks_after),
            Rule::Each { variable, values } => {
                let values = values.iter().map(|value| self.template(value)).collect::<Result<_, _>>()?;
                LoopRule::Each(self.slot(variable), values)
            }
            Rule::EachVariable { variable, prefix, from, to } => {
                let bound = |compiler: &mut Self, bound: &Option<_>| {
                    bound.as_ref().map(|one| compiler.expression(one)).transpose()
                };
                let (from, to) = (bound(self, from)?, bound(self, to)?);
                LoopRule::EachVariable(self.slot(variable), self.template(prefix)?, from, to)
            }
            Rule::Time { duration_ms } => LoopRule::Time(self.expression(duration_ms)?),
        };
        let counter = counter.map(|name| self.slot(name));
        let begin = self.emit(Instruction::LoopBegin(Box::new(rule), counter, 0));
        self.nodes(nodes, depth)?;
        self.emit(Instruction::LoopNext);
        self.aim(begin);
        Ok(())
    }

    fn wait(&mut self, wait: &WaitRule) -> Result<Wait, CompileError> {
        Ok(match wait {
            WaitRule::Constant { ms } => Wait::Constant(self.expression(ms)?),
            WaitRule::Uniform { from_ms, to_ms } => Wait::Uniform(self.expression(from_ms)?, self.expression(to_ms)?),
            WaitRule::Normal { mean_ms, deviation_ms, negative } => {
                Wait::Normal(self.expression(mean_ms)?, self.expression(deviation_ms)?, *negative)
            }
            WaitRule::Poisson { offset_ms, lambda_ms } => {
                Wait::Poisson(self.expression(offset_ms)?, self.expression(lambda_ms)?)
            }
            WaitRule::Exponential { mean_ms } => Wait::Exponential(self.expression(mean_ms)?),
            WaitRule::Pacing { ms } => Wait::Pacing(self.expression(ms)?, self.mark()),
            WaitRule::Throughput { name, per_minute, stages, scope, is_random } => {
                if stages.iter().any(|stage| !(0.0..=1e9).contains(&stage.per_minute)) {
                    return Err(self.error("a throughput has to be from 0 to 10^9 per minute"));
                }
                let shared_mark = self.numbered(name.as_deref(), "shared_mark");
                let mark = self.numbered(name.as_deref(), "mark");
                let per_minute = self.expression(per_minute)?;
                let (stages, scope, is_random) = (stages.as_slice().into(), *scope, *is_random);
                Wait::Throughput { per_minute, stages, scope, is_random, mark, shared_mark }
            }
            WaitRule::Rendezvous { name, users, timeout_ms } => {
                let number = self.numbered(name.as_deref(), "rendezvous");
                Wait::Rendezvous(self.expression(users)?, self.expression(timeout_ms)?, number)
            }
        })
    }

    /// Returns the number of a mark or rendezvous; nodes of one name share it.
    fn numbered(&mut self, name: Option<&str>, kind: &'static str) -> u32 {
        let key = name.map(|name| (name.to_owned(), kind));
        if let Some(number) = key.as_ref().and_then(|key| self.numbers.get(key)) {
            return *number;
        }
        let count = match kind {
            "mark" => &mut self.program.marks,
            "shared_mark" => &mut self.program.shared_marks,
            _ => &mut self.program.rendezvous,
        };
        *count += 1;
        let number = *count as u32 - 1;
        if let Some(key) = key {
            self.numbers.insert(key, number);
        }
        number
    }

    fn mark(&mut self) -> u32 {
        self.program.marks += 1;
        self.program.marks as u32 - 1
    }

    /// Returns the label of a name; requests of one name and the same tags share it.
    pub fn label(&mut self, name: &str, kind: LabelKind) -> u32 {
        let (population, tags, is_hidden) = (self.population, self.tags.clone(), self.is_hidden);
        let key = (name.to_owned(), kind == LabelKind::Transaction, tags.clone());
        if let Some(label) = self.labels.get(&key) {
            self.program.labels[*label as usize].is_hidden &= is_hidden;
            return *label;
        }
        let label = self.program.labels.len() as u32;
        let name = name.to_owned();
        self.program.labels.push(Label { name: name.into(), kind, population, checks: Vec::new(), tags, is_hidden });
        self.labels.insert(key, label);
        label
    }
}
