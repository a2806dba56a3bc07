//! A study for the tests: conditional parameters, every kind of ending, reported metrics, and the same on every machine.

use chrono::{DateTime, TimeDelta, Utc};
use ferrotune_journal::{Study, Times};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;

/// A fraction that looks random but is fixed for each trial.
fn share(trial: u64, root: f64) -> f64 {
    ((trial + 1) as f64 * root.sqrt()).fract()
}

/// A study with this number of trials: it maximises `accuracy` over `lr` on a logarithmic scale, `kind`, and `drop` for one kind.
pub(crate) fn study(trials: u64) -> Study {
    let started =
        |number: u64| DateTime::<Utc>::UNIX_EPOCH + TimeDelta::milliseconds(1_700_000_000_000 + 9_000 * number as i64);
    let records: Vec<TrialRecord> = (0..trials).map(trial).collect();
    let times = records.iter().map(|trial| Times {
        started: Some(started(trial.number)),
        ended: trial
            .ending
            .as_ref()
            .map(|_| started(trial.number) + TimeDelta::milliseconds((trial.seconds * 1e3) as i64)),
    });
    let defaults = BTreeMap::from([("units".to_owned(), Value::Int(64))]);
    Study { times: times.collect(), spec: spec(), trials: records, defaults }
}

fn trial(number: u64) -> TrialRecord {
    let lr = 1e-4 * 1e3_f64.powf(share(number, 2.0));
    let units = 16 + 16 * (share(number, 5.0) * 8.0) as i64;
    let kind = ["plain", "wide"][(share(number, 3.0) * 2.0) as usize];
    let drop = (share(number, 7.0) * 6.0).floor() / 10.0;
    let mut parameters = vec![
        ("lr", Distribution::Float { low: 1e-4, high: 0.1, step: None, scale: Scale::Log }, Value::Float(lr)),
        ("units", Distribution::Int { low: 16, high: 128, step: 16, scale: Scale::Linear }, Value::Int(units)),
        (
            "kind",
            Distribution::Choice {
                values: ["plain", "wide"].map(|kind| Value::Text(kind.into())).into(),
                is_ordered: false,
            },
            Value::Text(kind.into()),
        ),
    ];
    if kind == "wide" {
        parameters.push((
            "drop",
            Distribution::Float { low: 0.0, high: 0.5, step: Some(0.1), scale: Scale::Linear },
            Value::Float(drop),
        ));
    }
    let parameters = parameters
        .into_iter()
        .map(|(name, distribution, value)| (name.to_owned(), Parameter { distribution, value }))
        .collect();
    let accuracy = 0.95 - 0.04 * (lr.log10() + 2.5).powi(2) - (units - 96).pow(2) as f64 / 1e5;
    let ending = match number % 10 {
        4 => Ending::Pruned,
        7 => Ending::Panicked { message: "boom <b>".to_owned() },
        _ => Ending::Finished,
    };
    let steps = if ending == Ending::Pruned { 2 } else { 5 };
    let at = |step: u64| accuracy * (1.0 - 0.5_f64.powi(step as i32 + 2));
    let metrics = (0..steps).map(|step| (step, metrics(at(step)))).collect();
    let values = (ending == Ending::Finished).then(|| at(steps - 1)).into_iter().collect();
    TrialRecord {
        parameters,
        metrics,
        values,
        checkpoint: number.is_multiple_of(3).then(|| "checkpoint-000004.safetensors".to_owned()),
        peak_bytes: (50 + number) << 20,
        seconds: 4.0 + 8.0 * share(number, 11.0),
        epochs: Some(5),
        ending: Some(ending),
        ..TrialRecord::new(number)
    }
}

fn metrics(accuracy: f64) -> BTreeMap<String, Option<f64>> {
    BTreeMap::from([("accuracy".to_owned(), Some(accuracy)), ("loss".to_owned(), Some(1.0 - accuracy))])
}

fn spec() -> StudySpec {
    let objectives = vec![Objective::new("accuracy", Direction::Max)];
    StudySpec { max_trials: 40, seed: Some(1), ..StudySpec::new("digits", objectives) }
}

/// The same study with a second objective, `size`, which is minimised.
pub(crate) fn two_objectives(trials: u64) -> Study {
    let mut study = study(trials);
    study.spec.objectives.push(Objective::new("size", Direction::Min));
    for trial in study.trials.iter_mut().filter(|trial| !trial.values.is_empty()) {
        let units = trial.parameters.get("units").map(|parameter| parameter.value.clone());
        trial.values.extend(units.map(|units| if let Value::Int(units) = units { units as f64 } else { 0.0 }));
    }
    study
}
