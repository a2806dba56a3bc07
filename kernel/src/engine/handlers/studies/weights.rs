//! The checkpoint of a trial with the weights that gave the trial's value, or else the checkpoint closest to them.

use anyhow::{Context, Result};
use ferrotune_journal::Study;
use ferrotune_journal::study_folder;
use ferrotune_results::{best::Weights, number};
use ferrotune_space::checkpoint::{checkpoint_generation, step_of};
use ferrotune_space::objective::Summary;
use ferrotune_space::record::TrialRecord;
use ferrotune_tuner::supervisor::refuse_links_of_trial;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The weights with the path for cells.
pub(super) fn shown(weights: Weights) -> Weights {
    Weights { path: from_cells(weights.path), note: weights.note }
}

/// A path for cells. It is relative if it is in the cells' working folder, so that a notebook that shows the path can move with its
/// studies. Otherwise it is absolute.
pub(super) fn from_cells(path: PathBuf) -> PathBuf {
    let folder = std::env::current_dir().ok(); // none if it is deleted; no file is in it then
    let inner = folder.and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned));
    inner.unwrap_or(path)
}

/// The checkpoint of a step at which the trial reported its value. If no such step has a checkpoint: the checkpoint with the best
/// reported value, or the checkpoint of the last step if the objective takes the last report or the mean of the reports. `None` if
/// the trial has no checkpoint.
///
/// Fails if a checkpoint cannot be read, since another checkpoint has other weights.
pub(super) fn of(study_folder: &Path, study: &Study, trial: &TrialRecord) -> Result<Option<Weights>> {
    // The journal is untrusted: its checkpoint may name any file.
    let last = trial.checkpoint.as_deref().filter(|last| checkpoint_generation(last).is_some());
    let Some(last) = last else { return Ok(None) };
    let folder = study_folder::of_trial(study_folder, trial.number);
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    refuse_links_of_trial(&folder)?;
    let generations =
        generations(&folder).with_context(|| format!("cannot look for checkpoints in {}", folder.display()))?;
    let mut found: Option<Reported> = None;
    for path in generations {
        let step = match step_of(&path) {
            // The trial is running, and has replaced this checkpoint.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            step => step.with_context(|| format!("cannot read the checkpoint {}", path.display()))?,
        };
        let reported = step.and_then(|step| Reported::at(step, path, study, trial));
        if let Some(reported) = reported.filter(|new| found.as_ref().is_none_or(|found| found.rank <= new.rank)) {
            found = Some(reported);
        }
    }
    Ok(match found {
        Some(found) => Some(found.weights(study)),
        None => Some(folder.join(last)).filter(|path| path.is_file()).map(|path| Weights { path, note: None }),
    })
}

/// A checkpoint of a step whose report has the objective's metric.
struct Reported {
    path: PathBuf,
    step: u64,
    value: f64,
    /// Whether the checkpoint has the trial's value, and its closeness to the trial's value otherwise.
    rank: (bool, f64),
}

impl Reported {
    fn at(step: u64, path: PathBuf, study: &Study, trial: &TrialRecord) -> Option<Reported> {
        let objective = study.spec.objective();
        let value = (*trial.metrics.get(&step)?.get(&objective.metric)?)?;
        let closeness = match objective.summary {
            Summary::Best => -objective.direction.loss(value),
            Summary::Last | Summary::Mean => step as f64,
        };
        Some(Reported { path, step, value, rank: (trial.value() == Some(value), closeness) })
    }

    fn weights(self, study: &Study) -> Weights {
        let note = || {
            let (step, metric, value) = (self.step, &study.spec.objective().metric, number(self.value));
            format!(
                "of step {step}, where {metric} was {value}; no checkpoint has the weights that gave the trial's value"
            )
        };
        Weights { note: (!self.rank.0).then(note), path: self.path }
    }
}

/// The checkpoints in a trial's folder, oldest first.
fn generations(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        // The user may have moved the study without the folders of its trials.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let generation = path.file_name().and_then(|name| checkpoint_generation(name.to_str()?));
        found.extend(generation.map(|generation| (generation, path)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
