//! Tests of the crate through its interface.

mod captures;
mod frames;
mod rewriting;
mod segments;
mod stored_corpus;
