//! A benchmark of the oracles' use of epochs: whole searches on problems with learning curves, on a simulated clock, one line of
//! CSV for each. Starts no worker and writes no journal. benchmarks/bench_curves.py runs Optuna's pruners on the same problems.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod clock;
mod problems;

use clock::{Search, Workers};
use std::process::ExitCode;

/// The numbers of whole trainings after whose epochs the incumbent's true final loss is recorded.
pub(crate) const COUNTED: [u64; 4] = [10, 25, 50, 100];

/// Arguments: oracle (with a pruner after `+`), number of workers, first seed, number of seeds, and the problems (all if
/// none is named). Several workers train trials at the same time, every tenth trial five times slower.
///
/// A line has the oracle, the problem, the seed, the losses, the share of the workers' time that was idle, milliseconds for
/// each decision, the number of trials, and the epochs until each best trial finished, with that trial's loss.
fn main() -> ExitCode {
    // Cargo adds a --bench of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let [oracle, workers, first, count, counted, wanted @ ..] = arguments else {
        return Err("usage: ORACLE[+PRUNER] WORKERS FIRST_SEED SEEDS COUNTS [PROBLEM…]".to_owned());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (workers, first, count, counted) =
        (number(workers)?, number(first)?, number(count)?, number(counted)? as usize);
    let problems = problems::all()?;
    for problem in problems.iter().filter(|problem| wanted.is_empty() || wanted.iter().any(|word| word == problem.name))
    {
        for seed in first..first + count {
            let outcome = Search::new(oracle, problem, seed)?.run(&Workers { count: workers }, counted)?;
            let losses: Vec<String> = outcome.losses.iter().map(ToString::to_string).collect();
            let course: Vec<String> = outcome.course.iter().map(|(epochs, loss)| format!("{epochs}:{loss}")).collect();
            let (losses, course, name) = (losses.join(","), course.join(" "), problem.name);
            println!(
                "{oracle},{name},{seed},{losses},{:.4},{:.3},{},{course}",
                outcome.idle, outcome.milliseconds, outcome.trials
            );
        }
    }
    Ok(())
}
