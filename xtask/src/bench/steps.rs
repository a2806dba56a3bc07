//! `cargo xtask bench steps`: steps of training with candle's optimiser and with ours; writes `docs/benchmarks-steps.md`.

use crate::environment::cargo;
use crate::step;
use anyhow::{Context, Result};
use std::path::Path;

/// With these, glibc keeps freed memory, and a step does not wait for fresh pages.
const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "2147483648"), ("MALLOC_MMAP_THRESHOLD_", "1073741824")];

pub(super) fn run(root: &Path) -> Result<()> {
    let steps = |environment: &[(&str, &str)]| {
        let mut program = cargo(root);
        program.args(["run", "--quiet", "--release", "--locked", "--package", "ferrotune-trial", "--example", "steps"]);
        step::output(program.envs(environment.iter().copied()))
    };
    let plain = step::step("steps", || steps(&[]))?;
    let kept = step::step("steps with kept memory", || steps(&KEEP_MEMORY))?;
    let settings = KEEP_MEMORY.map(|(name, value)| format!("{name}={value}")).join(" ");
    let head = "| | candle's AdamW | `ferrotune::AdamW` | ratio |\n|---|---|---|---|\n";
    let page = format!(
        "# Steps of training\n\n\
         Written by `cargo xtask bench steps`: medians of 200 steps, taken in turn, of an MLP 784-512-512-10 in f32 on the\n\
         CPU (`tuner/trial/examples/steps.rs`).\n\n\
         {head}{plain}\n\
         By default glibc returns freed memory to the system after a step, and the next step waits for fresh pages. With\n\
         `{settings}` in the environment:\n\n\
         {head}{kept}\n\
         Ferrotune does not set these variables yet.\n"
    );
    std::fs::write(root.join("docs/benchmarks-steps.md"), page).context("cannot write docs/benchmarks-steps.md")
}
