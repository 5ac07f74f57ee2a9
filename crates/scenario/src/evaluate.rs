//! Evaluates templates and expressions for a user.

mod texts;

use std::sync::atomic::Ordering::Relaxed;

use leadline_wire::scenario::Op;

use super::calendar;
use super::fault::{check_length, fault, Fault};
use super::numbers::{arithmetic, as_integer, as_number, whole};
use super::program::{Expr, OpName, Part, Pattern, Program, Template};
use super::search::Searches;
use super::shared::Shared;
use super::user::User;
use super::value::Value;

/// What a thread needs to evaluate, besides the user.
#[derive(Debug)]
pub struct Tools {
    /// Compiled patterns.
    pub searches: Searches,
    /// The difference from the machine's clock to the time since 1970, ns.
    pub epoch_offset_ns: i64,
}

impl Tools {
    /// Returns the tools of a thread.
    #[must_use]
    pub fn new(epoch_offset_ns: i64) -> Self {
        Self { searches: Searches::default(), epoch_offset_ns }
    }

    /// Returns the time since 1970, ms.
    #[must_use]
    pub fn epoch_ms(&self, now_ns: u64) -> i64 {
        (now_ns as i64).wrapping_add(self.epoch_offset_ns) / 1_000_000
    }
}

/// What an evaluation can read and change.
pub struct Context<'c> {
    /// The program.
    pub program: &'c Program,
    /// What all users share.
    pub shared: &'c Shared,
    /// The user.
    pub user: &'c mut User,
    /// The thread's tools.
    pub tools: &'c mut Tools,
    /// The time, ns.
    pub now_ns: u64,
}

