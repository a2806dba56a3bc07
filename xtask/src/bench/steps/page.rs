//! The tables in `benchmarks/steps.md`.

use super::figures::Figures;
use super::{MODELS, MODES};
use anyhow::{Context, Result};
use std::fmt::Write as _;

/// The text of the tables. `rivals` has their versions.
pub(super) fn text(table: &[Vec<Figures>], rounds: usize, rivals: &str) -> Result<String> {
    let cores = std::thread::available_parallelism().context("cannot count the cores")?;
    let mut text = String::new();
    writeln!(text, "Time of a step in milliseconds, on {cores} cores, {rounds} turns each, with {rivals}:\n")?;
    times(&mut text, table, |figures| figures.wall_ms)?;
    writeln!(text, "Processor time of a step in milliseconds, of all threads together:\n")?;
    times(&mut text, table, |figures| figures.processor_ms)?;
    writeln!(text, "Pages that the system provides in a step:\n")?;
    head(&mut text, "", 0)?;
    for (model, row) in MODELS.iter().zip(table) {
        let pages: Vec<String> = row.iter().map(|figures| format!("{:.0}", figures.faults)).collect();
        writeln!(text, "| {} | {} |", model.name, pages.join(" | "))?;
    }
    Ok(text)
}

fn head(text: &mut String, more: &str, count: usize) -> Result<()> {
    writeln!(text, "| | {} |{more}", MODES.each_ref().map(|mode| mode.name).join(" | "))?;
    Ok(writeln!(text, "|---|{}", "---|".repeat(MODES.len() + count))?)
}

fn times(text: &mut String, table: &[Vec<Figures>], time: fn(&Figures) -> f64) -> Result<()> {
    head(text, " ours ÷ candle | best of ours ÷ best rival |", 2)?;
    for (model, row) in MODELS.iter().zip(table) {
        let row: Vec<f64> = row.iter().map(time).collect();
        let (of_candle, of_rivals) = ratios(&row);
        let row: Vec<String> = row.iter().map(|time| format!("{time:.2}")).collect();
        writeln!(text, "| {} | {} | {of_candle:.2} | {of_rivals:.2} |", model.name, row.join(" | "))?;
    }
    Ok(writeln!(text)?)
}

/// The ratios of two times: candle with ours to unchanged candle, and the best of ours to the best rival.
fn ratios(times: &[f64]) -> (f64, f64) {
    let best = |ours: bool| {
        let of = MODES.iter().zip(times).filter(move |(mode, _)| mode.is_ours == ours).map(|(_, time)| *time);
        of.fold(f64::INFINITY, f64::min)
    };
    let eager = MODES.iter().position(|mode| mode.is_ours).unwrap_or(0);
    (times[eager] / times[0], best(true) / best(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_with_candle_and_with_the_best_rival() {
        assert_eq!(ratios(&[10.0, 5.0, 8.0, 4.0, 2.0, 9.0]), (0.5, 2.5));
    }
}
