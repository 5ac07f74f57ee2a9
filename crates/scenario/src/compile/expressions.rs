//! Compiles templates, expressions and patterns.

use std::sync::Arc;

use leadline_wire::scenario::{Expression, Op, TemplatePart};

use super::state::{CompileError, Compiler};
use crate::program::{Expr, OpName, Part, Pattern, Template};
use crate::search::regex;
use crate::value::Value;

/// The largest depth of an expression.
const DEPTH_LIMIT: usize = 60;

impl Compiler {
    pub fn template(&mut self, parts: &[TemplatePart]) -> Result<Template, CompileError> {
        let mut compiled: Vec<Part> = Vec::with_capacity(parts.len());
        for part in parts {
            let text = match part {
                TemplatePart::Text(text) => text.as_str().into(),
                TemplatePart::Expression(expression) => match self.expression(expression)? {
                    Expr::Literal(value) => value.text().into(),
                    value => {
                        compiled.push(Part::Value(value));
                        continue;
                    }
                },
            };
            compiled.push(Part::Text(text));
        }
        if compiled.iter().all(|part| matches!(part, Part::Text(_))) {
            let texts = compiled.iter().map(|part| if let Part::Text(text) = part { text } else { "" });
            return Ok(Template::Fixed(texts.collect::<String>().into()));
        }
        Ok(Template::Parts(compiled.into()))
    }

    pub fn expression(&mut self, expression: &Expression) -> Result<Expr, CompileError> {
        self.expression_at(expression, 0)
    }

    fn expression_at(&mut self, expression: &Expression, depth: usize) -> Result<Expr, CompileError> {
        if depth > DEPTH_LIMIT {
            return Err(self.error(format!("an expression is nested more than {DEPTH_LIMIT} deep")));
        }
        let Expression { op, name, value, arguments } = expression;
        let fallback = value.as_ref().map_or(Value::Nothing, Value::from);
        match op {
            Op::Literal => return Ok(Expr::Literal(fallback)),
            Op::Variable | Op::IsSet => {
                let name = name.as_deref().ok_or_else(|| self.error(format!("`{op:?}` needs a name")))?;
                let shared = self.program.shared_slots.get(name).copied();
                let variable = Expr::Variable(self.slot(name), shared, name.into(), fallback);
                return Ok(match op {
                    Op::IsSet => Expr::Operation(Op::IsSet, OpName::None, Box::new([variable])),
                    _ => variable,
                });
            }
            _ => {}
        }
        let (least, most) = arity(*op);
        if arguments.len() < least || arguments.len() > most {
            return Err(self.error(format!("`{op:?}` has {} arguments", arguments.len())));
        }
        let compiled =
            arguments.iter().map(|one| self.expression_at(one, depth + 1)).collect::<Result<Box<[_]>, _>>()?;
        let extra = self.extra(*op, name.as_deref(), &compiled)?;
        self.program.keeps_last_body |= *op == Op::LastBody;
        self.program.keeps_last_url |= *op == Op::LastUrl;
        self.program.keeps_last_head |= *op == Op::LastHeader;
        Ok(Expr::Operation(*op, extra, compiled))
    }

    /// Returns the counter of an operation, or its pattern if that is constant.
    fn extra(&mut self, op: Op, name: Option<&str>, arguments: &[Expr]) -> Result<OpName, CompileError> {
        match op {
            Op::Counter | Op::UserCounter => {
                let is_own = op == Op::UserCounter;
                let key = (name.unwrap_or_default().into(), is_own);
                if let Some(counter) = self.counters.get(&key) {
                    return Ok(OpName::Counter(*counter));
                }
                let total = if is_own { &mut self.program.user_counters } else { &mut self.program.shared_counters };
                *total += 1;
                let counter = *total as u32 - 1;
                self.counters.insert(key, counter);
                Ok(OpName::Counter(counter))
            }
            Op::Matches | Op::Finds | Op::Group | Op::ReplacePattern => match arguments.get(1) {
                Some(Expr::Literal(pattern)) => {
                    let built = regex(&pattern.text(), op == Op::Matches).map_err(|message| self.error(message))?;
                    Ok(OpName::Pattern(Arc::new(built)))
                }
                _ => Ok(OpName::None),
            },
            _ => Ok(OpName::None),
        }
    }

    pub fn pattern(&mut self, parts: &[TemplatePart], whole: bool) -> Result<Pattern, CompileError> {
        let template = self.template(parts)?;
        match template.fixed() {
            Some(text) => {
                let built = regex(text, whole).map_err(|message| self.error(message))?;
                Ok(Pattern::Fixed(Arc::new(built)))
            }
            None => Ok(Pattern::Made(template, whole)),
        }
    }
}

/// Returns the least and the most arguments of an operation.
fn arity(op: Op) -> (usize, usize) {
    use Op::*;
    match op {
        Join | FirstOf | And | Or | Add | Multiply | Minimum | Maximum | RandomOf => (0, usize::MAX),
        Literal | Variable | IsSet | Uuid | TimeMs | TimeS | UserNumber | Iteration | PopulationIteration
        | Population | ActiveUsers | LastStatus | LastOk | LastBody | LastUrl | LastDurationMs | LastTimedOut => (0, 0),
        Not | Negate | Absolute | Floor | Ceiling | ToInteger | ToNumber | ToText | Length | IsEmpty | Upper
        | Lower | Trim | UrlEncode | UrlDecode | Base64Encode | Base64Decode | Sha256 | Md5 | HtmlEscape
        | HtmlUnescape | LastHeader | Cookie => (1, 1),
        VariableNamed | Round | RandomText => (1, 2),
        If | Replace | ReplacePattern | SplitPart => (3, 3),
        Substring | Group => (2, 3),
        Date => (1, 3),
        Counter | UserCounter => (0, 3),
        Equal | NotEqual | SameText | Less | LessEqual | Greater | GreaterEqual | Subtract | Divide | DivideWhole
        | Modulo | IndexOf | Contains | StartsWith | EndsWith | EqualIgnoringCase | Matches | Finds | JsonValue
        | RandomInteger | RandomNumber => (2, 2),
    }
}
