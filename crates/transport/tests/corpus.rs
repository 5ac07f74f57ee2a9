//! Runs the stored corpus of `fuzz/` through this crate's parsers.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/transport.rs"]
mod targets;

#[test]
fn stored_corpus_passes() {
    corpus::hold(targets::TARGETS);
}
