//! The text of `benchmarks/hpo.md`: its tables, and the limits of what they show. Runs nothing.

use super::{COUNTED, FRESH, FRONTS, HELD_OUT, KINDS, Results, Row, SPEED};
use anyhow::Result;
use std::fmt::Write as _;

/// The rows of a table, each with the results of its searches.
type Rows<'a> = &'a [(&'a Row, Results)];

/// The text of the table. `minutes` is the total time.
pub(super) fn text(losses: Rows<'_>, fronts: Rows<'_>, speed: &[String], minutes: u64) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "All searches took {minutes} minutes. Medians, over the seeds, of the best value found; \
         lower is better. Where losses have noise, it is the loss without noise of the trial that looks best. Problems: \
         `tuner/oracle/benches/hpo/problems.rs`. The last column is the mean time that a trial's suggestions and its result \
         take, in milliseconds; other work of the machine is in it. [oracles.md](oracles.md) has what single \
         changes of the oracles brought.\n\n\
         **How far to trust it.** The settings of our oracles were chosen while looking at these problems with seeds below \
         {FRESH}; a row with such seeds says *looked at*. No setting of `auto` was chosen with the problems that have a star, except \
         that the width of mutations was once tried on pipeline; the settings of noise were chosen with seeds below 20 of the \
         problems whose names end in n. Optuna's samplers have their defaults. `auto`, `gp` and \
         `tpe` begin in the middle of the ranges, which is a good place on levy8, rastrigin4 and dixonprice5 by their choice \
         of ranges.\n\n## Speed\n\n| what | measured | goal | command |\n|---|---|---|---|"
    )?;
    for ((what, goal, words), line) in SPEED.iter().zip(speed) {
        writeln!(text, "| {what} | {line} | {goal} | `cargo bench -p ferrotune-tuner --bench {}` |", words.join(" "))?;
    }
    for (kind, problems) in KINDS {
        for (number, count) in COUNTED.into_iter().enumerate() {
            table(&mut text, &format!("After {count} trials: {kind}"), losses, problems, number)?;
        }
    }
    for (number, count) in COUNTED.into_iter().enumerate() {
        let title = format!("After {count} trials: hypervolume of two losses, with a minus");
        table(&mut text, &title, fronts, &FRONTS, number)?;
    }
    Ok(text)
}

fn table(text: &mut String, title: &str, rows: Rows<'_>, problems: &[&str], number: usize) -> Result<()> {
    let starred =
        |problem: &&str| if HELD_OUT.contains(problem) { format!("{problem}\\*") } else { (*problem).to_owned() };
    let names: Vec<String> = problems.iter().map(starred).collect();
    writeln!(text, "\n## {title}\n\n| | seeds | {} | ms |", names.join(" | "))?;
    writeln!(text, "|---|---|{}---|", "---|".repeat(problems.len()))?;
    for (row, results) in rows.iter().filter(|(row, _)| number < row.counts()) {
        let median = |problem: &&str, number| results.median(row.sampler, problem, number);
        let cells = problems.iter().map(|problem| median(problem, number));
        let cells: Vec<String> = cells.map(|value| value.map_or_else(|| "–".to_owned(), short)).collect();
        let times: Vec<f64> = problems.iter().filter_map(|problem| median(problem, row.counts())).collect();
        let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let ours = !row.is_optunas() && row.sampler != "random";
        let looked_at = if ours && row.first_seed < FRESH { ", looked at" } else { "" };
        let seeds = problems.first().map_or(0, |problem| results.numbers(row.sampler, problem, 0).len() as u32);
        let seeds = format!("{}–{}{looked_at}", row.first_seed, row.first_seed + seeds.saturating_sub(1));
        writeln!(text, "| `{}` | {seeds} | {} | {mean:.2} |", row.sampler, cells.join(" | "))?;
    }
    Ok(())
}

/// A number with four significant digits.
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
    fn numbers_are_short() {
        assert_eq!([0.397_887, -3.3223, 1234.5, 2e-9, 0.0].map(short), ["0.398", "-3.322", "1234", "2.0e-9", "0.000"]);
    }

    #[test]
    fn rows_say_what_was_looked_at_and_leave_out_longer_searches() {
        let (seen, fresh) = (Row::new("auto", 0, 1, 100), Row::new("optuna-gp", FRESH, 1, 25));
        let long = Results::read("auto,branin,0,4,3,2,1,9", 5).unwrap();
        let short = Results::read("optuna-gp,branin,100,8,7,9", 3).unwrap();
        let text = text(&[(&seen, long), (&fresh, short)], &[], &["fast".to_owned()], 3).unwrap();
        assert!(text.starts_with("All searches took 3 minutes. "), "{text}");
        assert_eq!(text.matches("| `auto` | 0–0, looked at | 4.000 |").count(), 1);
        // The rows are those after 10 and after 25 trials, for each kind of problem.
        assert_eq!(text.matches("| `optuna-gp` | 100–100 |").count(), 2 * KINDS.len());
        assert!(text.contains("dixonprice5\\* | ms |"));
    }
}
