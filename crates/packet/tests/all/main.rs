//! Tests of the crate through its interface.

mod captures;
mod frames;
mod rewriting;
mod stored_corpus;
