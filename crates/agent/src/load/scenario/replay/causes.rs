//! The names of the causes for which a source gave no request.

use std::collections::BTreeMap;

use leadline_replay::{Cause, Causes};

/// The names of causes in a report.
fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Malformed => "malformed",
        Cause::CutOff => "cut_off",
        Cause::NoRequest => "not_a_request",
        Cause::Tls => "tls",
        Cause::Gap => "gap",
        Cause::Unfinished => "unfinished",
        Cause::Upgraded => "upgraded",
        Cause::TooLarge => "too_large",
        Cause::OutOfOrder => "out_of_order",
    }
}

/// Adds the causes of a source to those of the dispatch.
pub fn add_causes(left_out: &mut BTreeMap<String, u64>, causes: &Causes) {
    for (cause, count) in causes.iter().filter(|(cause, _)| *cause != Cause::OutOfOrder) {
        *left_out.entry(cause_name(cause).to_owned()).or_default() += count;
    }
}
