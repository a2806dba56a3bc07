//! `cargo xtask bench hpo` compares the oracles with Optuna's samplers on formulas on this machine, measures the time of an
//! answer. Trains nothing.

mod page;

use super::Request;
use crate::environment::{Environment, cargo};
use crate::step;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// The numbers of trials after which the best value is compared.
const COUNTED: [usize; 4] = [10, 25, 50, 100];
/// The first seed whose searches nobody looked at while the settings were chosen.
const FRESH: u32 = 100;

/// The problems with one loss, by their kind of difficulty.
const KINDS: [(&str, &[&str]); 5] = [
    (
        "numbers",
        &[
            "branin",
            "hartmann6",
            "ackley5",
            "rosenbrock4",
            "levy8",
            "griewank5",
            "michalewicz5",
            "rastrigin4",
            "shekel4",
            "styblinski6",
            "dixonprice5",
        ],
    ),
    ("choices that interact", &["choices6", "pairs5", "ring5", "leader5", "small9"]),
    ("whole numbers under limits", &["knapsack", "lorry", "crates5", "luggage10", "order7"]),
    (
        "choices beside numbers, conditions",
        &["mixed", "models", "quadratic", "network", "pipeline", "lure3", "lure6", "couple4"],
    ),
    ("noise", &["hartmann3n", "branin_n", "bowl4n", "recipe5n", "dials3n", "teams4n"]),
];
/// The problems with two losses.
const FRONTS: [&str; 4] = ["zdt1", "size", "dtlz2", "schaffer"];
/// The problems that were not used for the settings of `auto`, except for one trial of the mutation's width on `pipeline`.
const HELD_OUT: [&str; 15] = [
    "dixonprice5",
    "pairs5",
    "ring5",
    "leader5",
    "small9",
    "lorry",
    "crates5",
    "luggage10",
    "order7",
    "pipeline",
    "lure3",
    "lure6",
    "couple4",
    "branin_n",
    "teams4n",
];

/// The searches of one row of the tables.
struct Row {
    sampler: &'static str,
    first_seed: u32,
    seeds: u32,
    /// The number of trials of each search.
    trials: usize,
}

impl Row {
    const fn new(sampler: &'static str, first_seed: u32, seeds: u32, trials: usize) -> Row {
        Row { sampler, first_seed, seeds, trials }
    }

    fn is_optunas(&self) -> bool {
        self.sampler.starts_with("optuna-")
    }

    /// The number of entries of [`COUNTED`] at which the searches print their best value.
    fn counts(&self) -> usize {
        COUNTED.iter().filter(|count| **count <= self.trials).count()
    }
}

/// The searches for problems with one loss. Optuna's Gaussian process takes half a second for a trial.
const ROWS: [Row; 8] = [
    Row::new("auto", 0, 10, 100),
    Row::new("auto", FRESH, 20, 100),
    Row::new("tpe", FRESH, 20, 100),
    Row::new("cmaes", FRESH, 20, 100),
    Row::new("random", FRESH, 20, 100),
    Row::new("optuna-tpe", FRESH, 20, 100),
    Row::new("optuna-gp", FRESH, 5, 25),
    Row::new("optuna-cmaes", FRESH, 20, 100),
];
/// The searches for problems with two losses.
const FRONT_ROWS: [Row; 8] = [
    Row::new("auto", FRESH, 10, 100),
    Row::new("nsga2", 0, 20, 100),
    Row::new("nsga2", FRESH, 20, 100),
    Row::new("nsga3", FRESH, 20, 100),
    Row::new("tpe", FRESH, 20, 100),
    Row::new("random", FRESH, 20, 100),
    Row::new("optuna-nsga2", FRESH, 20, 100),
    Row::new("optuna-tpe", FRESH, 20, 100),
];

/// The timed operation, its goal, and the arguments of `cargo bench --bench`.
const SPEED: [(&str, &str, &[&str]); 3] = [
    ("`tpe`, ask and tell after 100 trials", "≤ 0.1 ms", &["speed", "--", "ask", "tpe", "100"]),
    ("`tpe`, after 1,000 trials", "≤ 1 ms", &["speed", "--", "ask", "tpe", "1000"]),
    ("`gp`, after 100 trials", "≤ 20 ms", &["speed", "--", "ask", "gp", "100"]),
];

