//! The kept corpus of `fuzz/` through the functions that cargo-fuzz drives: what was once found is found again without it.

#[path = "../../../fuzz/src/openvpn.rs"]
mod openvpn;
#[path = "../../../fuzz/src/openvpn_client.rs"]
mod openvpn_client;
#[path = "../../../fuzz/src/tunnel.rs"]
mod tunnel;

#[test]
fn the_kept_corpus_holds() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in tunnel::TARGETS.into_iter().chain(openvpn::TARGETS).chain(openvpn_client::TARGETS) {
        let mut inputs: Vec<_> = std::fs::read_dir(corpus.join(name))
            .expect("each target has its corpus")
            .map(|entry| entry.expect("it can be listed").path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            let input = std::fs::read(&path).expect("it can be read");
            println!("{}", path.display());
            target(&input);
        }
    }
}
