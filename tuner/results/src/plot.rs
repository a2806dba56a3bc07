//! `%plot`: the same plots as Optuna's, and one of the search's model. Each plot is a [`Chart`], which other modules draw.

mod contour;
mod edf;
mod history;
mod hypervolume;
mod importance;
mod intermediate;
mod model;
mod parallel;
mod parameter;
mod pareto;
mod rank;
mod slice;
mod terminator;
mod timeline;

pub use importance::Evaluator;

use crate::ResultsError;
use crate::chart::Chart;
use crate::values::objective_index;
use ferrotune_journal::Study;
use ferrotune_oracle::importance::{Importance, importance as ped_anova};
use ferrotune_space::record::TrialRecord;

/// The number of the most important parameters that a plot shows, unless the user names parameters.
const MOST_PARAMETERS: usize = 9;
/// The largest number of marks, which front ends draw quickly and which fits into one message.
const MOST_MARKS: usize = 2_000;

/// The kind of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plot {
    /// Each trial's value, and the best value so far.
    History,
    /// A line through all parameters for each trial.
    Parallel,
    /// The objective's value over each parameter.
    Slice,
    /// The objective's value over pairs of parameters.
    Contour,
    /// The importance of each parameter.
    Importance,
    /// The reports of trials, step by step.
    Intermediate,
    /// One objective against another.
    Pareto,
    /// The share of trials whose value is at most each value: the empirical distribution function.
    Edf,
    /// The time at which each trial ran.
    Timeline,
    /// The trials over pairs of parameters, by the rank of their values.
    Rank,
    /// The volume that the Pareto front so far dominates.
    Hypervolume,
    /// The bound on the improvement that is still possible, and the terminator's threshold.
    Terminator,
    /// What the search's model expects of each parameter, and the next trial's values.
    Model,
}

/// The objective and the parameters of a plot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Focus<'a> {
    /// Names of parameters, separated by commas; the most important parameters if it is `None`.
    pub parameters: Option<&'a str>,
    /// The metric of an objective, or for [`Plot::Intermediate`] any metric; the first objective if it is `None`.
    pub objective: Option<&'a str>,
    /// The name of the evaluator of [`Plot::Importance`]; other plots have no evaluator.
    pub evaluator: Option<&'a str>,
}

impl Plot {
    /// All plots, by name.
    const ALL: [(&str, Plot); 13] = [
        ("history", Plot::History),
        ("parallel", Plot::Parallel),
        ("slice", Plot::Slice),
        ("contour", Plot::Contour),
        ("importance", Plot::Importance),
        ("intermediate", Plot::Intermediate),
        ("pareto", Plot::Pareto),
        ("edf", Plot::Edf),
        ("timeline", Plot::Timeline),
        ("rank", Plot::Rank),
        ("hypervolume", Plot::Hypervolume),
        ("terminator", Plot::Terminator),
        ("model", Plot::Model),
    ];

    /// Names of the plots.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Plot::ALL.iter().map(|(name, _)| *name)
    }

    /// The plot of this name.
    ///
    /// ```
    /// use ferrotune_results::plot::Plot;
    /// assert_eq!(Plot::named("edf")?, Plot::Edf);
    /// assert!(Plot::named("pie").is_err());
    /// # Ok::<(), ferrotune_results::ResultsError>(())
    /// ```
    pub fn named(name: &str) -> Result<Plot, ResultsError> {
        let known = Plot::ALL.iter().find(|(known, _)| *known == name).map(|(_, plot)| *plot);
        known.ok_or_else(|| ResultsError::UnknownPlot {
            name: name.to_owned(),
            plots: Plot::ALL.map(|(known, _)| known).join(", "),
        })
    }

    /// All plots for which the study has enough trials.
    pub fn all_of(study: &Study) -> Vec<Chart> {
        Plot::ALL.iter().filter_map(|(_, plot)| plot.of(study, Focus::default()).ok()).collect()
    }

    /// Plots the study. Fails if a parameter or an objective is unknown, or if the study has too few trials.
    pub fn of(self, study: &Study, focus: Focus<'_>) -> Result<Chart, ResultsError> {
        let objective = || objective_index(study, focus.objective);
        if self != Plot::Importance && focus.evaluator.is_some() {
            return Err(ResultsError::NoEvaluator);
        }
        match self {
            Plot::History => history::chart(study, objective()?),
            Plot::Parallel => parallel::chart(study, objective()?, focus.parameters),
            Plot::Slice => slice::chart(study, objective()?, focus.parameters),
            Plot::Contour => contour::chart(study, objective()?, focus.parameters),
            Plot::Importance => {
                let evaluator = focus.evaluator.map(Evaluator::named).transpose()?.unwrap_or_default();
                importance::chart(study, objective()?, focus.parameters, evaluator)
            }
            Plot::Intermediate => intermediate::chart(study, focus.objective),
            Plot::Pareto => pareto::chart(study),
            Plot::Edf => edf::chart(study, objective()?),
            Plot::Timeline => timeline::chart(study),
            Plot::Rank => rank::chart(study, objective()?, focus.parameters),
            Plot::Hypervolume => hypervolume::chart(study),
            Plot::Terminator => terminator::chart(study),
            Plot::Model => model::chart(study, focus.parameters),
        }
    }
}

/// The importance of each parameter for an objective, the most important first.
fn importances(study: &Study, objective: usize) -> Vec<Importance> {
    let direction = study.spec.objectives[objective].direction;
    ped_anova(&study.trials, |trial| crate::values::finished_value(trial, objective).map(|value| direction.loss(value)))
}

/// The metric of an objective.
fn metric(study: &Study, objective: usize) -> &str {
    &study.spec.objectives[objective].metric
}

/// A title that names the kind of plot and the study.
fn title(study: &Study, what: &str) -> String {
    format!("{what}: {}", study.spec.project)
}

/// The tooltip of a trial's mark.
fn label(trial: &TrialRecord, metric: &str, value: f64) -> String {
    let parameters = trial.parameters.iter().map(|(name, parameter)| format!("{name}={}", parameter.value));
    let mut parameters: Vec<String> = parameters.collect();
    if parameters.len() > MOST_PARAMETERS {
        parameters.truncate(MOST_PARAMETERS);
        parameters.push("…".to_owned());
    }
    format!("trial {}: {metric} = {} ({})", trial.number, crate::number(value), parameters.join(", "))
}

/// At most `most` of the items, evenly spread and including the last one; and a note if some are omitted.
fn thinned<T>(items: Vec<T>, most: usize) -> (Vec<T>, Option<String>) {
    let all = items.len();
    if all <= most {
        return (items, None);
    }
    let is_kept = |index: usize| (index + 1) * most / all > index * most / all;
    let kept: Vec<T> =
        items.into_iter().enumerate().filter(|(index, _)| is_kept(*index)).map(|(_, item)| item).collect();
    let note = format!("{} of {all} trials are drawn", kept.len());
    (kept, Some(note))
}

/// Joins two notes into one.
fn joined(one: Option<String>, other: Option<String>) -> Option<String> {
    [one, other].into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
}

#[cfg(test)]
mod tests {
    use super::thinned;

    #[test]
    fn what_is_left_out_is_spread_evenly_and_told() {
        let (kept, note) = thinned((0..10).collect(), 4);
        assert_eq!((kept, note.as_deref()), (vec![2, 4, 7, 9], Some("4 of 10 trials are drawn")));
        assert_eq!(thinned(vec![1, 2], 2), (vec![1, 2], None));
    }
}
