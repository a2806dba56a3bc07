//! Which of a trial's checkpoints has the weights that its value is about.

use anyhow::{Context, Result};
use ferrotune_tuner::checkpoint::checkpoint_generation;
use ferrotune_tuner::checkpoint::step_of;
use ferrotune_tuner::journal::Study;
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::supervisor::refuse_links_of_trial;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The last checkpoint of a step at which the trial reported its value, else its last one; `None` if none is kept.
///
/// Fails where the checkpoints are there and cannot be read: another one would have other weights.
pub(super) fn of(study_folder: &Path, study: &Study, trial: &TrialRecord) -> Result<Option<PathBuf>> {
    // A journal may come from anyone, and may call any file a checkpoint.
    let last = trial.checkpoint.as_deref().filter(|last| checkpoint_generation(last).is_some());
    let Some(last) = last else { return Ok(None) };
    let folder = study_folder.join("trials").join(trial.number.to_string());
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
            // Its trial runs, and has a better one by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            step => step.with_context(|| format!("cannot read the checkpoint {}", path.display()))?,
        };
        if step.and_then(has_value).unwrap_or(false) {
            return Ok(Some(path));
        }
    }
    Ok(Some(folder.join(last)).filter(|path| path.is_file()))
}

/// The checkpoints in a trial's folder, in the order in which they were made.
fn generations(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        // A study may have been moved without the folders of its trials.
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
