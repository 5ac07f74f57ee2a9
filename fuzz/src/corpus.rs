//! Runs the stored corpus through the functions that cargo-fuzz drives, for the crates' own tests: earlier findings
//! are found again without cargo-fuzz. A crate of the workspace includes this file by its path.

/// Passes to each target all its stored inputs.
pub fn hold<'t>(targets: impl IntoIterator<Item = (&'t str, fn(&[u8]))>) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in targets {
        let mut inputs: Vec<_> = std::fs::read_dir(corpus.join(name))
            .expect("each target has a corpus")
            .map(|entry| entry.expect("the entry can be listed").path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            let input = std::fs::read(&path).expect("the input can be read");
            println!("{}", path.display());
            target(&input);
        }
    }
}
