//! `%export model`: the model in a trial's checkpoint as a safetensors file, with the trial in its metadata. Omits the rest of
//! the checkpoint: the optimiser's state, counters, and gaps.

use crate::ResultsError;
use ferrotune_journal::Study;
use ferrotune_space::Value;
use ferrotune_space::checkpoint::STEP;
use ferrotune_space::record::TrialRecord;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// The alignment of the data, as the format recommends. Tensors with larger elements come first, so that each begins at a
/// multiple of the size of its elements.
const ALIGNMENT_BYTES: usize = 8;

/// The bytes of the file. All metadata are texts, as the format requires: `study`, `trial`, the step, each objective with
/// `objective.` before its metric, and each parameter with `param.` before its name.
///
/// `checkpoint` has the bytes of the trial's checkpoint. Fails if the checkpoint is damaged, or has no model.
pub fn model(study: &Study, trial: &TrialRecord, checkpoint: &[u8]) -> Result<Vec<u8>, ResultsError> {
    let parts = Parts::of(checkpoint).ok_or(ResultsError::Checkpoint { trial: trial.number })?;
    let Parts { tensors, data, step } = parts;
    if tensors.is_empty() {
        return Err(ResultsError::NoModel { trial: trial.number });
    }
    let mut metadata = described(study, trial);
    metadata.extend(step.map(|step| ("step".to_owned(), step)));
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!(metadata))]);
    let mut end = 0;
    let mut tensors: Vec<(String, Tensor)> = tensors.into_iter().collect();
    tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.element_bytes()));
    for (name, Tensor { info, place }) in &tensors {
        let mut info = info.clone();
        info["data_offsets"] = json!([end, end + place.len()]);
        end += place.len();
        header.insert(name.clone(), info);
    }
    let mut header = Json::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(ALIGNMENT_BYTES), b' ');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    tensors.iter().for_each(|(_, tensor)| bytes.extend(&data[tensor.place.clone()]));
    Ok(bytes)
}

/// A text in the header of a checkpoint; none if it is not there, or the checkpoint is damaged.
pub(super) fn text_of(checkpoint: &[u8], name: &str) -> Option<String> {
    let (header, _) = header_of(checkpoint)?;
    header.get("__metadata__")?.get(name)?.as_str().map(str::to_owned)
}

/// The header of a checkpoint, and its data; none if it is damaged.
fn header_of(checkpoint: &[u8]) -> Option<(Map<String, Json>, &[u8])> {
    let (length, rest) = checkpoint.split_first_chunk::<8>()?;
    let (header, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((serde_json::from_slice(header).ok()?, data))
}

/// A tensor: its entry in the header, and the range of its bytes.
struct Tensor {
    info: Json,
    place: Range<usize>,
}

impl Tensor {
    fn element_bytes(&self) -> u64 {
        let sizes = self.info["shape"].as_array().into_iter().flatten().map(|size| size.as_u64().unwrap_or(0));
        (self.place.len() as u64).checked_div(sizes.product()).unwrap_or(0)
    }
}

/// The parts of a checkpoint that the file needs.
struct Parts<'a> {
    /// The model's tensors, by name.
    tensors: BTreeMap<String, Tensor>,
    /// The bytes of all tensors.
    data: &'a [u8],
    /// The step after which the checkpoint was made.
    step: Option<String>,
}

impl<'a> Parts<'a> {
    /// Reads the parts of a checkpoint; `None` if the checkpoint is damaged.
    fn of(checkpoint: &'a [u8]) -> Option<Self> {
        let (header, data) = header_of(checkpoint)?;
        let step = header.get("__metadata__").and_then(|texts| texts[STEP].as_str()).map(str::to_owned);
        let mut tensors = BTreeMap::new();
        // The names of all other data in a checkpoint have a colon.
        for (name, info) in header.into_iter().filter(|(name, _)| name != "__metadata__" && !name.contains(':')) {
            let offset = |index: usize| usize::try_from(info["data_offsets"][index].as_u64()?).ok();
            let place = offset(0)?..offset(1)?;
            data.get(place.clone())?;
            tensors.insert(name, Tensor { info, place });
        }
        Some(Self { tensors, data, step })
    }
}

fn described(study: &Study, trial: &TrialRecord) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        // The text of a float with all digits, which its `Display` form does not have.
        Value::Float(value) => value.to_string(),
        other => other.to_string(),
    };
    let mut metadata = BTreeMap::from([
        ("study".to_owned(), study.spec.project.clone()),
        ("trial".to_owned(), trial.number.to_string()),
    ]);
    let objectives = study.spec.objectives.iter().zip(&trial.values);
    metadata
        .extend(objectives.map(|(objective, value)| (format!("objective.{}", objective.metric), value.to_string())));
    let parameters = trial.parameters.iter();
    metadata.extend(parameters.map(|(name, parameter)| (format!("param.{name}"), text(&parameter.value))));
    metadata
}
