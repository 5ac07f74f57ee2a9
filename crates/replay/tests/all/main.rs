//! Tests of the crate through its interface.

mod formats;
mod golden;
mod made_log;
mod order;
mod properties;
mod stored_corpus;
