//! W3C's extended log format, as IIS and CloudFront write it: a directive `#Fields:` names the columns, and may change
//! them in the middle of a file.

use memchr::{memchr, memchr2};

use super::meaning::{Meaning, Slot, Variable};
use super::steps::Span;
use super::times::{TimePart, TimePattern, MS_NS, SECOND_NS};
use crate::recorded::Cause;

/// What each column is.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    slots: Vec<Option<Slot>>,
    /// Whether the columns are those of CloudFront, which encodes spaces as `%20`; IIS writes `+`.
    pub(super) is_cloudfront: bool,
}

impl Columns {
    /// Reads the names of the columns out of a directive, if the line is that directive.
    pub(super) fn read_directive(line: &[u8], meaning: &mut Meaning) -> Option<Self> {
        let names = line.strip_prefix(b"#Fields:")?;
        let names = String::from_utf8_lossy(names);
        let names: Vec<&str> = names.split_ascii_whitespace().collect();
        let has = |name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
        let is_cloudfront = has("x-edge-location");
        // CloudFront's cs(Host) is its own name; the client's is in x-host-header.
        let has_viewer_host = has("x-host-header");
        let slots = names
            .iter()
            .map(|name| match name.to_ascii_lowercase().as_str() {
                "cs(host)" if has_viewer_host => None,
                lower => meaning.add(read_name(name, lower, is_cloudfront)),
            })
            .collect();
        Some(Self { slots, is_cloudfront })
    }

    /// Takes a line apart.
    ///
    /// # Errors
    /// Why it does not have these columns.
    pub(super) fn parse(&self, line: &[u8], spans: &mut [Span]) -> Result<(), Cause> {
        let Some(last) = self.slots.len().checked_sub(1) else { return Err(Cause::Malformed) };
        let mut at = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let rest = line.get(at..).ok_or(Cause::CutOff)?;
            let end = match memchr2(b' ', b'\t', rest) {
                Some(_) if index == last => return Err(Cause::Malformed),
                Some(end) => at + end,
                None => line.len(),
            };
            if let Some(slot) = slot {
                spans[usize::from(*slot)] = Span::new(at, end);
            }
            at = end + 1;
        }
        Ok(())
    }
}

fn read_name(name: &str, lower: &str, is_cloudfront: bool) -> Variable {
    let duration_ns = if is_cloudfront { SECOND_NS } else { MS_NS };
    let part = |parts: [TimePart; 3]| {
        let [first, second, third] = parts;
        TimePattern::Parts(vec![first, TimePart::Other(1), second, TimePart::Other(1), third])
    };
    match lower {
        // Both servers write them when the request ends.
        "date" => Variable::time(part([TimePart::Year, TimePart::Month, TimePart::Day]), true),
        "time" => Variable::time(part([TimePart::Hour, TimePart::Minute, TimePart::Second]), true),
        "timestamp(ms)" => Variable::time(TimePattern::Number { unit_ns: MS_NS }, true),
        "c-ip" => Variable::Address,
        "c-port" => Variable::Port,
        "cs-method" => Variable::Method,
        "cs-uri-stem" => Variable::Path,
        "cs-uri-query" => Variable::Query,
        "cs-uri" => Variable::Target,
        "cs-host" | "x-host-header" => Variable::Host,
        "cs-username" => Variable::User,
        "sc-status" => Variable::Status,
        "time-taken" => Variable::Duration { unit_ns: duration_ns },
        "x-forwarded-for" => Variable::header("X-Forwarded-For"),
        _ => match name.split_once('(') {
            Some((side, field)) if side.eq_ignore_ascii_case("cs") => Variable::header(field.trim_end_matches(')')),
            _ => Variable::Skip,
        },
    }
}

/// Whether a line is a directive or a comment.
pub(super) fn is_directive(line: &[u8]) -> bool {
    memchr(b'#', line) == Some(0)
}
