//! `cargo xtask bench hpo` compares the oracles with Optuna's samplers on twelve problems on this machine, and writes
//! `docs/benchmarks-hpo.md`. Trains nothing: the objectives are formulas.

use crate::environment::{Environment, cargo};
use crate::step;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The oracles of this crate, in the order of the tables.
const ORACLES: [&str; 3] = ["auto", "tpe", "cmaes"];
const SAMPLERS: [&str; 3] = ["optuna-tpe", "optuna-gp", "optuna-cmaes"];
/// Numbers of trials after which the best value is compared.
const COUNTED: [usize; 3] = [25, 50, 100];

/// Numbers of searches for each problem.
struct Seeds {
    ours: u32,
    optunas: u32,
}

/// Runs 20 searches for each problem, or `--seeds N`. `--optuna-seeds N` changes the number for Optuna alone, whose Gaussian
/// process takes hours for 20 searches.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let seeds = parse(arguments)?;
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("Optuna's samplers", || environment.add("tests/requirements-hpo.txt"))?;
    let mut lines = String::new();
    for oracle in ORACLES {
        lines += &step::step(oracle, || {
            let mut bench = cargo(root);
            bench.args(["bench", "--quiet", "--package", "ferrotune-tuner", "--bench", "hpo", "--", oracle, "0"]);
            step::output(bench.arg(seeds.ours.to_string()))
        })?;
    }
    for sampler in SAMPLERS {
        lines += &step::step(sampler, || {
            let mut bench = environment.python();
            // Optuna's small matrices are slower on several threads, and times could not be compared.
            bench.args(["tests/bench_hpo.py", sampler, "0"]).env("OMP_NUM_THREADS", "1");
            step::output(bench.arg(seeds.optunas.to_string()))
        })?;
    }
    let page = page(&Results::read(&lines, COUNTED.len() + 1)?, &seeds)?;
    std::fs::write(root.join("docs/benchmarks-hpo.md"), page).context("cannot write docs/benchmarks-hpo.md")
}

fn parse(arguments: &[String]) -> Result<Seeds> {
    let mut seeds = Seeds { ours: 20, optunas: 20 };
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { bail!("{} needs a number", pair[0]) };
        let value = value.parse().with_context(|| format!("{option} needs a number, not `{value}`"))?;
        match option.as_str() {
            "--seeds" => seeds = Seeds { ours: value, optunas: value },
            "--optuna-seeds" => seeds.optunas = value,
            _ => bail!("unknown option `{option}`; there are --seeds N and then --optuna-seeds N"),
        }
    }
    Ok(seeds)
}

/// The results of all searches.
pub(super) struct Results {
    /// The problems in the order of their first search.
    problems: Vec<String>,
    /// By sampler and problem: for each search the best values after [`COUNTED`] trials, and milliseconds a trial.
    searches: BTreeMap<(String, String), Vec<Vec<f64>>>,
}

impl Results {
    /// Reads lines of CSV with a sampler, a problem, a seed and `count` numbers.
    pub(super) fn read(lines: &str, count: usize) -> Result<Results> {
        let mut results = Results { problems: Vec::new(), searches: BTreeMap::new() };
        for line in lines.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let [sampler, problem, _seed, numbers @ ..] = fields.as_slice() else { bail!("unexpected line: {line}") };
            let numbers: Result<Vec<f64>, _> = numbers.iter().map(|number| number.parse()).collect();
            let numbers = numbers.with_context(|| format!("unexpected line: {line}"))?;
            if numbers.len() != count {
                bail!("unexpected line: {line}");
            }
            if !results.problems.iter().any(|known| known == problem) {
                results.problems.push((*problem).to_owned());
            }
            results.searches.entry(((*sampler).to_owned(), (*problem).to_owned())).or_default().push(numbers);
        }
        Ok(results)
    }

    /// Median over the searches of one number of each; `None` where there were no searches.
    pub(super) fn median(&self, sampler: &str, problem: &str, number: usize) -> Option<f64> {
        let mut values = self.numbers(sampler, problem, number);
        values.sort_by(f64::total_cmp);
        let low = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(f64::midpoint(low, values[values.len() / 2]))
    }

    /// One number of each search, in the order of the seeds.
    pub(super) fn numbers(&self, sampler: &str, problem: &str, number: usize) -> Vec<f64> {
        let searches = self.searches.get(&(sampler.to_owned(), problem.to_owned()));
        searches.into_iter().flatten().map(|search| search[number]).collect()
    }
}

fn page(results: &Results, seeds: &Seeds) -> Result<String> {
    let mut page = String::from("# Search quality, against Optuna\n\n");
    writeln!(
        page,
        "Written by `cargo xtask bench hpo --seeds {} --optuna-seeds {}`. Median, over so many seeds, of the best value \
         found; lower is better. Problems: `tuner/benches/hpo/problems.rs`. The last column is the mean time that a \
         trial's suggestions and its result take, in milliseconds.",
        seeds.ours, seeds.optunas
    )?;
    for (number, count) in COUNTED.into_iter().enumerate() {
        writeln!(page, "\n## After {count} trials\n\n| | {} | ms |", results.problems.join(" | "))?;
        writeln!(page, "|---|{}---|", "---|".repeat(results.problems.len()))?;
        for sampler in ORACLES.into_iter().chain(SAMPLERS) {
            let cells = results.problems.iter().map(|problem| results.median(sampler, problem, number));
            let cells: Vec<String> = cells.map(|value| value.map_or_else(|| "–".to_owned(), short)).collect();
            let times: Vec<f64> =
                results.problems.iter().filter_map(|problem| results.median(sampler, problem, COUNTED.len())).collect();
            let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
            writeln!(page, "| `{sampler}` | {} | {mean:.2} |", cells.join(" | "))?;
        }
    }
    Ok(page)
}

/// Four significant digits.
fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        return format!("{value:.1e}");
    }
    let digits = usize::try_from(3 - value.abs().max(1.0).log10().floor() as i64).unwrap_or(0);
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_all_seeds_and_numbers_are_short() {
        let lines = "auto,a,0,9,8,7,1\nauto,a,1,9,8,5,1\nauto,a,2,9,8,6,1\n";
        let results = Results::read(lines, 4).unwrap();
        assert_eq!(results.median("auto", "a", 2), Some(6.0));
        assert_eq!(results.median("tpe", "a", 2), None);
        assert!(Results::read("auto,a,0,9", 4).is_err());
        assert_eq!([0.397_887, -3.3223, 1234.5, 2e-9, 0.0].map(short), ["0.398", "-3.322", "1234", "2.0e-9", "0.000"]);
    }

    #[test]
    fn options_that_are_not_there_are_refused() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&words("--seeds 3 --optuna-seeds 2")).unwrap().optunas, 2);
        assert!(parse(&words("--seed 3")).is_err() && parse(&words("--seeds")).is_err());
    }
}