impl Context<'_> {
    /// Appends a template's text.
    pub fn append(&mut self, template: &Template, out: &mut String) -> Result<(), Fault> {
        match template {
            Template::Fixed(text) => out.push_str(text),
            Template::Parts(parts) => {
                for part in &**parts {
                    match part {
                        Part::Text(text) => out.push_str(text),
                        Part::Value(Expr::Variable(slot, None, name, fallback)) => {
                            let own = &self.user.registers[*slot as usize];
                            match if own.is_set() { own } else { fallback } {
                                Value::Nothing => return undefined(name),
                                value => value.append_to(out),
                            }
                        }
                        Part::Value(Expr::Variable(slot, shared, name, fallback)) => {
                            match self.variable(*slot, *shared, fallback) {
                                Value::Nothing => return undefined(name),
                                value => value.append_to(out),
                            }
                        }
                        Part::Value(expression) => self.value(expression)?.append_to(out),
                    }
                    check_length(out)?;
                }
            }
        }
        check_length(out)
    }

    /// Returns a template's text.
    pub fn text(&mut self, template: &Template) -> Result<String, Fault> {
        let mut out = String::new();
        self.append(template, &mut out)?;
        Ok(out)
    }

    /// Whether an expression is true.
    pub fn is_true(&mut self, expression: &Expr) -> Result<bool, Fault> {
        Ok(self.value(expression)?.is_true())
    }

    /// Returns an expression's number.
    pub fn number(&mut self, expression: &Expr) -> Result<f64, Fault> {
        let value = self.value(expression)?;
        as_number(&value)
    }

    fn variable(&self, slot: u32, shared: Option<u32>, fallback: &Value) -> Value {
        let own = &self.user.registers[slot as usize];
        if own.is_set() {
            return own.clone();
        }
        let shared = shared.map(|shared| self.shared.get(shared)).filter(Value::is_set);
        shared.unwrap_or_else(|| fallback.clone())
    }

    /// Returns an expression's value.
    pub fn value(&mut self, expression: &Expr) -> Result<Value, Fault> {
        match expression {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Variable(slot, shared, _, fallback) => Ok(self.variable(*slot, *shared, fallback)),
            Expr::Operation(op, extra, arguments) => self.operation(*op, extra, arguments),
        }
    }

    fn operation(&mut self, op: Op, extra: &OpName, arguments: &[Expr]) -> Result<Value, Fault> {
        use std::cmp::Ordering::{Greater, Less};
        match op {
            Op::IsSet => Ok(self.value(&arguments[0])?.is_set().into()),
            Op::VariableNamed => {
                let name = self.value(&arguments[0])?;
                let value = self.user.named(self.program, &name.text()).clone();
                match arguments.get(1) {
                    Some(fallback) if !value.is_set() => self.value(fallback),
                    _ => Ok(value),
                }
            }
            Op::Join => {
                let mut out = String::new();
                for argument in arguments {
                    self.value(argument)?.append_to(&mut out);
                    check_length(&out)?;
                }
                Ok(out.into())
            }
            Op::FirstOf => {
                for argument in arguments {
                    let value = self.value(argument)?;
                    if value.is_set() && !value.text().is_empty() {
                        return Ok(value);
                    }
                }
                Ok(Value::Nothing)
            }
            Op::Not => Ok((!self.is_true(&arguments[0])?).into()),
            Op::And | Op::Or => {
                for argument in arguments {
                    if self.is_true(argument)? == (op == Op::Or) {
                        return Ok((op == Op::Or).into());
                    }
                }
                Ok((op == Op::And).into())
            }
            Op::If => {
                let chosen = if self.is_true(&arguments[0])? { 1 } else { 2 };
                self.value(&arguments[chosen])
            }
            Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual | Op::SameText => {
                let (one, other) = (self.value(&arguments[0])?, self.value(&arguments[1])?);
                let order = one.compare(&other);
                Ok(Value::Boolean(match op {
                    Op::SameText => one.text() == other.text(),
                    Op::Equal => order.is_eq(),
                    Op::NotEqual => !order.is_eq(),
                    Op::Less => order == Less,
                    Op::LessEqual => order != Greater,
                    Op::Greater => order == Greater,
                    _ => order != Less,
                }))
            }
            Op::RandomOf => match arguments.len() {
                0 => Ok(Value::Nothing),
                count => {
                    let chosen = self.user.random.below(count as u64) as usize;
                    self.value(&arguments[chosen])
                }
            },
            Op::Counter | Op::UserCounter => self.counter(op, extra, arguments),
            _ => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(self.value(argument)?);
                }
                self.apply(op, extra, &values)
            }
        }
    }

    fn counter(&mut self, op: Op, extra: &OpName, arguments: &[Expr]) -> Result<Value, Fault> {
        let OpName::Counter(counter) = extra else { return Ok(Value::Nothing) };
        let mut bound = |place: usize, default: i64| match arguments.get(place) {
            Some(argument) => as_integer(&self.value(argument)?),
            None => Ok(default),
        };
        let (start, step, end) = (bound(0, 1)?, bound(1, 1)?, bound(2, i64::MAX)?);
        let asked = if op == Op::Counter {
            self.shared.count(*counter)
        } else {
            let own = &mut self.user.counters[*counter as usize];
            *own += 1;
            *own as i64 - 1
        };
        let round = if step > 0 && end >= start && end < i64::MAX { (end - start) / step + 1 } else { i64::MAX };
        Ok(start.saturating_add((asked % round).saturating_mul(step)).into())
    }

    /// Applies an operation to the values of its arguments.
    fn apply(&mut self, op: Op, extra: &OpName, values: &[Value]) -> Result<Value, Fault> {
        match op {
            Op::Add
            | Op::Multiply
            | Op::Subtract
            | Op::Divide
            | Op::DivideWhole
            | Op::Modulo
            | Op::Minimum
            | Op::Maximum => arithmetic(op, values),
            Op::Negate => arithmetic(Op::Subtract, &[Value::Integer(0), values[0].clone()]),
            Op::Absolute => match &values[0] {
                value if value.integer().is_some() => Ok(as_integer(value)?.saturating_abs().into()),
                value => Ok(Value::Number(as_number(value)?.abs())),
            },
            Op::Round => {
                let digits = values.get(1).map(as_integer).transpose()?.unwrap_or(0).clamp(-15, 15);
                let scale = 10f64.powi(digits as i32);
                Ok(whole((as_number(&values[0])? * scale).round() / scale))
            }
            Op::Floor => Ok(whole(as_number(&values[0])?.floor())),
            Op::Ceiling => Ok(whole(as_number(&values[0])?.ceil())),
            Op::ToInteger => as_integer(&values[0]).map(Value::Integer),
            Op::ToNumber => as_number(&values[0]).map(Value::Number),
            Op::ToText => Ok(values[0].text().as_ref().into()),
            Op::RandomInteger => {
                let (from, to) = (as_integer(&values[0])?, as_integer(&values[1])?);
                Ok(self.user.random.between(from, to).into())
            }
            Op::RandomNumber => {
                let (from, to) = (as_number(&values[0])?, as_number(&values[1])?);
                Ok(Value::Number(from + (to - from) * self.user.random.unit()))
            }
            Op::RandomText => self.random_text(values),
            Op::Uuid => Ok(self.uuid().into()),
            Op::TimeMs => Ok(self.tools.epoch_ms(self.now_ns).into()),
            Op::TimeS => Ok(self.tools.epoch_ms(self.now_ns).div_euclid(1000).into()),
            Op::Date => {
                let shift = values.get(1).map(as_integer).transpose()?.unwrap_or(0);
                let at_ms = values.get(2).map(as_integer).transpose()?.unwrap_or(self.tools.epoch_ms(self.now_ns));
                match calendar::format(&values[0].text(), at_ms.saturating_add(shift)) {
                    Ok(text) => Ok(text.into()),
                    Err(letter) => fault("bad_date_pattern", format!("`{letter}` is no letter of a date pattern")),
                }
            }
            Op::UserNumber => Ok(i64::from(self.user.number).into()),
            Op::Iteration => Ok((self.user.iteration as i64).into()),
            Op::PopulationIteration => Ok((self.user.population_iteration as i64).into()),
            Op::Population => Ok(self.program.populations[self.user.population as usize].name.as_str().into()),
            Op::ActiveUsers => Ok(i64::from(self.shared.population(self.user.population).active.load(Relaxed)).into()),
            Op::LastStatus => Ok(i64::from(self.user.last.status).into()),
            Op::LastOk => Ok((!self.user.last.failed).into()),
            Op::LastBody => Ok(self.user.last.body.clone().map_or(Value::Nothing, Value::Text)),
            Op::LastUrl => Ok(self.user.last.url.clone().map_or(Value::Nothing, Value::Text)),
            Op::LastDurationMs => Ok(((self.user.last.duration_ns / 1_000_000) as i64).into()),
            Op::LastTimedOut => Ok(self.user.last.timed_out.into()),
            Op::LastHeader => {
                let name = values[0].text();
                let lines = self.user.last.head.as_deref().unwrap_or_default().lines();
                let mut fields = lines.filter_map(|line| line.split_once(": "));
                Ok(fields
                    .find(|(own, _)| own.eq_ignore_ascii_case(&name))
                    .map_or(Value::Nothing, |(_, value)| value.into()))
            }
            Op::Cookie => Ok(self.user.jar.value(&values[0].text()).map_or(Value::Nothing, Value::from)),
            _ => texts::apply(op, extra, values, &mut self.tools.searches),
        }
    }

    fn random_text(&mut self, values: &[Value]) -> Result<Value, Fault> {
        const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let length = as_integer(&values[0])?.clamp(0, 1 << 20);
        let given = values.get(1).map(Value::text).filter(|letters| !letters.is_empty());
        let letters: Vec<char> = given.as_deref().unwrap_or(LETTERS).chars().collect();
        let mut pick = || letters[self.user.random.below(letters.len() as u64) as usize];
        Ok((0..length).map(|_| pick()).collect::<String>().into())
    }

    /// Returns a random UUID (RFC 9562, version 4).
    fn uuid(&mut self) -> String {
        let (high, low) = (self.user.random.next(), self.user.random.next());
        let high = high & !0xf000 | 0x4000;
        let low = low & !(0b11 << 62) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns a compiled pattern.
    pub fn pattern(&mut self, pattern: &Pattern) -> Result<std::sync::Arc<fancy_regex::Regex>, Fault> {
        match pattern {
            Pattern::Fixed(regex) => Ok(std::sync::Arc::clone(regex)),
            Pattern::Made(template, whole) => {
                let text = self.text(template)?;
                self.tools.searches.pattern(&text, *whole)
            }
        }
    }
}

fn undefined<T>(name: &str) -> Result<T, Fault> {
    fault("undefined_variable", format!("variable `{name}` is not set"))
}
