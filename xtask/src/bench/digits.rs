//! `cargo xtask bench digits` compares the oracles and Optuna's default on real training, with the same budget. Times nothing.

use super::hpo::Results;
use super::{Request, without_options};
use crate::environment::{Environment, cargo};
use crate::step;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;

const ORACLES: [&str; 2] = ["auto", "tpe"];
const RIVAL: &str = "optuna-tpe";
/// The numbers of trials after which the best loss is compared.
const COUNTED: [usize; 3] = [10, 20, 40];
const SEEDS: &str = "20";

/// Runs all searches, which takes about ten minutes.
pub(super) fn run(request: &Request<'_>) -> Result<Option<String>> {
    without_options(request)?;
    let root = request.root;
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    let bench = ["bench", "--quiet", "--locked", "--package", "ferrotune-study", "--bench", "digits"];
    let mut lines = String::new();
    for oracle in ORACLES {
        lines += &step::step(oracle, || {
            let mut bench_of = cargo(root);
            bench_of.args(bench).args(["--", "search", oracle, "0", SEEDS]);
            // Such small networks are slower on several threads.
            step::output(bench_of.env("RAYON_NUM_THREADS", "1"))
        })?;
    }
    lines += &step::step(RIVAL, || {
        let mut python = environment.bench("bench_hpo.py");
        python.args([RIVAL, "0", SEEDS, "digits"]);
        step::output(python.env("FERROTUNE_DIGITS", program(root, &bench)?).env("RAYON_NUM_THREADS", "1"))
    })?;
    text(&Results::read(&lines, COUNTED.len())?).map(Some)
}

/// The path of the bench, which cargo builds first.
fn program(root: &Path, bench: &[&str]) -> Result<String> {
    let mut built = cargo(root);
    built.args(bench).args(["--no-run", "--message-format", "json"]);
    let messages = step::output(&mut built)?;
    let executables = messages.lines().filter_map(|line| Some(line.split_once("\"executable\":\"")?.1));
    let last = executables.filter_map(|rest| rest.split('"').next()).next_back();
    last.map(str::to_owned).context("cargo does not say where the bench is")
}

fn text(results: &Results) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "A network that reads the notebooks' digits, {SEEDS} seeds: units, layers, \
         learning rate, batch, and the optimiser with its weight decay (`tuner/study/benches/digits.rs`). The lowest validation \
         loss found, as the median over the seeds; in brackets, how many of them did better than Optuna's default with \
         the same seed, first weights and order of batches included.\n"
    )?;
    writeln!(text, "| | {} |\n|---|{}", COUNTED.map(|count| format!("{count} trials")).join(" | "), "---|".repeat(3))?;
    for sampler in ORACLES.into_iter().chain([RIVAL]) {
        write!(text, "| `{sampler}` |")?;
        for number in 0..COUNTED.len() {
            let (own, rival) = (results.numbers(sampler, "digits", number), results.numbers(RIVAL, "digits", number));
            let better = own.iter().zip(&rival).filter(|(own, rival)| own < rival).count();
            let median = results.median(sampler, "digits", number).context("a search is missing")?;
            let wins = if sampler == RIVAL { String::new() } else { format!(" ({better})") };
            write!(text, " {median:.4}{wins} |")?;
        }
        writeln!(text)?;
    }
    Ok(text)
}
