//! The importance of each parameter: by PED-ANOVA, or by fANOVA as shares of the variance, with pairs of parameters.

use super::{importances, metric, parameter, title};
use crate::ResultsError;
use crate::chart::{Axis, Bar, Chart, Colour, Layer, Marks, Panel, Scale};
use crate::values::{finished, finished_value};
use ferrotune_journal::Study;
use ferrotune_oracle::importance::fanova::{Fanova, fanova};

/// The smallest share of the variance of a pair that is drawn; with a hundred trials a smaller share may be due to chance.
const LEAST_SHARE: f64 = 0.05;

/// The method that measures importance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evaluator {
    /// PED-ANOVA: the difference between the values of the best trials and those of all trials.
    #[default]
    PedAnova,
    /// fANOVA: the shares of a model's variance.
    Fanova,
}

impl Evaluator {
    const ALL: [(&str, Evaluator); 2] = [("ped_anova", Evaluator::PedAnova), ("fanova", Evaluator::Fanova)];

    /// The evaluator of this name.
    pub fn named(name: &str) -> Result<Evaluator, ResultsError> {
        let known = Evaluator::ALL.iter().find(|(known, _)| *known == name).map(|(_, evaluator)| *evaluator);
        known.ok_or_else(|| ResultsError::UnknownEvaluator {
            name: name.to_owned(),
            evaluators: Evaluator::ALL.map(|(known, _)| known).join(", "),
        })
    }
}

pub(super) fn chart(
    study: &Study,
    objective: usize,
    named: Option<&str>,
    evaluator: Evaluator,
) -> Result<Chart, ResultsError> {
    finished(study, objective)?;
    let names = named.map(|_| parameter::chosen(study, objective, named, (1, usize::MAX))).transpose()?;
    let is_chosen = |name: &String| names.as_ref().is_none_or(|names| names.contains(name));
    let (rows, what, note) = match evaluator {
        Evaluator::PedAnova => {
            let shares = importances(study, objective).into_iter().filter(|importance| is_chosen(&importance.name));
            (shares.map(|importance| (importance.name, importance.share)).collect(), "importance", None)
        }
        Evaluator::Fanova => {
            let (rows, note) = of_variance(study, objective, is_chosen);
            (rows, "variance", note)
        }
    };
    Ok(bars(study, rows, &format!("share of the {what} for {}", metric(study, objective)), note))
}

/// The shares of the variance of parameters and of pairs, the largest first, and a note about omitted parameters.
fn of_variance(
    study: &Study,
    objective: usize,
    is_chosen: impl Fn(&String) -> bool,
) -> (Vec<(String, f64)>, Option<String>) {
    let direction = study.spec.objectives[objective].direction;
    let loss = |trial: &_| finished_value(trial, objective).map(|value| direction.loss(value));
    let Fanova { shares, pairs, left_out } = fanova(&study.trials, loss);
    let shares = shares.into_iter().filter(|importance| is_chosen(&importance.name));
    let mut rows: Vec<(String, f64)> = shares.map(|importance| (importance.name, importance.share)).collect();
    let pairs = pairs.into_iter().filter(|(names, share)| *share >= LEAST_SHARE && names.iter().all(&is_chosen));
    rows.extend(pairs.map(|(names, share)| (names.join(" × "), share)));
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let left_out: Vec<String> = left_out.into_iter().filter(is_chosen).collect();
    let note = (!left_out.is_empty()).then(|| format!("not every trial asks for {}", left_out.join(", ")));
    (rows, note)
}

/// A chart with a bar for each name.
fn bars(study: &Study, rows: Vec<(String, f64)>, axis: &str, note: Option<String>) -> Chart {
    let bar =
        |(row, (_, share)): (usize, &(String, f64))| Bar { from: 0.0, to: *share, row, label: format!("{share:.3}") };
    let marks = Marks::Bars(rows.iter().enumerate().map(bar).collect());
    let layers = vec![Layer { name: String::new(), colour: Colour::Series(0), marks }];
    let largest = rows.first().map_or(1.0, |(_, share)| *share);
    let x = Axis::new(axis, Scale::Linear { low: 0.0, high: (largest * 1.05).max(1e-3) });
    let y = Axis::new("", Scale::Names(rows.into_iter().map(|(name, _)| name).collect()));
    Chart { title: title(study, "importance"), panels: vec![Panel { x, y, layers }], note, ..Chart::default() }
}
