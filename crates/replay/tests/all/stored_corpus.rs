//! What cargo-fuzz found before is found again without it.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn stored_corpus_passes() {
    corpus::hold(replay::TARGETS);
}
