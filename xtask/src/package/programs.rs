//! The programs of `docs/rust-api.md`, built from the packed crates in their own workspace, with candle of crates.io, without
//! Ferrotune's changes.

use super::{Packed, profile};
use crate::environment::{cargo, outside_cargo};
use crate::step::run as run_command;
use anyhow::{Context, Result};
use ferrotune_candle::CANDLE;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

const DOCUMENT: &str = "docs/rust-api.md";

/// The function that the document leaves out of its first program.
const EPOCH: &str =
    "fn fit_one_epoch(units: usize, lr: f64) -> Result<f64> {\n    Ok(1.0 / (1.0 + lr * units as f64))\n}\n";

/// The code that the document leaves out before and after its loop of `ask` and `tell`.
const ASKED: [&str; 2] = [
    "use ferrotune_study::{Direction, Result, Study};\n\nfn main() -> Result<()> {\n    let mut study = Study::builder()\n        \
     .project(\"asked\")\n        .objective(\"loss\", Direction::Min)\n        .max_trials(50)\n        .in_process()\n        .build()?;\n",
    "    assert_eq!(study.trials()?.len(), 50);\n    Ok(())\n}\n",
];

/// The code that the document leaves out around its use of the oracles alone.
const ALONE: [&str; 2] = [
    "fn train(lr: f64, layers: i64) -> f64 {\n    (lr.log10() + 3.0).powi(2) + (layers - 3).pow(2) as f64\n}\n\n\
     fn main() -> Result<(), Box<dyn std::error::Error>> {\n",
    "    assert_eq!(search.trials().len(), 30);\n    Ok(())\n}\n",
];

pub(super) fn run(packed: &Packed) -> Result<()> {
    let document = fs::read_to_string(packed.root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let searching = blocks(&document).next().with_context(|| format!("{DOCUMENT} has no program"))?;
    let asking = blocks(&document).find(|block| block.contains(".ask()"));
    let asking = asking.with_context(|| format!("{DOCUMENT} has no loop of ask and tell"))?;
    let alone = blocks(&document).find(|block| block.starts_with("use ferrotune_oracle::"));
    let alone = alone.with_context(|| format!("{DOCUMENT} does not use the oracles alone"))?;
    let folder = packed.folder.join("programs");
    fs::create_dir_all(folder.join("src/bin")).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = fs::read_to_string(packed.root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    for (name, text) in [
        ("Cargo.toml", manifest(packed)?),
        ("Cargo.lock", lock),
        ("src/bin/searching.rs", format!("{searching}\n{EPOCH}")),
        ("src/bin/asking.rs", format!("{}{asking}{}", ASKED[0], ASKED[1])),
        ("src/bin/alone.rs", format!("{}{alone}{}", ALONE[0], ALONE[1])),
    ] {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let target = folder.join("target");
    let mut build = cargo(&folder);
    build.args(["build", "--quiet", "--release"]).env("CARGO_BUILD_BUILD_DIR", packed.root.join("target"));
    run_command(build.env("CARGO_TARGET_DIR", &target))?;
    for program in ["searching", "asking", "alone"] {
        let studies = folder.join("studies").join(program);
        if studies.exists() {
            fs::remove_dir_all(&studies).with_context(|| format!("cannot remove {}", studies.display()))?;
        }
        fs::create_dir_all(&studies).with_context(|| format!("cannot create {}", studies.display()))?;
        run_command(outside_cargo(Command::new(target.join("release").join(program)).current_dir(studies)))?;
    }
    Ok(())
}

/// The blocks of Rust code in a document.
fn blocks(document: &str) -> impl Iterator<Item = &str> {
    document.split("```rust\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0))
}

fn manifest(packed: &Packed) -> Result<String> {
    let mut manifest = String::from(
        "[workspace]\n\n[package]\nname = \"programs\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nferrotune-oracle = \"*\"\nferrotune-study = \"*\"\n\n[patch.crates-io]\n",
    );
    for package in &packed.crates {
        writeln!(manifest, "{} = {{ path = \"../crates/{}\" }}", package.name, package.folder())?;
    }
    let repository = fs::read_to_string(packed.root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let names = packed
        .crates
        .iter()
        .map(|package| package.name.as_str())
        .chain(CANDLE.packages.iter().map(|package| package.name));
    Ok(manifest + &profile(&repository, names)?)
}
