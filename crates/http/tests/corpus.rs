//! Runs the stored corpus of `fuzz/` through this crate's parsers.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/http.rs"]
mod targets;

#[test]
fn the_kept_corpus_holds() {
    corpus::hold(targets::TARGETS);
}
