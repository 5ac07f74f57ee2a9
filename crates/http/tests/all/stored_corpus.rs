//! Runs the stored corpus of `fuzz/` through this crate's parsers.

use crate::corpus;

#[path = "../../../../fuzz/src/http.rs"]
mod targets;

#[test]
fn stored_corpus_passes() {
    corpus::hold(targets::TARGETS);
}
