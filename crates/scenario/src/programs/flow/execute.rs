//! Carries out the instructions of a user until it has to wait.

use std::sync::Arc;

use leadline_wire::scenario::{ControlAction, FeederEnd, FeederOrder, NormalSign, ThroughputScope};

use super::records::{mark_failed, set_outcome};
use super::{context, Effect, Flows, Rendezvous, Step};
use crate::encoding::has_control;
use crate::evaluate::Context;
use crate::fault::{fault, Fault};
use crate::program::{Instruction, PassCounter, Program, Target, Template, Wait};
use crate::shared::{phase_number, Stop};
use crate::throughput::Throughput;
use crate::user::{Ending, Frame, Stage, User};
use crate::value::Value;

impl Flows {
    /// Ends the iteration of a user whose instruction cannot be executed.
    pub(super) fn on_fault(&mut self, user: &mut User, fault: Fault) -> Step {
        mark_failed(user);
        let detail = self.mask(user, fault.detail);
        self.figures.fault(fault.cause, detail);
        Step::Over { interrupted: false }
    }

    /// Carries out an instruction; returns why the user does not go on, if it does not.
    pub(super) fn step(
        &mut self,
        slot: u32,
        program: &Program,
        user: &mut User,
        now_ns: u64,
    ) -> Result<Option<Step>, Fault> {
        let instruction = &program.code[user.pc as usize];
        match instruction {
            Instruction::Request(_) | Instruction::Parallel(..) if self.must_end(user) => {
                return Ok(Some(Step::Over { interrupted: true }));
            }
            Instruction::Request(request) => {
                user.pc += 1;
                self.begin_request(slot, user, *request, now_ns);
                user.late_ns = 0;
                return Ok(self.after_requests(user));
            }
            Instruction::Parallel(_, _) => {
                user.parallel = Some((user.pc, 0));
                user.pc += 1;
                self.fill_lanes(slot, user, now_ns);
                user.late_ns = 0;
                return Ok(self.after_requests(user));
            }
            Instruction::Wait(wait) => {
                let waits = self.wait(user, wait, now_ns)?;
                user.pc += 1;
                return Ok(match waits {
                    Step::Wait(Some(_)) if self.must_end(user) => Some(Step::Over { interrupted: true }),
                    Step::Wait(Some(at_ns)) if at_ns <= now_ns => None,
                    waits => Some(waits),
                });
            }
            Instruction::LoopBegin(rule, _, _) => {
                self.begin_loop(user, rule, now_ns)?;
                return Ok(None);
            }
            Instruction::LoopNext => {
                self.end_pass(user, now_ns)?;
                return Ok(self.must_end(user).then_some(Step::Over { interrupted: true }));
            }
            Instruction::TransactionBegin(label, includes_waits, hides) => user.frames.push(Frame::Transaction {
                label: *label,
                begun_ns: now_ns.saturating_sub(user.late_ns),
                waited_ns: 0,
                includes_waits: *includes_waits,
                failed: false,
                outcome: None,
                hides: *hides,
                requests: (0, 0),
                bytes: (0, 0),
            }),
            Instruction::TransactionEnd => self.end_frame(user, now_ns),
            Instruction::Outcome(wanted, passed) => set_outcome(program, user, wanted.as_deref(), *passed),
            Instruction::ShuffleNext => {
                self.next_branch(user);
                return Ok(None);
            }
            Instruction::Shuffle(branches, end) => {
                user.frames.push(Frame::Shuffle { left: branches.to_vec(), end: *end });
                self.next_branch(user);
                return Ok(None);
            }
            Instruction::Feed(feeder) => {
                if !self.feed(user, *feeder) {
                    return Ok(Some(Step::Over { interrupted: true }));
                }
            }
            Instruction::Control(control) => return self.control(slot, user, *control, now_ns),
            Instruction::Script(script) => {
                let mut context = context(program, &self.shared, &mut self.tools, user, now_ns);
                self.scripts.run(&mut context, *script)?;
            }
            Instruction::End => return Ok(Some(Step::Over { interrupted: false })),
            simple => return self.simple(program, simple, user, now_ns),
        }
        user.pc += 1;
        Ok(None)
    }

