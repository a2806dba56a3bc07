//! The HParams plugin's messages: the parameters and metrics of the study, and the parameters and the ending of each trial.
//! <https://github.com/tensorflow/tensorboard/blob/master/tensorboard/plugins/hparams>

use crate::values::parameter_names;
use ferrotune_display::tensorboard::Message;
use ferrotune_journal::Study;
use ferrotune_oracle::inferred::Space;
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::{Distribution, Value};

/// The empty tensor that a summary needs: a float tensor of shape `[0]`.
const NULL_TENSOR: [u8; 6] = [0x08, 0x01, 0x12, 0x02, 0x12, 0x00];

/// The tag of an objective's value, which differs from the tags of reports.
pub(super) fn objective_tag(metric: &str) -> String {
    format!("objective/{metric}")
}

/// The message about the study: the parameters with their domains, and the metrics of the objectives.
pub(super) fn experiment(study: &Study) -> Vec<u8> {
    let space = Space::infer(&study.trials);
    let mut experiment = Message::default().text(6, &study.spec.project);
    for name in parameter_names(&study.trials) {
        if let Some(dimension) = space.dimensions.iter().find(|dimension| dimension.name == name) {
            experiment = experiment.message(4, parameter(name, &dimension.distribution));
        }
    }
    for objective in &study.spec.objectives {
        let name = Message::default().text(2, &objective_tag(&objective.metric));
        experiment = experiment.message(5, Message::default().message(1, name).text(3, &objective.metric));
    }
    plugin_data("_hparams_/experiment", 2, experiment)
}

fn parameter(name: &str, distribution: &Distribution) -> Message {
    const STRING: u64 = 1;
    const BOOL: u64 = 2;
    const FLOAT64: u64 = 3;
    let info = |data_type: u64| Message::default().text(1, name).int(4, data_type);
    let interval = |low: f64, high: f64| info(FLOAT64).message(6, Message::default().double(1, low).double(2, high));
    match distribution {
        Distribution::Int { low, high, .. } => interval(*low as f64, *high as f64),
        Distribution::Float { low, high, .. } => interval(*low, *high),
        Distribution::Choice { values, .. } => {
            let data_type = match values.first() {
                Some(Value::Bool(_)) => BOOL,
                Some(Value::Int(_) | Value::Float(_)) => FLOAT64,
                Some(Value::Text(_)) | None => STRING,
            };
            let listed = values.iter().fold(Message::default(), |list, value| list.message(1, setting(value)));
            info(data_type).message(5, listed)
        }
    }
}

/// The message for the beginning of a trial, with its parameters.
pub(super) fn session_start(trial: &TrialRecord, started: f64) -> Vec<u8> {
    let mut start = Message::default();
    for (name, parameter) in &trial.parameters {
        start = start.message(1, Message::default().text(1, name).message(2, setting(&parameter.value)));
    }
    let start = start.text(4, &trial.number.to_string()).double(5, started);
    plugin_data("_hparams_/session_start_info", 3, start)
}

/// The message for the end of a trial; `None` while the trial runs.
pub(super) fn session_end(trial: &TrialRecord, ended: f64) -> Option<Vec<u8>> {
    const SUCCESS: u64 = 1;
    const FAILURE: u64 = 2;
    let status = match trial.state() {
        State::Running => return None,
        State::Finished | State::Pruned => SUCCESS,
        State::Failed => FAILURE,
    };
    let end = Message::default().int(1, status).double(2, ended);
    Some(plugin_data("_hparams_/session_end_info", 4, end))
}

/// A value as `google.protobuf.Value`.
fn setting(value: &Value) -> Message {
    match value {
        Value::Int(value) => Message::default().double(2, *value as f64),
        Value::Float(value) => Message::default().double(2, *value),
        Value::Text(value) => Message::default().text(3, value),
        Value::Bool(value) => Message::default().int(4, u64::from(*value)),
    }
}

/// A summary's value that carries one of the plugin's messages as metadata, of version 0.
fn plugin_data(tag: &str, field: u64, content: Message) -> Vec<u8> {
    let content = Message::default().message(field, content);
    let plugin = Message::default().text(1, "hparams").message(2, content);
    let metadata = Message::default().message(1, plugin);
    Message::default().text(1, tag).message(9, metadata).bytes(8, &NULL_TENSOR).finish()
}
