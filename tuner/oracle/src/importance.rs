//! The importance of parameters: PED-ANOVA in this file, and fANOVA in a module of its own.
//!
//! PED-ANOVA measures how much each parameter decides whether a trial is among the best. Fits no model of the objective.
//!
//! Watanabe et al. (2023), PED-ANOVA, IJCAI, arXiv:2304.10255: a parameter is important if its values in the best tenth
//! of the trials are distributed differently than in all trials. Conditional parameters are weighted by the share of
//! trials that ask for them, as in Conditional PED-ANOVA, arXiv:2601.20800. The results equal Optuna's.

mod density;
pub mod fanova;

use ferrotune_space::Distribution;
use ferrotune_space::record::{State, TrialRecord};

/// The share of the trials that belong to the best.
const TARGET_SHARE: f64 = 0.1;
/// The smallest number of trials with the same range of a parameter that gives a result.
const FEWEST_TRIALS: usize = 2;

/// The importance of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// The parameter.
    pub name: String,
    /// The parameter's share of the importance of all parameters, from 0 to 1.
    pub share: f64,
}

/// Importance of every parameter of the finished trials, the largest first; shares sum to 1.
///
/// `loss` returns a trial's value, where small is good; trials with `None` or a value that is not finite are ignored. A parameter
/// with one value, as with `--fix`, decides nothing, so its share is 0. With equal losses, all other parameters get the same share.
pub fn importance(trials: &[TrialRecord], loss: impl Fn(&TrialRecord) -> Option<f64>) -> Vec<Importance> {
    let region: Vec<(&TrialRecord, f64)> = losses(trials, loss).collect();
    let mut names: Vec<&String> = region.iter().flat_map(|(trial, _)| trial.parameters.keys()).collect();
    names.sort();
    names.dedup();
    let limit = limit_of_the_best(&region);
    let divergences: Vec<(&String, Option<f64>)> = names
        .into_iter()
        .map(|name| (name, has_several_values(name, &region).then(|| divergence(name, &region, limit))))
        .collect();
    let varied = divergences.iter().filter_map(|(_, divergence)| *divergence);
    let (sum, equal) = (varied.clone().sum::<f64>(), 1.0 / varied.count() as f64);
    let share = |divergence: f64| if sum > 0.0 { divergence / sum } else { equal };
    let mut shares: Vec<Importance> = divergences
        .into_iter()
        .map(|(name, divergence)| Importance { name: name.clone(), share: divergence.map_or(0.0, share) })
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    shares
}

