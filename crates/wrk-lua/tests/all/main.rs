//! Tests of the crate's public interface. This is one program, because each program is linked with all dependencies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod api;
mod common;
mod compare_wrk;
mod edge_cases;
mod wrk_examples;