    /// Executes an instruction that only computes.
    fn simple(
        &mut self,
        program: &Program,
        instruction: &Instruction,
        user: &mut User,
        now_ns: u64,
    ) -> Result<Option<Step>, Fault> {
        let next = user.pc + 1;
        let first_pass = is_first_pass(user);
        let mut context = context(program, &self.shared, &mut self.tools, user, now_ns);
        context.user.pc = match instruction {
            Instruction::Set(target, value) => {
                let value = context.value(value)?;
                match target {
                    Target::Own(slot) => context.user.registers[*slot as usize] = value,
                    Target::Shared(slot) => context.shared.set(*slot, value),
                }
                next
            }
            Instruction::SetCookie(parts) => {
                set_cookie(&mut context, parts)?;
                next
            }
            Instruction::Jump(target) => *target,
            Instruction::JumpUnless(condition, target) => {
                if context.is_true(condition)? {
                    next
                } else {
                    *target
                }
            }
            Instruction::Switch(value, cases, default) => {
                let value = context.text(value)?;
                cases.iter().find(|(case, _)| **case == *value).map_or(*default, |(_, target)| *target)
            }
            Instruction::Weighted(branches) => {
                let drawn = context.user.random.unit();
                let chosen = branches.iter().find(|(sum, _)| drawn < *sum).or(branches.last());
                chosen.map_or(next, |(_, target)| *target)
            }
            Instruction::Interleave(branches, counter) => {
                let mut chosen = 0;
                context.count_pass(*counter, |passes, _| {
                    chosen = passes as usize % branches.len();
                    true
                });
                branches[chosen]
            }
            Instruction::Percent(percent, counter, target) => {
                let percent = context.number(percent)?;
                let executes = context.count_pass(*counter, |passes, done| {
                    (100.0 * done as f64 + 50.0) / (passes as f64 + 1.0) < percent
                });
                if executes {
                    next
                } else {
                    *target
                }
            }
            Instruction::Times(times, counter, target) => {
                let times = context.number(times)?;
                if context.count_pass(*counter, |_, done| (done as f64) < times) {
                    next
                } else {
                    *target
                }
            }
            Instruction::Once(target) => {
                if first_pass {
                    next
                } else {
                    *target
                }
            }
            _ => next,
        };
        Ok(None)
    }

    /// Whether the user may not send another request or wait.
    pub fn must_end(&self, user: &User) -> bool {
        user.stage == Stage::Iteration
            && (user.ending == Ending::AfterRequest || self.stopped(user.population) == Stop::Now)
    }

    /// Returns how long the user waits: until an instant, or for others.
    fn wait(&mut self, user: &mut User, wait: &Wait, now_ns: u64) -> Result<Step, Fault> {
        let mut context = context(&self.program, &self.shared, &mut self.tools, user, now_ns);
        let ms = match wait {
            Wait::Constant(ms) => context.number(ms)?,
            Wait::Uniform(from, to) => {
                let (from, to) = (context.number(from)?, context.number(to)?);
                from + (to - from) * context.user.random.unit()
            }
            Wait::Normal(mean, deviation, negative) => {
                let drawn = context.number(mean)? + context.number(deviation)? * context.user.random.normal();
                if *negative == NormalSign::Absolute {
                    drawn.abs()
                } else {
                    drawn
                }
            }
            Wait::Poisson(offset, lambda) => {
                let lambda = context.number(lambda)?;
                context.number(offset)? + context.user.random.poisson(lambda)
            }
            Wait::Exponential(mean) => context.number(mean)? * context.user.random.exponential(),
            Wait::Pacing(ms, mark) => {
                let interval_ns = ms_to_ns(context.number(ms)?);
                let before_ns = user.marks[*mark as usize].unwrap_or(user.begun_ns);
                let at_ns = before_ns.saturating_add(interval_ns).max(now_ns);
                user.marks[*mark as usize] = Some(at_ns);
                return Ok(Step::Wait(Some(at_ns)));
            }
            Wait::Throughput { per_minute, stages, scope, is_random, mark, shared_mark } => {
                let per_minute = context.number(per_minute)?;
                if per_minute <= 0.0 && stages.is_empty() {
                    return Ok(Step::Wait(Some(now_ns)));
                }
                let passes = if *is_random { context.user.random.exponential() } else { 1.0 };
                let phase = self.program.populations[user.population as usize].phase;
                let start_ns = self.shared.phase_start_ns(phase_number(phase)).unwrap_or(now_ns);
                let rate = Throughput { start_ns, per_minute, stages };
                let at_ns = self.throughput(user, *scope, (rate, passes), (*mark, *shared_mark), now_ns);
                // Where the rate stays 0, the user waits for its end.
                return Ok(Step::Wait(at_ns.or(self.must_end(user).then_some(now_ns))));
            }
            Wait::Rendezvous(users, timeout, meeting) => {
                let (users, timeout_ms) = (context.number(users)?, context.number(timeout)?);
                return Ok(Step::Meet(Rendezvous { at: *meeting, users: users.max(0.0) as usize, timeout_ms }));
            }
        };
        Ok(Step::Wait(Some(now_ns.saturating_add(ms_to_ns(ms)))))
    }

