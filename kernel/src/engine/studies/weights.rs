//! Which of a trial's checkpoints has the weights that its value is about.

use ferrotune_tuner::journal::Study;
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::wire::checkpoint_generation;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where a checkpoint says after which step it was made.
const STEP: &str = "ferrotune:step";
/// No header is longer.
const LONGEST_HEADER_BYTES: u64 = 100 << 20;

/// The last checkpoint of a step at which the trial reported its value, else its last one; `None` if none is kept.
pub(super) fn of(study_folder: &Path, study: &Study, trial: &TrialRecord) -> Option<PathBuf> {
    // A journal may come from anyone, and may call any file a checkpoint.
    let last = trial.checkpoint.as_deref().filter(|last| checkpoint_generation(last).is_some())?;
    let folder = study_folder.join("trials").join(trial.number.to_string());
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let has_value = |step: u64| {
        let metrics = trial.metrics.get(&step)?;
        let reported = *metrics.get(&study.spec.objective().metric)?;
        Some(reported.is_some() && reported == trial.value())
    };
    // One that cannot be read is not the one to recommend; why is told by whoever loads it.
    let of_value = |path: &&PathBuf| step_of(path).ok().flatten().and_then(has_value).unwrap_or(false);
    let generations = generations(&folder).unwrap_or_default();
    let chosen = generations.iter().rev().find(of_value).cloned().unwrap_or_else(|| folder.join(last));
    chosen.is_file().then_some(chosen)
}

/// The checkpoints in a trial's folder, in the order in which they were made.
fn generations(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let generation = path.file_name().and_then(|name| checkpoint_generation(name.to_str()?));
        found.extend(generation.map(|generation| (generation, path)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The step after which a checkpoint was made, from its head alone: <https://github.com/huggingface/safetensors#format>.
fn step_of(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let mut header = Vec::new();
    file.take(u64::from_le_bytes(length).min(LONGEST_HEADER_BYTES)).read_to_end(&mut header)?;
    let header: Value = serde_json::from_slice(&header)?;
    Ok(header["__metadata__"][STEP].as_str().and_then(|step| step.parse().ok()))
}
