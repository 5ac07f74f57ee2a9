//! Runs the stored corpus of `fuzz/` through this crate's parsers.

use crate::corpus;

#[path = "../../../../fuzz/src/ikev2.rs"]
mod ikev2;
#[path = "../../../../fuzz/src/openvpn.rs"]
mod openvpn;
#[path = "../../../../fuzz/src/openvpn_client.rs"]
mod openvpn_client;
#[path = "../../../../fuzz/src/tunnel.rs"]
mod tunnel;

#[test]
fn stored_corpus_passes() {
    let targets = tunnel::TARGETS.into_iter().chain(openvpn::TARGETS).chain(openvpn_client::TARGETS);
    corpus::hold(targets.chain(ikev2::TARGETS));
}
