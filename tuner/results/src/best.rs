//! `%best`: the best trials, the files with their weights, and Rust code that builds the best model again.

use crate::ResultsError;
use crate::bundle::{with_code, with_note};
use crate::columns::Column;
use crate::listing::tabulated;
use crate::snippet::snippet;
use crate::values::winners;
use ferrotune_display::Bundle;
use ferrotune_tuner::analysis::ranking;
use ferrotune_tuner::journal::Study;
use ferrotune_tuner::record::TrialRecord;
use std::path::{Path, PathBuf};

/// The best `count` trials, best first. Without `count` the best trial, or with several objectives all trials that no
/// other trial beats. `weights` gives the path of a trial's weights, if they are kept.
///
/// Fails where no trial has finished.
pub fn best(
    study: &Study,
    count: Option<usize>,
    weights: impl Fn(&TrialRecord) -> Option<PathBuf>,
) -> Result<Bundle, ResultsError> {
    let (trials, spec) = (&study.trials, &study.spec);
    let shown = count.map_or_else(|| winners(study), |count| ranking::ranked(trials, spec, count));
    let Some(first) = shown.first() else {
        return Err(ResultsError::NothingFinished { study: spec.project.clone() });
    };
    let mut bundle = tabulated(study, &Column::usual(study, shown.iter().copied()), &shown);
    let front = ranking::best(trials, spec).len();
    if front == 0 {
        bundle = with_note(&bundle, "no trial keeps the constraints; these break them least");
    } else if spec.objectives.len() > 1 {
        bundle = with_note(&bundle, &format!("no other trial beats the first {} of these", front.min(shown.len())));
    }
    let kept: Vec<(u64, PathBuf)> = shown.iter().filter_map(|trial| Some((trial.number, weights(trial)?))).collect();
    let line = |(number, path): &(u64, PathBuf)| format!("weights of trial {number}: {}", path.display());
    if !kept.is_empty() {
        bundle = with_note(&bundle, &kept.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    let path = kept.iter().find(|(number, _)| *number == first.number).map(|(_, path)| path.as_path());
    Ok(with_code(&bundle, &described(study, first, path)))
}

/// The snippet of a trial, below a line that names the trial.
fn described(study: &Study, trial: &TrialRecord, weights: Option<&Path>) -> String {
    // A newline in the name would end the comment.
    let name = study.spec.project.escape_debug();
    format!("// trial {} of {name}\n{}", trial.number, snippet(trial, weights))
}
