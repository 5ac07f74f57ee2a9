//! The kept corpus through the functions that cargo-fuzz drives, for the crates' own tests: what was once found is found again
//! without it. Taken in by its path, from a crate of the workspace.

/// Hand each target all inputs that are kept for it.
pub fn hold<'t>(targets: impl IntoIterator<Item = (&'t str, fn(&[u8]))>) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets {
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
