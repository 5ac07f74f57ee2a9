//! Loops and shuffles: the frames of a user. Owns how they go on, and how an iteration leaves them.

use super::{context, Flows};
use crate::fault::Fault;
use crate::figures::Age;
use crate::program::{Instruction, LoopRule};
use crate::user::{Frame, State, User};
use crate::value::Value;

impl Flows {
    /// Begins a loop: its first pass, or nothing of it.
    pub(super) fn begin_loop(&mut self, user: &mut User, rule: &LoopRule, now_ns: u64) -> Result<(), Fault> {
        let at = user.pc;
        let mut context = context(&self.program, &self.shared, &mut self.tools, user, now_ns);
        let (limit, last, prefix) = match rule {
            LoopRule::Count(times) => {
                let times = context.number(times)?;
                (if times < 0.0 { u64::MAX } else { times as u64 }, 0, None)
            }
            LoopRule::Time(ms) => (now_ns.saturating_add((context.number(ms)?.max(0.0) * 1e6) as u64), 0, None),
            LoopRule::Each(_, values) => (values.len() as u64, 0, None),
            LoopRule::EachVariable(_, prefix, from, to) => {
                let mut bound = |bound: &Option<_>, default| match bound {
                    Some(bound) => context.number(bound).map(|number| number.max(0.0) as u64),
                    None => Ok(default),
                };
                let (from, to) = (bound(from, 1)?, bound(to, u64::MAX)?);
                (from, to, Some(context.text(prefix)?.into()))
            }
            LoopRule::Forever | LoopRule::While(..) => (u64::MAX, 0, None),
        };
        user.frames.push(Frame::Loop { at, pass: 0, limit, last, prefix });
        self.next_pass(user, now_ns)
    }

    /// Begins the pass of the innermost loop that its frame says, or ends the loop.
    pub(super) fn next_pass(&mut self, user: &mut User, now_ns: u64) -> Result<(), Fault> {
        let Some(Frame::Loop { at, pass, limit, last, prefix }) = user.frames.last() else { return Ok(()) };
        let (at, pass, limit, last, prefix) = (*at, *pass, *limit, *last, prefix.clone());
        let program = std::sync::Arc::clone(&self.program);
        let Instruction::LoopBegin(rule, counter, end) = &program.code[at as usize] else { return Ok(()) };
        let mut context = context(&program, &self.shared, &mut self.tools, user, now_ns);
        let goes_on = match &**rule {
            LoopRule::Count(_) => pass < limit,
            LoopRule::Forever => true,
            LoopRule::Time(_) => now_ns < limit,
            LoopRule::While(condition, checks_after) => (pass == 0 && *checks_after) || context.is_true(condition)?,
            LoopRule::Each(slot, values) => match values.get(pass as usize) {
                Some(value) => {
                    let text = context.text(value)?;
                    user.registers[*slot as usize] = text.into();
                    true
                }
                None => false,
            },
            LoopRule::EachVariable(slot, ..) => {
                let number = limit.saturating_add(pass);
                let name = format!("{}{number}", prefix.as_deref().unwrap_or_default());
                let value = user.named(&program, &name).clone();
                let is_set = value.is_set() && number <= last;
                if is_set {
                    user.registers[*slot as usize] = value;
                }
                is_set
            }
        };
        if goes_on {
            if let Some(counter) = counter {
                user.registers[*counter as usize] = Value::Integer(pass as i64);
            }
            user.pc = at + 1;
        } else {
            user.frames.pop();
            user.pc = *end;
        }
        Ok(())
    }

    /// Ends a pass of the innermost loop.
    pub(super) fn end_pass(&mut self, user: &mut User, now_ns: u64) -> Result<(), Fault> {
        if let Some(Frame::Loop { pass, .. }) = user.frames.last_mut() {
            *pass += 1;
        }
        self.next_pass(user, now_ns)
    }

    /// Leaves everything up to the innermost loop; returns whether there is one.
    pub(super) fn unwind_to_loop(&mut self, user: &mut User, now_ns: u64) -> bool {
        while let Some(frame) = user.frames.last() {
            if matches!(frame, Frame::Loop { .. }) {
                return true;
            }
            self.end_frame(user, now_ns);
        }
        false
    }

    /// Leaves the innermost loop.
    pub(super) fn leave_loop(&mut self, user: &mut User) {
        if let Some(Frame::Loop { at, .. }) = user.frames.pop() {
            if let Instruction::LoopBegin(_, _, end) = &self.program.code[at as usize] {
                user.pc = *end;
            }
        }
    }

    /// Drops all frames of an iteration that is interrupted. Of its transactions only the age is known.
    pub(super) fn drop_frames(&mut self, user: &mut User, now_ns: u64) {
        let waiting_ns = match user.state {
            State::Waiting { since_ns } | State::Meeting { since_ns, .. } => now_ns.saturating_sub(since_ns),
            _ => 0,
        };
        for frame in user.frames.drain(..) {
            if let Frame::Transaction { label, begun_ns, waited_ns, includes_waits, .. } = frame {
                let waits_ns = if includes_waits { 0 } else { waited_ns + waiting_ns };
                let age_ns = now_ns.saturating_sub(begun_ns).saturating_sub(waits_ns);
                self.figures.labels[label as usize].interrupted += 1;
                self.figures.outstanding(label, begun_ns, Age { latency_ns: Some(age_ns), service_ns: None });
            }
        }
    }

    /// Goes to the next branch of the innermost shuffle, or behind it.
    pub(super) fn next_branch(&mut self, user: &mut User) {
        if let Some(Frame::Shuffle { left, end }) = user.frames.last_mut() {
            match left.len() {
                0 => {
                    user.pc = *end;
                    user.frames.pop();
                }
                count => {
                    let chosen = user.random.below(count as u64) as usize;
                    user.pc = left.swap_remove(chosen);
                }
            }
        }
    }
}
