//! `%best`: the best trials, the files with their weights, and Rust code that rebuilds the best model.

use crate::ResultsError;
use crate::bundle::{with_code, with_note};
use crate::columns::Column;
use crate::listing::tabulated;
use crate::number::number;
use crate::snippet::{by_name, python, snippet};
use crate::values::winners;
use ferrotune_display::Bundle;
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::objective::Objective;
use ferrotune_space::record::{State, TrialRecord};
use std::fmt;
use std::path::{Path, PathBuf};

/// The file with a trial's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The path of the checkpoint.
    pub path: PathBuf,
    /// A note which weights the file has, if they are not the ones that gave the trial's value.
    pub note: Option<String>,
}

impl fmt::Display for Weights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())?;
        self.note.iter().try_for_each(|note| write!(formatter, " ({note})"))
    }
}

/// The best `count` trials, best first. Without `count` the best trial, or with several objectives all trials that no
/// other trial dominates. If no trial has finished, the pruned trials are ranked. `weights` returns a trial's weights, if they are kept.
///
/// Fails if no trial has finished or was pruned with a value.
pub fn best(
    study: &Study,
    count: Option<usize>,
    weights: impl Fn(&TrialRecord) -> Option<Weights>,
) -> Result<Bundle, ResultsError> {
    let (trials, spec) = (&study.trials, &study.spec);
    let (first, shown) = chosen(study, count)?;
    let mut bundle = tabulated(study, &Column::usual(study, shown.iter().copied()), &shown);
    let front = ranking::best(trials, spec).len();
    if first.state() == State::Pruned {
        bundle =
            with_note(&bundle, "no trial has finished; these were pruned, and their values are those of their reports");
    }
    if front == 0 {
        bundle = with_note(&bundle, "no trial keeps the constraints; these break them least");
    } else if spec.objectives.len() > 1 {
        bundle = with_note(&bundle, &format!("no other trial beats the first {} of these", front.min(shown.len())));
    }
    let is_first = |index: usize| !shown[..index].iter().any(|other| has_same_parameters(other, shown[index]));
    let firsts = (0..shown.len()).filter(|index| is_first(*index));
    let repeated: Vec<String> = firsts.filter_map(|index| repeated(study, shown[index])).collect();
    if !repeated.is_empty() {
        bundle = with_note(&bundle, &repeated.join("\n"));
    }
    let kept: Vec<(u64, Weights)> = shown.iter().filter_map(|trial| Some((trial.number, weights(trial)?))).collect();
    let line = |(number, weights): &(u64, Weights)| format!("weights of trial {number}: {weights}");
    if !kept.is_empty() {
        bundle = with_note(&bundle, &kept.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    let path = kept.iter().find(|(number, _)| *number == first.number).map(|(_, weights)| weights.path.as_path());
    let name = study.spec.project.escape_debug();
    let in_python = format!("# trial {} of {name}, in Python\n{}", first.number, python(first, path));
    Ok(with_code(&with_code(&bundle, &described(study, first, path)), &in_python))
}

/// How the other trials with this trial's parameters ended, such as `trial 10 is one of 3 with its parameters; their mean accuracy is
/// 0.91 (0.9 to 0.93)`. An oracle repeats a combination to average its noise. `None` if no other finished trial has them.
fn repeated(study: &Study, trial: &TrialRecord) -> Option<String> {
    let is_same = |other: &&TrialRecord| other.state() == State::Finished && has_same_parameters(other, trial);
    let same: Vec<&TrialRecord> = study.trials.iter().filter(is_same).collect();
    let is_whole = same.iter().all(|other| other.values.len() == study.spec.objectives.len());
    if same.len() < 2 || !is_whole || trial.parameters.is_empty() || trial.state() != State::Finished {
        return None;
    }
    let mean = |(index, objective): (usize, &Objective)| {
        let values: Vec<f64> = same.iter().map(|trial| trial.values[index]).collect();
        let mean = number(values.iter().sum::<f64>() / values.len() as f64);
        let least = number(values.iter().copied().fold(f64::INFINITY, f64::min));
        let most = number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        format!("their mean {} is {mean} ({least} to {most})", objective.metric)
    };
    let means: Vec<String> = study.spec.objectives.iter().enumerate().map(mean).collect();
    Some(format!("trial {} is one of {} with its parameters; {}", trial.number, same.len(), means.join(", ")))
}

fn has_same_parameters(one: &TrialRecord, other: &TrialRecord) -> bool {
    let values = |trial: &TrialRecord| {
        trial.parameters.iter().map(|(name, known)| (name.clone(), known.value.clone())).collect::<Vec<_>>()
    };
    values(one) == values(other)
}

/// Rust code for a cell that defines variables with the parameters of the first trial that [`best`] shows, and the trial itself by the
/// `name` or the folder of its study. Fails if [`best`] fails.
pub fn parameters(study: &Study, count: Option<usize>, name: &str) -> Result<String, ResultsError> {
    let (first, _) = chosen(study, count)?;
    Ok(below_its_name(study, first, &by_name(first, name)))
}

/// The first trial that [`best`] shows. Fails if [`best`] fails.
pub fn first(study: &Study) -> Result<&TrialRecord, ResultsError> {
    chosen(study, None).map(|(first, _)| first)
}

/// The first of the trials to show, and all of them.
fn chosen(study: &Study, count: Option<usize>) -> Result<(&TrialRecord, Vec<&TrialRecord>), ResultsError> {
    let ranked = |count| ranking::ranked(&study.trials, &study.spec, count);
    let chosen = count.map_or_else(|| winners(study), ranked);
    match chosen.first() {
        Some(first) => Ok((first, chosen)),
        None => Err(ResultsError::NothingFinished { study: study.spec.project.clone() }),
    }
}

/// The snippet of a trial, below a line that names the trial.
fn described(study: &Study, trial: &TrialRecord, weights: Option<&Path>) -> String {
    below_its_name(study, trial, &snippet(trial, weights))
}

fn below_its_name(study: &Study, trial: &TrialRecord, code: &str) -> String {
    // A newline in the name would end the comment.
    let name = study.spec.project.escape_debug();
    format!("// trial {} of {name}\n{code}", trial.number)
}
