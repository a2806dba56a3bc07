//! The cost of training steps: time, processor time and pages. Reads /proc, so that all programs are measured alike.

use anyhow::{Context, Result};
use std::fs;

/// The unit of Linux' processor times, which is a hundredth of a second for every program.
const TICK_MS: f64 = 10.0;

/// The cost of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    /// The median time of the steps, in milliseconds.
    pub(super) wall_ms: f64,
    /// The mean of a step's processor time in all threads, in milliseconds.
    pub(super) processor_ms: f64,
    /// The mean number of pages that the system provides for a step.
    pub(super) faults: f64,
    /// The loss of the last step.
    pub(super) loss: f64,
}

impl Figures {
    /// The median of each figure; the loss is that of the last turn.
    pub(super) fn median(turns: &[Figures]) -> Option<Figures> {
        let of = |figure: fn(&Figures) -> f64| median(turns.iter().map(figure).collect());
        Some(Figures {
            wall_ms: of(|turn| turn.wall_ms)?,
            processor_ms: of(|turn| turn.processor_ms)?,
            faults: of(|turn| turn.faults)?,
            loss: turns.last()?.loss,
        })
    }

    /// The figures from a program's answer, and from its use of resources before and after the steps.
    pub(super) fn of(answer: &str, before: &Used, after: &Used) -> Result<Figures> {
        let numbers: Result<Vec<f64>, _> = answer.split_whitespace().map(str::parse).collect();
        let numbers = numbers.ok().filter(|numbers| numbers.len() > 2);
        let numbers = numbers.with_context(|| format!("the program answers `{}`", answer.trim()))?;
        let steps = (numbers.len() - 2) as f64;
        Ok(Figures {
            wall_ms: median(numbers[2..].to_vec()).context("no steps")?,
            processor_ms: (after.ticks - before.ticks) as f64 * TICK_MS / steps,
            faults: (after.faults - before.faults) as f64 / steps,
            loss: numbers[1],
        })
    }
}

/// The resources that a process has used since its start, in all its threads.
pub(super) struct Used {
    ticks: u64,
    faults: u64,
}

impl Used {
    pub(super) fn by(pid: u32) -> Result<Used> {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Used::read(&stat).with_context(|| format!("{path} is not as the system documents it"))
    }

    fn read(stat: &str) -> Option<Used> {
        // The process' name is in brackets, and may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number)?.parse::<u64>().ok();
        Some(Used { ticks: field(11)? + field(12)?, faults: field(7)? })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let low = *values.get(values.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(low, values[values.len() / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_for_a_step() {
        let stat = |ticks: u64, faults: u64| format!("7 (a (b) c) S 1 7 7 0 -1 4 {faults} 0 0 0 {ticks} 4 0 0 20");
        let used = |ticks, faults| Used::read(&stat(ticks, faults)).unwrap();
        let figures = Figures::of("2.5 1.5 30 10 20 90\n", &used(100, 1000), &used(108, 1400)).unwrap();
        assert_eq!(figures, Figures { wall_ms: 25.0, processor_ms: 20.0, faults: 100.0, loss: 1.5 });
        assert!(Figures::of("", &used(1, 1), &used(1, 1)).is_err());
    }
}
