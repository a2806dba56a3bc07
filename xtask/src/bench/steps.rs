//! `cargo xtask bench steps`: steps of training with candle's optimiser and with ours; writes `docs/benchmarks-steps.md`.

use crate::environment::cargo;
use crate::step;
use anyhow::{Context, Result};
use std::path::Path;

pub(super) fn run(root: &Path) -> Result<()> {
    let rows = step::step("steps", || {
        let mut bench = cargo(root);
        bench.args(["run", "--quiet", "--release", "--locked", "--package", "ferrotune-trial", "--example", "steps"]);
        step::output(&mut bench)
    })?;
    let page = format!(
        "# Steps of training\n\n\
         Written by `cargo xtask bench steps`: medians of 200 steps, taken in turn, of an MLP 784-512-512-10 in f32 on the CPU \
         (`tuner/trial/examples/steps.rs`).\n\n\
         | | candle's AdamW | `ferrotune::AdamW` | ratio |\n|---|---|---|---|\n{rows}"
    );
    std::fs::write(root.join("docs/benchmarks-steps.md"), page).context("cannot write docs/benchmarks-steps.md")
}
