//! Tests of the crate's public interface. This is one program, because each program is linked with all dependencies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
mod ikev2;
mod inside;
mod openvpn;
mod openvpn_data;
mod stored_corpus;
mod wireguard;
