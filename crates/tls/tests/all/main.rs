//! Tests of the crate's public interface. This is one program, because each program is linked with all dependencies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounds;
mod connections;
mod failures;
mod roots;
mod tls_pair;
