//! Tests of the crate's public interface. This is one program, because each program is linked with all dependencies.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod hostile;
mod hyper;
mod splits;
mod stored_corpus;
