//! What cargo-fuzz found before is found again without it.

#[path = "../../../../fuzz/src/capture.rs"]
pub mod capture;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

#[test]
fn stored_corpus_passes() {
    corpus::hold(capture::TARGETS);
}