    /// Returns when a user may pass a rate; `None` if never.
    fn throughput(
        &self,
        user: &mut User,
        scope: ThroughputScope,
        (rate, passes): (Throughput<'_>, f64),
        marks: (u32, u32),
        now_ns: u64,
    ) -> Option<u64> {
        use std::sync::atomic::Ordering::Relaxed;
        let active = |population: u32| u64::from(self.shared.population(population).active.load(Relaxed)).max(1);
        let users = match scope {
            ThroughputScope::Population | ThroughputScope::Test => {
                return self.shared.reserve(marks.1, now_ns, rate, passes);
            }
            ThroughputScope::User => 1,
            ThroughputScope::PopulationShare => active(user.population),
            ThroughputScope::TestShare => {
                self.shared.populations().iter().map(|one| u64::from(one.active.load(Relaxed))).sum::<u64>().max(1)
            }
        };
        let mark = &mut user.marks[marks.0 as usize];
        let earliest_ns = mark.map_or(now_ns, |last_ns| rate.next_ns(last_ns, passes * users as f64).max(now_ns));
        *mark = rate.first_ns(earliest_ns);
        *mark
    }

    /// Takes a row; returns whether the user goes on.
    fn feed(&mut self, user: &mut User, feeder: u32) -> bool {
        let program = Arc::clone(&self.program);
        let table = &program.feeders[feeder as usize];
        let row = if table.feeder.order == FeederOrder::Unique {
            let positions = &mut self.positions;
            let own = user.index.map(|index| (index, positions.entry((user.population, feeder, index)).or_default()));
            self.shared.unique_row(&program, feeder, user.population, own)
        } else {
            let own = &mut user.rows[feeder as usize];
            self.shared.row(&program, feeder, user.population, own, &mut user.random)
        };
        if let Some(row) = row {
            for (slot, value) in table.slots.iter().zip(&table.rows[row]) {
                user.registers[*slot as usize] = value.clone();
            }
            return true;
        }
        match &table.feeder.at_end {
            FeederEnd::Text { text } => {
                for slot in &table.slots {
                    user.registers[*slot as usize] = Value::from(text.as_str());
                }
                return true;
            }
            FeederEnd::StopTest {} => self.shared.stop(Stop::Soon),
            FeederEnd::StopUser {} | FeederEnd::Recycle {} => {}
        }
        user.ending = user.ending.max(Ending::AfterIteration);
        false
    }

    fn control(
        &mut self,
        slot: u32,
        user: &mut User,
        control: ControlAction,
        now_ns: u64,
    ) -> Result<Option<Step>, Fault> {
        match control {
            ControlAction::NextPass if self.unwind_to_loop(user, now_ns) => self.end_pass(user, now_ns)?,
            ControlAction::BreakLoop if self.unwind_to_loop(user, now_ns) => self.leave_loop(user),
            ControlAction::NextPass | ControlAction::BreakLoop | ControlAction::NextIteration => {
                return Ok(Some(Step::Over { interrupted: false }));
            }
            ControlAction::StopUser => {
                user.ending = user.ending.max(Ending::AfterIteration);
                return Ok(Some(Step::Over { interrupted: false }));
            }
            ControlAction::StopTest => {
                self.shared.stop(Stop::Soon);
                user.pc += 1;
            }
            ControlAction::StopTestNow => {
                self.shared.stop(Stop::Now);
                self.effects.push_back(Effect::CloseConnections { user: slot });
                return Ok(Some(Step::Over { interrupted: true }));
            }
        }
        Ok(None)
    }
}

fn set_cookie(context: &mut Context<'_>, parts: &[Template; 4]) -> Result<(), Fault> {
    let [name, value, domain, path] = parts;
    let (name, value) = (context.text(name)?, context.text(value)?);
    let (domain, path) = (context.text(domain)?, context.text(path)?);
    if has_control(&name) || has_control(&value) {
        return fault("bad_request", format!("cookie `{}` holds a control character", name.escape_debug()));
    }
    context.user.jar.set(&name, &value, &domain, &path);
    Ok(())
}

fn is_first_pass(user: &User) -> bool {
    let pass = user.frames.iter().rev().find_map(|frame| match frame {
        Frame::Loop { pass, .. } => Some(*pass),
        _ => None,
    });
    pass.unwrap_or(user.iteration) == 0
}

pub fn ms_to_ns(ms: f64) -> u64 {
    (ms.max(0.0) * 1e6) as u64
}

impl Context<'_> {
    /// Counts a pass; `decide` gets the passes and executions before, and says whether this one is executed.
    fn count_pass(&mut self, counter: PassCounter, decide: impl FnOnce(u64, u64) -> bool) -> bool {
        match counter {
            PassCounter::Shared(quota) => self.shared.quota(quota, decide),
            PassCounter::Own(counter) => {
                let counter = counter as usize;
                let executes = decide(self.user.counters[counter], self.user.counters[counter + 1]);
                self.user.counters[counter] += 1;
                self.user.counters[counter + 1] += u64::from(executes);
                executes
            }
        }
    }
}
