//! Finds the checkpoint of a trial with the weights that gave its value.

use anyhow::{Context, Result};
use ferrotune_tuner::checkpoint::checkpoint_generation;
use ferrotune_tuner::checkpoint::step_of;
use ferrotune_tuner::journal::Study;
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::study_folder;
use ferrotune_tuner::supervisor::refuse_links_of_trial;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The path by which cells open a file: from their folder if the file is in it, so that a notebook that shows it may move with its
/// studies, and else absolute.
pub(super) fn from_cells(path: PathBuf) -> PathBuf {
    let folder = std::env::current_dir().ok(); // none if it is deleted; no file is in it then
    let inner = folder.and_then(|folder| path.strip_prefix(folder).ok().map(Path::to_owned));
    inner.unwrap_or(path)
}

/// The last checkpoint of a step at which the trial reported its value, or else the last one; `None` if there is none.
///
/// Fails if a checkpoint cannot be read, since another one has other weights.
pub(super) fn of(study_folder: &Path, study: &Study, trial: &TrialRecord) -> Result<Option<PathBuf>> {
    // Anyone may have written the journal, so its checkpoint may name any file.
    let last = trial.checkpoint.as_deref().filter(|last| checkpoint_generation(last).is_some());
    let Some(last) = last else { return Ok(None) };
    let folder = study_folder::of_trial(study_folder, trial.number);
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    refuse_links_of_trial(&folder)?;
    let has_value = |step: u64| {
        let metrics = trial.metrics.get(&step)?;
        let reported = *metrics.get(&study.spec.objective().metric)?;
        Some(reported.is_some() && reported == trial.value())
    };
    let generations =
        generations(&folder).with_context(|| format!("cannot look for checkpoints in {}", folder.display()))?;
    for path in generations.into_iter().rev() {
        let step = match step_of(&path) {
            // The trial is running, and has replaced this checkpoint.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            step => step.with_context(|| format!("cannot read the checkpoint {}", path.display()))?,
        };
        if step.and_then(has_value).unwrap_or(false) {
            return Ok(Some(path));
        }
    }
    Ok(Some(folder.join(last)).filter(|path| path.is_file()))
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