/// Runs every search. `--seeds N` limits the number of searches for each problem and row.
pub(super) fn run(request: &Request<'_>) -> Result<Option<String>> {
    let (root, most) = (request.root, parse(request.options)?);
    let started = Instant::now();
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("Optuna's samplers", || environment.add("benchmarks/requirements-hpo.txt"))?;
    let problems: Vec<&str> = KINDS.iter().flat_map(|(_, problems)| *problems).copied().collect();
    let searches = |rows: &'static [Row], problems: &[&str]| searches_of(root, &environment, rows, most, problems);
    let (losses, fronts) = (searches(&ROWS, &problems)?, searches(&FRONT_ROWS, &FRONTS)?);
    let speed: Vec<String> = SPEED.iter().map(|(what, _, words)| speed(root, what, words)).collect::<Result<_>>()?;
    let minutes = started.elapsed().as_secs() / 60;
    page::text(&losses, &fronts, &speed, minutes).map(Some)
}

/// Runs the searches of these rows. Optuna's searches run at the same time as ours, so that two processors have work.
fn searches_of(
    root: &Path,
    environment: &Environment,
    rows: &'static [Row],
    most: u32,
    problems: &[&str],
) -> Result<Vec<(&'static Row, Results)>> {
    let of = |are_optunas: bool| -> Result<Vec<(&'static Row, Results)>> {
        let rows = rows.iter().filter(|row| row.is_optunas() == are_optunas);
        rows.map(|row| Ok((row, searches(root, environment, row, most, problems)?))).collect()
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| of(true));
        (of(false), theirs.join())
    });
    let theirs = theirs.map_err(|_| anyhow!("the searches of Optuna panicked"))??;
    Ok(ours?.into_iter().chain(theirs).collect())
}

/// Runs the searches of one row, in one process.
fn searches(root: &Path, environment: &Environment, row: &Row, most: u32, problems: &[&str]) -> Result<Results> {
    let (first, seeds, trials) = (row.first_seed.to_string(), row.seeds.min(most).to_string(), row.trials.to_string());
    let lines = step::step(&format!("{} from seed {first}", row.sampler), || {
        let mut bench = if row.is_optunas() {
            let mut bench = environment.bench("bench_hpo.py");
            // Optuna's small matrices are slower on several threads, and the times would not be comparable.
            bench.env("OMP_NUM_THREADS", "1");
            bench
        } else {
            let mut bench = cargo(root);
            bench.args(["bench", "--quiet", "--package", "ferrotune-oracle", "--bench", "hpo", "--"]);
            bench
        };
        step::output(bench.args([row.sampler, &first, &seeds]).args(problems).args(["--trials", &trials]))
    })?;
    Results::read(&lines, row.counts() + 1)
}

/// The result of the speed bench, in one line.
fn speed(root: &Path, what: &str, words: &[&str]) -> Result<String> {
    let mut bench = cargo(root);
    bench.args(["bench", "--quiet", "--package", "ferrotune-oracle", "--bench"]).args(words);
    Ok(step::step(what, || step::output(&mut bench))?.trim().to_owned())
}

fn parse(arguments: &[String]) -> Result<u32> {
    match arguments {
        [] => Ok(u32::MAX),
        [option, value] if option == "--seeds" => {
            value.parse().with_context(|| format!("--seeds needs a number, not `{value}`"))
        }
        [option, ..] => bail!("`{option}` is no option with a number; there is --seeds N"),
    }
}

/// The results of all searches.
pub(super) struct Results {
    /// The problems, in the order of their first search.
    problems: Vec<String>,
    /// The numbers of each search, by sampler and problem, such as the best values after some numbers of trials.
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

    /// The median, over the searches, of the number at this place; `None` if there are no searches.
    pub(super) fn median(&self, sampler: &str, problem: &str, number: usize) -> Option<f64> {
        let mut values = self.numbers(sampler, problem, number);
        values.sort_by(f64::total_cmp);
        let low = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(f64::midpoint(low, values[values.len() / 2]))
    }

    /// The number at this place of each search, in the order of the seeds.
    pub(super) fn numbers(&self, sampler: &str, problem: &str, number: usize) -> Vec<f64> {
        let searches = self.searches.get(&(sampler.to_owned(), problem.to_owned()));
        searches.into_iter().flatten().map(|search| search[number]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_all_seeds() {
        let lines = "auto,a,0,9,8,7,1\nauto,a,1,9,8,5,1\nauto,a,2,9,8,6,1\n";
        let results = Results::read(lines, 4).unwrap();
        assert_eq!(results.median("auto", "a", 2), Some(6.0));
        assert_eq!(results.median("tpe", "a", 2), None);
        assert!(Results::read("auto,a,0,9", 4).is_err());
    }

    #[test]
    fn options_that_are_not_there_are_refused() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parse(&words("--seeds 3")).unwrap(), 3);
        assert!(parse(&words("--seed 3")).is_err() && parse(&words("--seeds")).is_err());
    }
}
