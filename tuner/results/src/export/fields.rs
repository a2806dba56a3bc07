//! The columns of a table of trials for other programs. Names have prefixes as in Optuna's data frames, so a parameter and a
//! metric may have the same name.

use crate::columns::times;
use crate::values::{ending, metric_names, parameter_names, state_name};
use chrono::{DateTime, SecondsFormat, Utc};
use ferrotune_journal::Study;
use ferrotune_space::Value;
use std::collections::BTreeSet;

/// A column of the table, with an optional value for each trial.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) values: Values,
}

/// The values of a column, all of one type.
pub(super) enum Values {
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Truth(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
}

/// All columns of the table.
pub(super) fn fields(study: &Study) -> Vec<Field> {
    let trials = &study.trials;
    let whole = |name: &str, values: Vec<Option<i64>>| Field { name: name.to_owned(), values: Values::Whole(values) };
    let number = |name: String, values: Vec<Option<f64>>| Field { name, values: Values::Number(values) };
    let text = |name: &str, values: Vec<Option<String>>| Field { name: name.to_owned(), values: Values::Text(values) };
    let mut fields = vec![
        whole("number", trials.iter().map(|trial| Some(trial.number as i64)).collect()),
        text("state", trials.iter().map(|trial| Some(state_name(trial.state()).to_owned())).collect()),
    ];
    for (index, objective) in study.spec.objectives.iter().enumerate() {
        let values = trials.iter().map(|trial| trial.values.get(index).copied()).collect();
        fields.push(number(format!("values_{}", objective.metric), values));
    }
    for name in parameter_names(trials) {
        let values = trials.iter().map(|trial| trial.parameters.get(name).map(|parameter| &parameter.value));
        fields.push(Field { name: format!("params_{name}"), values: typed(&values.collect::<Vec<_>>()) });
    }
    for name in metric_names(study) {
        let values = trials.iter().map(|trial| trial.last_reported(name)).collect();
        fields.push(number(format!("last_{name}"), values));
    }
    let attributes: BTreeSet<&String> = trials.iter().flat_map(|trial| trial.user_attributes.keys()).collect();
    for name in attributes {
        // A text is written as it is; any other value is written as JSON.
        let plain = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values = trials.iter().map(|trial| trial.user_attributes.get(name).map(plain)).collect();
        fields.push(text(&format!("user_attrs_{name}"), values));
    }
    let iso = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Micros, true);
    fields.extend([
        text("datetime_start", trials.iter().map(|trial| times(study, trial).started.map(iso)).collect()),
        text("datetime_complete", trials.iter().map(|trial| times(study, trial).ended.map(iso)).collect()),
        number("seconds".to_owned(), trials.iter().map(|trial| Some(trial.seconds)).collect()),
        whole("peak_bytes", trials.iter().map(|trial| i64::try_from(trial.peak_bytes).ok()).collect()),
        whole("epochs", trials.iter().map(|trial| i64::try_from(trial.epochs_done()).ok()).collect()),
        text("ending", trials.iter().map(|trial| Some(ending(trial))).collect()),
        text("checkpoint", trials.iter().map(|trial| trial.checkpoint.clone()).collect()),
    ]);
    fields
}

/// The values of a parameter in the narrowest type that fits all of them.
fn typed(values: &[Option<&Value>]) -> Values {
    let all = |fits: fn(&Value) -> bool| values.iter().flatten().all(|value| fits(value));
    if all(|value| matches!(value, Value::Int(_))) {
        let whole = |value: &Value| if let Value::Int(value) = value { Some(*value) } else { None };
        return Values::Whole(values.iter().map(|value| value.and_then(whole)).collect());
    }
    if all(|value| matches!(value, Value::Int(_) | Value::Float(_))) {
        return Values::Number(values.iter().map(|value| value.and_then(crate::columns::numeric)).collect());
    }
    if all(|value| matches!(value, Value::Bool(_))) {
        let truth = |value: &Value| if let Value::Bool(value) = value { Some(*value) } else { None };
        return Values::Truth(values.iter().map(|value| value.and_then(truth)).collect());
    }
    Values::Text(values.iter().map(|value| value.map(ToString::to_string)).collect())
}
