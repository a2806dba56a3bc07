//! `%trials` and `%best`: studies on disk, as tables.

use anyhow::{Result, bail};
use ferrotune_display::{Bundle, escape, table};
use ferrotune_tuner::analysis::ranking;
use ferrotune_tuner::journal::{Journal, Study};
use ferrotune_tuner::record::{MemoryCheck, TrialRecord};
use std::collections::BTreeSet;
use std::path::Path;

/// All trials of a study.
pub(super) fn trials(folder: &Path) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let trials: Vec<&TrialRecord> = study.trials.iter().collect();
    Ok(listed(&study, &trials))
}

/// One trial in full.
pub(super) fn trial(folder: &Path, number: u64) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let Some(trial) = study.trials.iter().find(|trial| trial.number == number) else {
        bail!("study {} has no trial {number}; it has {}", study.spec.project, study.trials.len());
    };
    let mut lines = vec![format!("trial {number} of {}: {}", study.spec.project, ending(trial))];
    let values = study.spec.objectives.iter().zip(&trial.values);
    lines.extend(values.map(|(objective, value)| format!("{} = {}", objective.metric, self::number(*value))));
    lines.extend(trial.parameters.iter().map(|(name, parameter)| format!("  {name} = {}", parameter.value)));
    lines.push(format!("{:.1} s, peak memory {}", trial.seconds, escape::bytes(trial.peak_bytes)));
    lines.extend(trial.memory.as_ref().map(memory_line));
    if !trial.retried.is_empty() {
        let endings: Vec<String> = trial.retried.iter().map(ToString::to_string).collect();
        lines.push(format!("tried again after: {}", endings.join("; ")));
    }
    lines.extend(trial.checkpoint.as_ref().map(|file| format!("checkpoint: trials/{number}/{file}")));
    for (step, metrics) in &trial.metrics {
        let metrics = metrics
            .iter()
            .map(|(name, value)| format!("{name}={}", value.map_or_else(|| "none".to_owned(), self::number)));
        lines.push(format!("  step {step}: {}", metrics.collect::<Vec<_>>().join(", ")));
    }
    let output = folder.join("trials").join(number.to_string()).join("output.log");
    match std::fs::read(&output) {
        Ok(bytes) if !bytes.is_empty() => {
            lines.push(format!("output:\n{}", String::from_utf8_lossy(&bytes).trim_end()))
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => lines.push(format!("its output cannot be read: {error}")),
    }
    Ok(Bundle::text(lines.join("\n")))
}

/// What the trial took of the machine's memory, and what came back.
fn memory_line(memory: &MemoryCheck) -> String {
    let (before, after) = (escape::bytes(memory.before_bytes), escape::bytes(memory.after_bytes));
    let left = if memory.left.is_empty() { "nothing".to_owned() } else { memory.left.join(", ") };
    format!("memory available: {before} before it, {after} after it; left behind: {left}")
}

/// The best trials of a study, best first.
pub(super) fn best(folder: &Path, count: u64) -> Result<Bundle> {
    let study = Journal::read(folder)?;
    let trials = ranking::ranked(&study.trials, &study.spec, usize::try_from(count).unwrap_or(usize::MAX));
    if trials.is_empty() {
        bail!("study {} has no finished trial yet; %trials shows what became of the others", study.spec.project);
    }
    Ok(listed(&study, &trials))
}

/// A metric for people: at most six significant digits.
pub(super) fn number(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    if rounded != 0.0 && !(1e-4..1e7).contains(&rounded.abs()) { format!("{rounded:e}") } else { rounded.to_string() }
}

fn ending(trial: &TrialRecord) -> String {
    match &trial.ending {
        Some(ending) => ending.to_string(),
        None => "unfinished".to_owned(),
    }
}

fn listed(study: &Study, trials: &[&TrialRecord]) -> Bundle {
    let names: BTreeSet<&str> = trials.iter().flat_map(|trial| trial.parameters.keys()).map(String::as_str).collect();
    let mut header = vec!["trial"];
    header.extend(study.spec.objectives.iter().map(|objective| objective.metric.as_str()));
    header.extend(&names);
    header.extend(["seconds", "peak memory", "ending"]);
    let rows: Vec<Vec<String>> = trials.iter().map(|trial| row(trial, study.spec.objectives.len(), &names)).collect();
    table(&header, &rows)
}

fn row(trial: &TrialRecord, objectives: usize, names: &BTreeSet<&str>) -> Vec<String> {
    let mut row = vec![trial.number.to_string()];
    row.extend((0..objectives).map(|index| trial.values.get(index).map_or_else(String::new, |value| number(*value))));
    row.extend(
        names
            .iter()
            .map(|name| trial.parameters.get(*name).map_or_else(String::new, |parameter| parameter.value.to_string())),
    );
    row.extend([format!("{:.1}", trial.seconds), escape::bytes(trial.peak_bytes), ending(trial)]);
    row
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short_and_keep_their_size() {
        for (value, text) in
            [(0.972_222_222, "0.972222"), (1e-9, "1e-9"), (0.0, "0"), (-12345.678, "-12345.7"), (3.0, "3")]
        {
            assert_eq!(number(value), text);
        }
    }
}
