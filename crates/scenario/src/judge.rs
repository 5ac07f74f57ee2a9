//! Judges a response: status, extractors, checks. Owns the cause of a request's failure and what extractors set.

use std::borrow::Cow;
use std::ops::Range;

use leadline_http::Url;
use leadline_wire::scenario::{OutputPart, Severity, StatusRange};

use super::evaluate::Context;
use super::fault::{fault, Fault};
use super::figures::LabelFigures;
use super::program::{Check, Extractor, Find, Miss, Pick, Request, Subject, Test};
use super::search::{between, read_json, too_slow, Nodes, MOST_MATCHES, MOST_VALUE_BYTES};
use super::value::Value;

/// A response as far as it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'r> {
    /// The status code.
    pub status: u16,
    /// The reason phrase, if it was kept.
    pub reason: &'r str,
    /// The header fields as lines `Name: value`, if they were kept.
    pub head: &'r str,
    /// The body, if it was kept.
    pub body: &'r [u8],
    /// The size of the body, bytes.
    pub body_bytes: u64,
    /// From sent to the end, ns.
    pub duration_ns: u64,
    /// The URL.
    pub url: &'r Url,
    /// The bytes of the request, if they were kept.
    pub sent: &'r [u8],
}

/// Why a request failed: the name of its cause and a description.
pub type Failure = (Cow<'static, str>, String);

/// Executes the extractors and checks of a response. Returns why it failed, if it did.
pub fn judge(
    context: &mut Context<'_>,
    request: &Request,
    reply: &Reply<'_>,
    figures: &mut LabelFigures,
) -> Option<Failure> {
    let mut failure: Option<Failure> = None;
    if !is_in(reply.status, &request.ok_status) {
        failure =
            Some((format!("status_{}", reply.status).into(), format!("{} {}", reply.status, reply.url.absolute())));
    }
    for extractor in &request.extractors {
        match extract(context, extractor, reply) {
            Ok(true) => {}
            Ok(false) => {
                figures.miss(&extractor.variable.0);
                let missed = on_miss(context, extractor);
                failure = failure.or(missed);
            }
            Err(fault) => failure = failure.or(Some((fault.cause.into(), fault.detail))),
        }
    }
    for check in &request.checks {
        let passed = run_check(context, check, reply);
        let passed = match passed {
            Ok(passed) => passed,
            Err(fault) => {
                failure = failure.or(Some((fault.cause.into(), fault.detail)));
                false
            }
        };
        figures.check(check.place, passed);
        if !passed && check.severity == Severity::Fail && failure.is_none() {
            let name = &context.program.labels[request.label as usize].checks[check.place as usize];
            let message = check.message.as_ref().and_then(|message| context.text(message).ok());
            failure = Some(("check_failed".into(), message.unwrap_or_else(|| format!("check `{name}` failed"))));
        }
    }
    failure
}

fn is_in(status: u16, ranges: &[StatusRange]) -> bool {
    ranges.iter().any(|range| (range.from..=range.to).contains(&status))
}

fn subject<'s>(context: &Context<'_>, subject: &Subject, reply: &Reply<'s>) -> Cow<'s, str> {
    let head_end = || reply.sent.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(reply.sent.len());
    match subject {
        Subject::Body => String::from_utf8_lossy(reply.body),
        Subject::Answer => {
            let head = reply.head.trim_end_matches(['\r', '\n']).lines().fold(String::new(), |mut head, line| {
                head.push_str(line);
                head.push_str("\r\n");
                head
            });
            Cow::Owned(format!("{head}\r\n{}", String::from_utf8_lossy(reply.body)))
        }
        Subject::Headers => Cow::Borrowed(reply.head),
        Subject::Reason => Cow::Borrowed(reply.reason),
        Subject::Status => Cow::Owned(reply.status.to_string()),
        Subject::Url => Cow::Owned(reply.url.absolute()),
        Subject::RequestHeaders => {
            let head = String::from_utf8_lossy(&reply.sent[..head_end()]).into_owned();
            Cow::Owned(head.split_once("\r\n").map_or("", |(_, fields)| fields).to_owned())
        }
        Subject::RequestBody => String::from_utf8_lossy(reply.sent.get(head_end() + 4..).unwrap_or_default()),
        Subject::Variable(slot) => Cow::Owned(context.user.registers[*slot as usize].text().into_owned()),
    }
}

/// A value that an extractor found, with the groups of its match.
type Found = (Option<String>, Vec<String>);

/// What an extractor takes of the values that it finds.
#[derive(Clone, Copy, Debug)]
enum Taken {
    /// Their number.
    Count(usize),
    /// All of them.
    All(usize),
    /// The one at this place.
    One(usize),
    /// None: the one that it wants was not found.
    Nothing,
}

impl Taken {
    /// The places of the values that are needed.
    fn places(self) -> Range<usize> {
        match self {
            Self::All(count) => 0..count,
            Self::One(place) => place..place + 1,
            Self::Count(_) | Self::Nothing => 0..0,
        }
    }
}

/// Chooses among the values that an extractor found.
fn take(context: &mut Context<'_>, extractor: &Extractor, count: usize) -> Result<Taken, Fault> {
    let number = match &extractor.pick {
        Pick::Number(number) => context.number(number)? as i64,
        Pick::Last => count as i64,
        Pick::Random => 0,
        Pick::All => -1,
        Pick::Count => return Ok(Taken::Count(count)),
    };
    Ok(match number {
        ..=-1 => Taken::All(count),
        0 if count > 0 => Taken::One(context.user.random.below(count as u64) as usize),
        1.. if number as u64 <= count as u64 => Taken::One(number as usize - 1),
        _ => Taken::Nothing,
    })
}

/// Finds the values of an extractor; returns what it takes of them, and the values that are needed for this.
fn find(context: &mut Context<'_>, extractor: &Extractor, reply: &Reply<'_>) -> Result<(Taken, Vec<Found>), Fault> {
    let single = |text: &str| (Some(text.to_owned()), Vec::new());
    let mut found = match &extractor.find {
        Find::Regex(pattern, output) => {
            let pattern = context.pattern(pattern)?;
            let text = subject(context, &extractor.subject, reply);
            let (mut found, mut found_bytes) = (Vec::new(), 0);
            for captures in pattern.captures_iter(&*text) {
                let captures = captures.map_err(|error| too_slow(&error))?;
                let group = |number: usize| captures.get(number).map_or("", |one| one.as_str());
                let mut value = String::new();
                for part in output {
                    match part {
                        OutputPart::Text(text) => value.push_str(text),
                        OutputPart::Group(number) => value.push_str(group(*number as usize)),
                    }
                }
                if output.is_empty() {
                    value.push_str(group(usize::from(captures.len() > 1)));
                }
                let groups = if extractor.sets_groups { captures.len() } else { 0 };
                // Groups that only look ahead can repeat a long text in each match.
                found_bytes += value.len() + (0..groups).map(|number| group(number).len()).sum::<usize>();
                if found_bytes > MOST_VALUE_BYTES {
                    let detail = format!("the matches of a pattern are longer than {MOST_VALUE_BYTES} bytes");
                    return fault("text_too_long", detail);
                }
                if value.len() > extractor.max_bytes {
                    continue;
                }
                found.push((Some(value), (0..groups).map(|number| group(number).to_owned()).collect()));
                if found.len() >= MOST_MATCHES || takes_first(extractor) {
                    break;
                }
            }
            found
        }
        Find::Json(path) => {
            let path = context.text(path)?;
            let path = context.tools.searches.path(&path)?;
            let root = read_json(&subject(context, &extractor.subject, reply));
            let nodes = Nodes::find(&path, root.as_ref());
            let taken = take(context, extractor, nodes.count())?;
            let values = nodes.values(taken.places())?.into_iter();
            return Ok((taken, values.map(|value| (value, Vec::new())).collect()));
        }
        Find::Header(name) => {
            let name = context.text(name)?;
            let fields = reply.head.lines().filter_map(|line| line.split_once(": "));
            fields.filter(|(own, _)| own.eq_ignore_ascii_case(&name)).map(|(_, value)| single(value)).collect()
        }
        Find::Cookie(name) => {
            let name = context.text(name)?;
            context.user.jar.value(&name).map(single).into_iter().collect()
        }
        Find::Boundary(left, right) => {
            let (left, right) = (context.text(left)?, context.text(right)?);
            let text = subject(context, &extractor.subject, reply);
            between(&text, &left, &right).into_iter().map(single).collect()
        }
        Find::Css(selector, attribute) => {
            let (selector, attribute) = (context.text(selector)?, context.text(attribute)?);
            let text = subject(context, &extractor.subject, reply);
            let elements = context.tools.searches.css(&text, &selector, attribute.trim())?;
            let taken = take(context, extractor, elements.count())?;
            let values = elements.values(taken.places())?.into_iter();
            return Ok((taken, values.map(|value| (Some(value), Vec::new())).collect()));
        }
        Find::Whole => vec![single(&subject(context, &extractor.subject, reply))],
    };
    found.retain(|(value, _)| value.as_ref().is_none_or(|value| value.len() <= extractor.max_bytes));
    let taken = take(context, extractor, found.len())?;
    Ok((taken, found.drain(taken.places()).collect()))
}

fn takes_first(extractor: &Extractor) -> bool {
    matches!(&extractor.pick, Pick::Number(super::program::Expr::Literal(Value::Integer(1))))
}

/// Sets what an extractor finds; returns whether it found something.
fn extract(context: &mut Context<'_>, extractor: &Extractor, reply: &Reply<'_>) -> Result<bool, Fault> {
    let (taken, mut found) = find(context, extractor, reply)?;
    let (name, slot) = &extractor.variable;
    match taken {
        Taken::Count(count) => context.user.registers[*slot as usize] = Value::Integer(count as i64),
        Taken::All(_) => return Ok(set_all(context, extractor, found)),
        Taken::One(_) | Taken::Nothing => {
            let Some((value, groups)) = found.pop() else { return Ok(false) };
            context.user.registers[*slot as usize] = value.map_or(Value::Nothing, Value::from);
            set_groups(context, name, &groups);
        }
    }
    Ok(true)
}

/// Sets `name_1` and so on, and their number as `name_matchNr`; forgets those of an earlier and longer list.
fn set_all(context: &mut Context<'_>, extractor: &Extractor, found: Vec<Found>) -> bool {
    let (name, _) = &extractor.variable;
    let (program, count) = (context.program, found.len());
    let number_name = format!("{name}_matchNr");
    let before =
        context.user.named(program, &number_name).integer().unwrap_or(0).clamp(0, MOST_MATCHES as i64) as usize;
    for (number, (value, groups)) in found.into_iter().enumerate() {
        let name = format!("{name}_{}", number + 1);
        set_groups(context, &name, &groups);
        context.user.set_named(program, &name, value.map_or(Value::Nothing, Value::from));
    }
    for number in count + 1..=before {
        context.user.set_named(program, &format!("{name}_{number}"), Value::Nothing);
    }
    context.user.set_named(program, &number_name, Value::Integer(count as i64));
    count > 0
}

fn set_groups(context: &mut Context<'_>, name: &str, groups: &[String]) {
    let program = context.program;
    for (number, group) in groups.iter().enumerate() {
        context.user.set_named(program, &format!("{name}_g{number}"), Value::from(group.as_str()));
    }
    if let Some(most) = groups.len().checked_sub(1) {
        context.user.set_named(program, &format!("{name}_g"), Value::Integer(most as i64));
    }
}

/// Does what follows a miss; returns the failure if there is one.
fn on_miss(context: &mut Context<'_>, extractor: &Extractor) -> Option<Failure> {
    let (name, slot) = &extractor.variable;
    let value = match &extractor.on_miss {
        Miss::Keep => return None,
        Miss::Unset | Miss::Fail => Value::Nothing,
        Miss::Default(text) => match context.text(text) {
            Ok(text) => text.into(),
            Err(fault) => return Some((fault.cause.into(), fault.detail)),
        },
    };
    context.user.registers[*slot as usize] = value;
    matches!(extractor.on_miss, Miss::Fail).then(|| ("extraction_failed".into(), format!("found nothing for `{name}`")))
}

fn run_check(context: &mut Context<'_>, check: &Check, reply: &Reply<'_>) -> Result<bool, Fault> {
    for test in &check.tests {
        let passed = run_test(context, check, test, reply)? != check.is_negated;
        if passed == check.any {
            return Ok(passed);
        }
    }
    Ok(!check.any)
}

fn run_test(context: &mut Context<'_>, check: &Check, test: &Test, reply: &Reply<'_>) -> Result<bool, Fault> {
    let text = |context: &Context<'_>| subject(context, &check.subject, reply);
    Ok(match test {
        Test::Status(ranges) => is_in(reply.status, ranges),
        Test::Contains(expected) => match expected.fixed() {
            Some(expected) => text(context).contains(expected),
            None => {
                let expected = context.text(expected)?;
                text(context).contains(&*expected)
            }
        },
        Test::Equals(expected) => {
            let expected = context.text(expected)?;
            text(context) == expected
        }
        Test::Finds(pattern) | Test::Matches(pattern) => {
            let pattern = context.pattern(pattern)?;
            pattern.is_match(&*text(context)).map_err(|error| too_slow(&error))?
        }
        Test::Json(path, expected, is_pattern, is_null) => {
            let path = context.text(path)?;
            let expected = expected.as_ref().map(|expected| context.text(expected)).transpose()?;
            let path = context.tools.searches.path(&path)?;
            let root = read_json(&text(context));
            let nodes = Nodes::find(&path, root.as_ref());
            match expected {
                _ if *is_null => nodes.has_null(),
                None => nodes.count() > 0,
                Some(expected) if *is_pattern => {
                    let pattern = context.tools.searches.pattern(&expected, true)?;
                    nodes.any(|value| pattern.is_match(value).unwrap_or(false))?
                }
                Some(expected) => nodes.any(|value| value == expected)?,
            }
        }
        Test::Size(least, most) => {
            least.is_none_or(|least| reply.body_bytes >= least) && most.is_none_or(|most| reply.body_bytes <= most)
        }
        Test::Duration(most_ms) => reply.duration_ns as f64 <= context.number(most_ms)? * 1e6,
        Test::Condition(condition) => context.is_true(condition)?,
    })
}