/// Whether the trials that ask for a parameter have different values of it.
fn has_several_values(name: &str, region: &[(&TrialRecord, f64)]) -> bool {
    let mut values = region.iter().filter_map(|(trial, _)| trial.parameters.get(name)).map(|known| &known.value);
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// The finished trials with a finite loss.
fn losses(
    trials: &[TrialRecord],
    loss: impl Fn(&TrialRecord) -> Option<f64>,
) -> impl Iterator<Item = (&TrialRecord, f64)> {
    let finished = trials.iter().filter(|trial| trial.state() == State::Finished);
    finished.filter_map(move |trial| Some((trial, loss(trial).filter(|loss| loss.is_finite())?)))
}

/// The largest loss among the best trials.
fn limit_of_the_best(region: &[(&TrialRecord, f64)]) -> f64 {
    let mut losses: Vec<f64> = region.iter().map(|(_, loss)| *loss).collect();
    losses.sort_by(f64::total_cmp);
    let count = (TARGET_SHARE * losses.len() as f64).ceil() as usize;
    losses.get(count.saturating_sub(1)).copied().unwrap_or(f64::NEG_INFINITY)
}

/// Pearson's divergence of a parameter's values in the best trials from those in all trials, summed over the parameter's ranges.
fn divergence(name: &str, region: &[(&TrialRecord, f64)], limit: f64) -> f64 {
    let targets = region.iter().filter(|(_, loss)| *loss <= limit).count() as f64;
    let mut ranges: Vec<(&Distribution, Vec<(f64, bool)>)> = Vec::new();
    for (trial, loss) in region {
        let Some(parameter) = trial.parameters.get(name) else { continue };
        let Some(value) = parameter.distribution.to_internal(&parameter.value) else { continue };
        let entry = (value, *loss <= limit);
        match ranges.iter_mut().find(|(known, _)| **known == parameter.distribution) {
            Some((_, values)) => values.push(entry),
            None => ranges.push((&parameter.distribution, vec![entry])),
        }
    }
    let mut sum = 0.0;
    for (distribution, values) in ranges.iter().filter(|(_, values)| values.len() >= FEWEST_TRIALS) {
        let all: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
        let best: Vec<f64> = values.iter().filter(|(_, is_target)| *is_target).map(|(value, _)| *value).collect();
        if best.is_empty() {
            continue;
        }
        let (Some(above), Some(below)) = (density::on_grid(distribution, &best), density::on_grid(distribution, &all))
        else {
            continue;
        };
        let pearson: f64 = above.iter().zip(&below).map(|(top, local)| local * (top / local - 1.0).powi(2)).sum();
        let (target_share, region_share) = (best.len() as f64 / targets, all.len() as f64 / region.len() as f64);
        sum += target_share * target_share / region_share * pearson;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::record::Ending;
    use ferrotune_space::{Parameter, Scale, Value};

    /// The trials that `tests/golden/importance.py` uses.
    fn trials() -> Vec<TrialRecord> {
        let unit = |k: u64, root: f64| ((k + 1) as f64 * root.sqrt()).fract();
        let trial = |k: u64| {
            let (x, lr) = (-5.0 + 10.0 * unit(k, 2.0), (1e-4_f64.ln() * (1.0 - unit(k, 3.0))).exp());
            let (units, depth) = (16 + 16 * (unit(k, 5.0) * 8.0) as i64, 1 + (unit(k, 7.0) * 30.0) as i64);
            let kind = ["a", "b", "c"][(unit(k, 11.0) * 3.0) as usize];
            let drop = ((unit(k, 13.0) * 6.0) as u64 as f64) / 10.0;
            let offset = match kind {
                "a" => 1.0,
                "b" => 4.0 * drop,
                _ => 5.0,
            };
            let value = x * x / 4.0
                + (lr.ln() + 4.0).powi(2) / 2.0
                + (units as f64 - 64.0).abs() / 64.0
                + depth as f64 / 30.0
                + offset;
            let text = |text: &str| Value::Text(text.to_owned());
            let mut parameters = vec![
                ("x", Distribution::Float { low: -5.0, high: 5.0, step: None, scale: Scale::Linear }, Value::Float(x)),
                ("lr", Distribution::Float { low: 1e-4, high: 1.0, step: None, scale: Scale::Log }, Value::Float(lr)),
                ("units", Distribution::Int { low: 16, high: 128, step: 16, scale: Scale::Linear }, Value::Int(units)),
                ("depth", Distribution::Int { low: 1, high: 30, step: 1, scale: Scale::Log }, Value::Int(depth)),
                (
                    "kind",
                    Distribution::Choice { values: ["a", "b", "c"].map(text).into(), is_ordered: false },
                    text(kind),
                ),
            ];
            if kind == "b" {
                let drops = Distribution::Float { low: 0.0, high: 0.5, step: Some(0.1), scale: Scale::Linear };
                parameters.push(("drop", drops, Value::Float(drop)));
            }
            let parameters = parameters
                .into_iter()
                .map(|(name, distribution, value)| (name.to_owned(), Parameter { distribution, value }));
            let (value, ending) = (Some(value), Some(Ending::Finished));
            TrialRecord {
                parameters: parameters.collect(),
                values: value.into_iter().collect(),
                ending,
                ..TrialRecord::new(k)
            }
        };
        (0..120).map(trial).collect()
    }

    /// Golden numbers from `tests/golden/importance.py`.
    #[test]
    fn shares_are_those_of_optuna() {
        let ours = importance(&trials(), TrialRecord::value);
        for ((name, share), ours) in GOLDEN.iter().zip(&ours) {
            assert_eq!(ours.name, *name);
            assert!((ours.share - share).abs() < 1e-9, "{name}: {} for {share}", ours.share);
        }
        assert_eq!(ours.len(), GOLDEN.len());
    }

    const GOLDEN: [(&str, f64); 6] = [
        ("lr", 0.482_210_133_533_698_35),
        ("x", 0.306_837_491_638_871),
        ("kind", 0.146_356_947_710_713_25),
        ("depth", 0.036_957_972_444_873_845),
        ("units", 0.019_532_515_193_496_6),
        ("drop", 0.008_104_939_478_346_864),
    ];

    #[test]
    fn failed_trials_and_values_that_are_no_number_do_not_count() {
        let mut trials = trials();
        let clean = importance(&trials, TrialRecord::value);
        let broken = TrialRecord { ending: Some(Ending::Failed { reason: "x".into() }), ..trials[3].clone() };
        let infinite = TrialRecord { values: vec![f64::INFINITY], ..trials[4].clone() };
        trials.extend([broken, infinite]);
        assert_eq!(importance(&trials, TrialRecord::value), clean);
    }

    #[test]
    fn parameter_with_one_value_has_no_share() {
        let mut trials = trials();
        trials.iter_mut().for_each(|trial| {
            trial.parameters.retain(|name, _| name == "x" || name == "depth");
            trial.parameters.get_mut("depth").expect("depth").value = Value::Int(7);
        });
        let of = |trials: &[TrialRecord], loss: fn(&TrialRecord) -> Option<f64>| {
            let shares = importance(trials, loss);
            shares.into_iter().map(|Importance { name, share }| (name, share)).collect::<Vec<_>>()
        };
        let alone = vec![("x".to_owned(), 1.0), ("depth".to_owned(), 0.0)];
        assert_eq!(of(&trials, TrialRecord::value), alone);
        assert_eq!(of(&trials, |_| Some(1.0)), alone);
    }

    #[test]
    fn parameters_share_alike_where_nothing_can_be_told() {
        let shares = |trials: &[TrialRecord]| {
            importance(trials, |_| Some(1.0)).iter().map(|importance| importance.share).collect::<Vec<_>>()
        };
        assert!(shares(&trials()[..1]).iter().all(|share| *share == 0.0), "each parameter has one value");
        assert_eq!(shares(&trials()), [1.0 / 6.0; 6]);
        assert!(shares(&[]).is_empty());
    }
}
