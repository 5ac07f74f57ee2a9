//! The kept corpus of what comes out of tunnels through the functions that cargo-fuzz drives.

#[path = "../../../fuzz/src/inside.rs"]
mod targets;

#[test]
fn the_kept_corpus_holds() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets::TARGETS {
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
