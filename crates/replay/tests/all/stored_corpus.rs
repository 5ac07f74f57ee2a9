//! What cargo-fuzz found before is found again without it.

#[path = "../../../../fuzz/src/access_log.rs"]
pub mod access_log;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/replay.rs"]
mod replay;

#[test]
fn stored_corpus_passes() {
    corpus::hold(access_log::TARGETS);
    corpus::hold(replay::TARGETS);
}
