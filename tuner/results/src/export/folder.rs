//! `ferrotune export`: the files of a trial's model, for programs without a notebook. The model is that of `%export model`; what
//! `Fit::run_in` wrote into the checkpoint gives its description and its preparation of tables.

use super::model::{model, text_of};
use crate::ResultsError;
use ferrotune_journal::Study;
use ferrotune_space::checkpoint::STEP;
use ferrotune_space::record::TrialRecord;
use serde_json::{Value as Json, json};

/// The name of the file that says which trial the folder has. A folder with this file is one that an export made.
pub const TRIAL_FILE: &str = "trial.json";

/// The names of all files that a folder may have.
pub const FILES: [&str; 4] = [TRIAL_FILE, "model.safetensors", "model.safetensors.json", "prep.json"];

/// The version of that file.
const VERSION: u32 = 1;

/// The name of what `Fit::run_in` writes into a checkpoint.
const RECIPE: &str = "ferrotune:fit:recipe";

/// The names and contents of the files: `model.safetensors`, `model.safetensors.json` and `prep.json` where the checkpoint has them, and
/// [`TRIAL_FILE`].
///
/// `checkpoint` has the bytes of the trial's checkpoint. Fails if the checkpoint is damaged, or has no model.
pub fn folder(
    study: &Study,
    trial: &TrialRecord,
    checkpoint: &[u8],
) -> Result<Vec<(&'static str, Vec<u8>)>, ResultsError> {
    let damaged = || ResultsError::Checkpoint { trial: trial.number };
    let model = ("model.safetensors", model(study, trial, checkpoint)?);
    let mut described = Vec::new();
    let recipe = match text_of(checkpoint, RECIPE) {
        Some(text) => Some(serde_json::from_str::<Json>(&text).map_err(|_| damaged())?),
        None => None,
    };
    for (name, part) in [("model.safetensors.json", "model"), ("prep.json", "prep")] {
        let part = recipe.as_ref().map(|recipe| &recipe[part]).filter(|part| !part.is_null());
        described.extend(part.map(|part| (name, format!("{part:#}\n").into_bytes())));
    }
    let step = text_of(checkpoint, STEP).and_then(|step| step.parse::<u64>().ok());
    let values = study.spec.objectives.iter().zip(&trial.values);
    let about = json!({
        "ferrotune_export": VERSION,
        "study": study.spec.project,
        "trial": trial.number,
        "step": step,
        "objectives": values.map(|(objective, value)| (objective.metric.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "metrics": step.and_then(|step| trial.metrics.get(&step)),
        "parameters": trial.parameters.iter().map(|(name, parameter)| (name.clone(), json!(parameter.value))).collect::<serde_json::Map<_, _>>(),
    });
    // The file that says whose folder it is comes first.
    let about = (TRIAL_FILE, format!("{about:#}\n").into_bytes());
    Ok([about, model].into_iter().chain(described).collect())
}
