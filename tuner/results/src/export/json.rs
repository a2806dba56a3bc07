//! A study as JSON: its description, and the parameters, reports and outcome of every trial.

use crate::columns::times;
use crate::values::state_name;
use chrono::SecondsFormat;
use ferrotune_journal::Study;
use ferrotune_space::objective::Direction;
use ferrotune_space::record::TrialRecord;
use serde_json::{Map, Value, json};

pub(super) fn text(study: &Study) -> String {
    let objectives: Vec<Value> = study
        .spec
        .objectives
        .iter()
        .map(|objective| {
            let direction = if objective.direction == Direction::Min { "min" } else { "max" };
            json!({"metric": objective.metric, "direction": direction})
        })
        .collect();
    let spec = &study.spec;
    let trials: Vec<Value> = study.trials.iter().map(|trial| trial_json(study, trial)).collect();
    let document = json!({
        "study": {
            "name": spec.project, "objectives": objectives, "oracle": spec.oracle, "seed": spec.seed,
            "max_trials": spec.max_trials, "constraints": spec.constraints,
        },
        "trials": trials,
    });
    format!("{document:#}\n")
}

fn trial_json(study: &Study, trial: &TrialRecord) -> Value {
    let values = study.spec.objectives.iter().enumerate();
    let values: Map<String, Value> =
        values.map(|(index, objective)| (objective.metric.clone(), json!(trial.values.get(index).copied()))).collect();
    let parameters: Map<String, Value> =
        trial.parameters.iter().map(|(name, parameter)| (name.clone(), json!(parameter.value))).collect();
    let metrics: Map<String, Value> =
        trial.metrics.iter().map(|(step, metrics)| (step.to_string(), json!(metrics))).collect();
    let times = times(study, trial);
    let iso = |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(SecondsFormat::Micros, true);
    json!({
        "number": trial.number, "state": state_name(trial.state()), "values": values, "parameters": parameters,
        "metrics": metrics, "started": times.started.map(iso), "ended": times.ended.map(iso),
        "seconds": trial.seconds, "peak_bytes": trial.peak_bytes, "epochs": trial.epochs_done(),
        "ending": crate::values::ending(trial), "checkpoint": trial.checkpoint, "executions": trial.executions,
        "retried": trial.retried.len(), "parent": trial.parent, "memory": trial.memory, "device": trial.device,
        "user_attributes": trial.user_attributes,
    })
}
