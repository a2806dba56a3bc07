//! Gives evcxr the paths of rustc and cargo, as evcxr's own build script does, and says how the sources are made, where they are not
//! made yet.

use std::path::{Path, PathBuf};

/// One of the files that are made.
const MADE: &str = "src/lib.rs";

fn main() {
    println!("cargo::rerun-if-changed={MADE}");
    if !Path::new(MADE).exists() {
        println!("cargo::error=the sources of evcxr are not made yet; run `cargo xtask candle` once");
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for program in ["rustc", "cargo"] {
        let path = which::which(program).unwrap_or_else(|error| panic!("cannot find {program}: {error}"));
        let path = path.to_str().unwrap_or_else(|| panic!("the path of {program} is not UTF-8"));
        std::fs::write(out.join(format!("{program}_path")), path).expect("cargo has made OUT_DIR");
    }
}
