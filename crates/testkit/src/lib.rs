//! What tests of several crates share. A dev-dependency only: no crate depends on it otherwise, and it is not published.
//! `openvpn` has both ends of a tunnel on a link in virtual time, `gateway` a server behind a real socket on loopback.
//! Unit tests of a crate that this one depends on cannot use it, because they see a second copy of that crate's types: the tests of
//! `crates/tunnel` that use it are integration tests.
#![allow(missing_docs, clippy::new_without_default, clippy::unwrap_used, reason = "these are parts of tests")]

pub mod gateway;
pub mod openvpn;

use std::time::{Duration, Instant};

/// Only a defect takes this long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Repeats an attempt until it returns a value. Each attempt asserts what holds under any scheduling; it returns `None`
/// if the machine did not run its threads while its load lasted, so that there is nothing to assert about the rest.
pub fn until<T>(awaited: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "no attempt in which {awaited}");
    }
}
