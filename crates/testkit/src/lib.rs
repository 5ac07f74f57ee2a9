//! What tests of several crates share. A dev-dependency only: no crate depends on it otherwise, and it is not published.
//! `openvpn` has both ends of a tunnel on a link in virtual time, `gateway` a server behind a real socket on loopback.
//! Unit tests of a crate that this one depends on cannot use it, because they see a second copy of that crate's types: the tests of
//! `crates/tunnel` that use it are integration tests.
#![allow(missing_docs, clippy::new_without_default, clippy::unwrap_used, reason = "these are parts of tests")]

pub mod gateway;
pub mod openvpn;
