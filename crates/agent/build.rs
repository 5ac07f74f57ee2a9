//! Passes the name of the Cargo profile on to the agent, which states it. Cargo's own `PROFILE` knows only `debug` and
//! `release`; the name of any other one is in the path of the output: `target/[TRIPLE/]NAME/build/leadline-agent-HASH/out`.

use std::path::Path;

fn main() {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let profile =
        Path::new(&out).ancestors().nth(3).and_then(Path::file_name).expect("OUT_DIR is in a profile's folder");
    println!("cargo:rustc-env=LEADLINE_BUILD_PROFILE={}", profile.to_string_lossy());
    println!("cargo:rerun-if-changed=build.rs");
}
