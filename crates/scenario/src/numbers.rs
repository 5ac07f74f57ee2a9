//! Arithmetic on values.

use leadline_wire::scenario::Op;

use super::fault::{fault, Fault};
use super::value::Value;

/// Returns a value's number.
pub fn as_number(value: &Value) -> Result<f64, Fault> {
    match value.number() {
        Some(number) => Ok(number),
        None => fault("not_a_number", format!("`{}` is not a number", value.text())),
    }
}

/// Returns a value's whole number.
pub fn as_integer(value: &Value) -> Result<i64, Fault> {
    match value.integer() {
        Some(number) => Ok(number),
        None => fault("not_a_number", format!("`{}` is not a whole number", value.text())),
    }
}

/// Returns a number that is whole as such.
pub fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::Integer(number as i64)
    } else {
        Value::Number(number)
    }
}

/// Applies an operation to numbers: exactly, as long as all are whole and do not overflow.
pub fn arithmetic(op: Op, values: &[Value]) -> Result<Value, Fault> {
    if matches!(op, Op::Divide | Op::DivideWhole | Op::Modulo) && as_number(&values[1])? == 0.0 {
        return fault("division_by_zero", format!("`{}` is divided by 0", values[0].text()));
    }
    let integers: Option<Vec<i64>> = values.iter().map(Value::integer).collect();
    if let Some(integers) = integers {
        let mut rest = integers.iter().copied();
        let first = rest.next().unwrap_or(if op == Op::Multiply { 1 } else { 0 });
        let exact = match op {
            Op::Add => rest.try_fold(first, i64::checked_add),
            Op::Multiply => rest.try_fold(first, i64::checked_mul),
            Op::Subtract => rest.try_fold(first, i64::checked_sub),
            Op::Minimum => Some(rest.fold(first, i64::min)),
            Op::Maximum => Some(rest.fold(first, i64::max)),
            Op::DivideWhole => first.checked_div(integers[1]),
            Op::Modulo => first.checked_rem(integers[1]),
            Op::Divide if first.checked_rem(integers[1]) == Some(0) => first.checked_div(integers[1]),
            _ => None,
        };
        if let Some(number) = exact {
            return Ok(number.into());
        }
    }
    let numbers = values.iter().map(as_number).collect::<Result<Vec<f64>, _>>()?;
    let mut rest = numbers.iter().copied();
    let first = rest.next().unwrap_or(if op == Op::Multiply { 1.0 } else { 0.0 });
    let number = match op {
        Op::Add => rest.fold(first, |sum, one| sum + one),
        Op::Multiply => rest.fold(first, |product, one| product * one),
        Op::Subtract => rest.fold(first, |left, one| left - one),
        Op::Minimum => rest.fold(first, f64::min),
        Op::Maximum => rest.fold(first, f64::max),
        Op::Divide => first / numbers[1],
        Op::DivideWhole => return Ok(whole((first / numbers[1]).trunc())),
        _ => first % numbers[1],
    };
    if !number.is_finite() {
        return fault("not_a_number", "a number is too large");
    }
    Ok(Value::Number(number))
}
