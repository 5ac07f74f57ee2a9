//! Tests of the agent's binary. This is one program, because each program is linked with all dependencies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod contract;
mod flows;
mod hostile;
mod logging;
mod peers;
mod soaker;
mod support;
mod termination;
mod undo;
