//! The columns of a trial by name: numbers, parameters, metrics, and its ending.

use crate::values::{ending, metric_names, parameter_names, state_name};
use crate::{ResultsError, number};
use chrono::{DateTime, Utc};
use ferrotune_journal::{Study, Times};
use ferrotune_machine::format;
use ferrotune_space::Value;
use ferrotune_space::record::TrialRecord;
use std::collections::BTreeSet;

/// A column of the table of trials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    /// The trial's value for an objective.
    Objective(usize),
    Parameter(String),
    /// The last value of another metric.
    Metric(String),
    Trial,
    State,
    Seconds,
    PeakMemory,
    Epochs,
    Started,
    Ended,
    Ending,
    Device,
}

/// The columns that every study has, by name.
const FIXED: [(&str, Column); 9] = [
    ("trial", Column::Trial),
    ("state", Column::State),
    ("seconds", Column::Seconds),
    ("peak memory", Column::PeakMemory),
    ("epochs", Column::Epochs),
    ("started", Column::Started),
    ("ended", Column::Ended),
    ("ending", Column::Ending),
    ("device", Column::Device),
];

/// The cell of a trial in a column. An empty text means an empty cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) number: Option<f64>,
}

impl Column {
    /// The column of this name. The prefixes in `param.NAME`, `metric.NAME` and `trial.NAME` select one of several columns with the same
    /// name, such as a parameter `state` and the state of the trial. Without a prefix such a name is an error.
    pub(crate) fn named(study: &Study, name: &str) -> Result<Column, ResultsError> {
        match Column::all_named(study, name).as_slice() {
            [column] => return Ok(column.clone()),
            [] => {}
            several => {
                let columns: Vec<String> = several.iter().map(|column| format!("{}.{name}", column.kind())).collect();
                return Err(ResultsError::SeveralColumns { name: name.to_owned(), columns: columns.join(" or ") });
            }
        }
        let of_kind = |(kind, name): (&str, &str)| {
            Column::all_named(study, name).into_iter().find(|column| column.kind() == kind)
        };
        name.split_once('.').and_then(of_kind).ok_or_else(|| {
            let objectives = study.spec.objectives.iter().map(|objective| objective.metric.as_str());
            let known = FIXED.iter().map(|(known, _)| *known);
            let columns: Vec<&str> = objectives.chain(parameter_names(&study.trials)).chain(known).collect();
            ResultsError::UnknownColumn { name: name.to_owned(), columns: columns.join(", ") }
        })
    }

    /// All columns of this name, at most one of each kind. An objective is the column of its metric.
    fn all_named(study: &Study, name: &str) -> Vec<Column> {
        let objective = study.spec.objectives.iter().position(|objective| objective.metric == name);
        let metric = || metric_names(study).contains(name).then(|| Column::Metric(name.to_owned()));
        let parameter = parameter_names(&study.trials).contains(name).then(|| Column::Parameter(name.to_owned()));
        let fixed = FIXED.iter().find(|(known, _)| *known == name).map(|(_, column)| column.clone());
        let value = objective.map(Column::Objective).or_else(metric);
        [value, parameter, fixed].into_iter().flatten().collect()
    }

    /// The prefix of the column's name, which is needed if several columns have that name.
    fn kind(&self) -> &'static str {
        match self {
            Column::Objective(_) | Column::Metric(_) => "metric",
            Column::Parameter(_) => "param",
            _ => "trial",
        }
    }

    /// The columns of a table of these trials.
    pub(crate) fn usual<'a>(study: &Study, trials: impl IntoIterator<Item = &'a TrialRecord>) -> Vec<Column> {
        let trials: Vec<&TrialRecord> = trials.into_iter().collect();
        let mut columns = vec![Column::Trial];
        columns.extend((0..study.spec.objectives.len()).map(Column::Objective));
        columns
            .extend(parameter_names(trials.iter().copied()).into_iter().map(|name| Column::Parameter(name.to_owned())));
        // The epochs are shown if trials train for different numbers of epochs, as under Hyperband or a pruner.
        let epochs: BTreeSet<u64> = trials.iter().map(|trial| trial.epochs_done()).filter(|done| *done > 0).collect();
        columns.extend((epochs.len() > 1).then_some(Column::Epochs));
        columns.extend([Column::Seconds, Column::PeakMemory, Column::Ending]);
        columns
    }

    pub(crate) fn name<'a>(&'a self, study: &'a Study) -> &'a str {
        match self {
            Column::Objective(index) => &study.spec.objectives[*index].metric,
            Column::Parameter(name) | Column::Metric(name) => name,
            fixed => FIXED.iter().find(|(_, column)| column == fixed).map_or("", |(name, _)| name),
        }
    }

    /// The cell of the trial in this column.
    pub(crate) fn cell(&self, study: &Study, trial: &TrialRecord) -> Cell {
        match self {
            Column::Objective(index) => match trial.values.get(*index) {
                Some(value) => Cell::number(Some(*value)),
                None if trial.ending.is_none() => Cell::so_far(trial.summary(&study.spec.objectives[*index])),
                None => Cell::default(),
            },
            Column::Parameter(name) => trial.parameters.get(name).map_or_else(Cell::default, |parameter| Cell {
                text: parameter.value.to_string(),
                number: numeric(&parameter.value),
            }),
            Column::Metric(name) => Cell::number(trial.last_reported(name)),
            Column::Trial => Cell { text: trial.number.to_string(), number: Some(trial.number as f64) },
            Column::State => Cell::text(state_name(trial.state()).to_owned()),
            // The run time of a trial is known only when its worker ends.
            Column::Seconds if trial.ending.is_none() && trial.seconds == 0.0 => Cell::default(),
            Column::Seconds => Cell { text: seconds(trial.seconds), number: Some(trial.seconds) },
            Column::PeakMemory => Cell { text: format::bytes(trial.peak_bytes), number: Some(trial.peak_bytes as f64) },
            Column::Epochs => Cell::number(Some(trial.epochs_done() as f64)),
            Column::Started => Cell::time(times(study, trial).started),
            Column::Ended => Cell::time(times(study, trial).ended),
            Column::Ending => Cell::text(ending(trial)),
            // The record of a trial on the CPU has no device.
            Column::Device => Cell::text(
                trial.device.as_ref().map_or_else(|| study.spec.device.clone(), |device| device.name.clone()),
            ),
        }
    }
}

impl Cell {
    fn text(text: String) -> Cell {
        Cell { text, number: None }
    }

    fn number(value: Option<f64>) -> Cell {
        Cell { text: value.map_or_else(String::new, number), number: value }
    }

    /// The cell with the value of a trial that has not ended.
    fn so_far(value: Option<f64>) -> Cell {
        Cell { text: value.map_or_else(String::new, |value| format!("{} so far", number(value))), number: value }
    }

    fn time(time: Option<DateTime<Utc>>) -> Cell {
        let text = time.map_or_else(String::new, |time| time.format("%Y-%m-%d %H:%M:%S").to_string());
        Cell { text, number: time.map(|time| time.timestamp_micros() as f64 / 1e6) }
    }
}

/// A number of seconds; a small number has more digits.
fn seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 10.0 => format!("{seconds:.1}"),
        _ if seconds >= 0.1 => format!("{seconds:.2}"),
        _ => format!("{seconds:.4}"),
    }
}

/// The times at which the trial began and ended.
pub(crate) fn times(study: &Study, trial: &TrialRecord) -> Times {
    usize::try_from(trial.number).ok().and_then(|index| study.times.get(index)).copied().unwrap_or_default()
}

/// A parameter's value as a number, if it is one.
pub(crate) fn numeric(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}
