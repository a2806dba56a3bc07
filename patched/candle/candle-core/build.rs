//! Says how the sources of candle-core are made, where they are not made yet. Does nothing else.

use std::path::Path;

/// One of the files that are made.
const MADE: &str = "src/lib.rs";

fn main() {
    println!("cargo::rerun-if-changed={MADE}");
    if !Path::new(MADE).exists() {
        println!("cargo::error=the sources of candle-core are not made yet; run `cargo xtask candle` once");
    }
}
