//! The search space inferred from trials: the parameters, and the condition under which objectives ask for each of them.
//! Objectives never declare a space, so it is empty before the first trial.

use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Parameter, Value};
use std::collections::BTreeMap;

/// The largest number of values of a parameter that can be the parent of a condition.
const MOST_CELLS: f64 = 256.0;

/// The search space: all parameters that a study's trials have asked for, in the order of their first trials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    /// The parameters of the space. Parameters with the same first trial are in the order of their names.
    pub dimensions: Vec<Dimension>,
}

/// One parameter of a [`Space`].
#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    /// The parameter's name.
    pub name: String,
    /// The parameter's range in the latest trial.
    pub distribution: Distribution,
    /// The condition under which a trial asks for the parameter, if it depends on another parameter.
    pub condition: Option<Condition>,
    /// The first trial that asked for the parameter; below 0 for a trial of another study.
    first: i64,
    /// The trial from which the range was taken.
    latest: i64,
}

/// The condition on a parent's values under which trials ask for a parameter. Trials must also ask for the parent.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Index of the parent among the dimensions.
    pub parent: usize,
    /// For each of the parent's values, in order, whether trials ask for the parameter.
    pub present: Vec<bool>,
}

impl Dimension {
    /// A parameter without a condition, for which the trial `first` has asked.
    pub(crate) fn new(name: String, distribution: Distribution, first: i64) -> Dimension {
        Dimension { name, distribution, condition: None, first, latest: first }
    }
}

impl Space {
    /// The space inferred from `trials`.
    pub fn infer(trials: &[TrialRecord]) -> Space {
        let mut space = Space::default();
        for trial in trials {
            space.include(trial.number as i64, trial, |_| true);
        }
        let points: Vec<Vec<f64>> =
            trials.iter().filter(|trial| has_asked_all(trial)).map(|trial| space.encode(&trial.parameters)).collect();
        space.infer_conditions(points.iter().map(Vec::as_slice));
        space
    }

    /// Adds those parameters of `trial` that `counts` accepts by name, with the trial's `number`, which is below 0 for a trial of
    /// another study. Returns whether that changes the coordinates of points.
    pub(crate) fn include(&mut self, number: i64, trial: &TrialRecord, counts: impl Fn(&str) -> bool) -> bool {
        let mut changed = false;
        for (name, Parameter { distribution, .. }) in trial.parameters.iter().filter(|(name, _)| counts(name)) {
            match self.dimensions.iter_mut().find(|known| known.name == *name) {
                None => {
                    self.dimensions.push(Dimension::new(name.clone(), distribution.clone(), number));
                    changed = true;
                }
                Some(known) => {
                    changed |= known.first > number;
                    known.first = known.first.min(number);
                    if known.latest < number {
                        known.latest = number;
                        if known.distribution != *distribution {
                            known.distribution = distribution.clone();
                            changed = true;
                        }
                    }
                }
            }
        }
        if changed {
            self.dimensions.iter_mut().for_each(|dimension| dimension.condition = None);
            self.dimensions.sort_by(|a, b| (a.first, &a.name).cmp(&(b.first, &b.name)));
        }
        changed
    }

    /// The point of the unit cube for the values of a trial; NaN for a parameter that the trial did not ask for.
    pub fn encode(&self, parameters: &BTreeMap<String, Parameter>) -> Vec<f64> {
        let coordinate = |dimension: &Dimension| {
            let value = &parameters.get(&dimension.name)?.value;
            dimension.distribution.to_unit(value)
        };
        self.dimensions.iter().map(|dimension| coordinate(dimension).unwrap_or(f64::NAN)).collect()
    }

    /// The values of a point of the unit cube, also those of inactive parameters.
    pub fn decode(&self, point: &[f64]) -> BTreeMap<String, Value> {
        let values = self.dimensions.iter().zip(point);
        values.map(|(dimension, unit)| (dimension.name.clone(), dimension.distribution.from_unit(*unit))).collect()
    }

    /// Whether a trial at `point` is expected to ask for a parameter. Returns true for a parameter whose condition is unknown.
    pub fn is_active(&self, dimension: usize, point: &[f64]) -> bool {
        let Some(Condition { parent, present }) = &self.dimensions[dimension].condition else { return true };
        // Trials ask for a parent strictly more often than for its child, so the recursion ends.
        let cell = self.dimensions[*parent].distribution.cell_at(point[*parent]);
        self.is_active(*parent, point) && present.get(cell).copied().unwrap_or(true)
    }

    /// Indices of all parameters, each after the parameters on which its condition depends.
    pub(crate) fn parents_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.dimensions.len()).collect();
        order.sort_by_key(|index| self.depth(*index));
        order
    }

    /// The number of conditions on which a parameter depends.
    fn depth(&self, dimension: usize) -> usize {
        self.dimensions[dimension].condition.as_ref().map_or(0, |condition| 1 + self.depth(condition.parent))
    }

    /// Infers the condition of each parameter that trials do not always ask for.
    ///
    /// `points` are the points of trials that have asked for all their parameters.
    pub(crate) fn infer_conditions<'a>(&mut self, points: impl Iterator<Item = &'a [f64]> + Clone) {
        for child in 0..self.dimensions.len() {
            let mut candidates: Vec<Condition> = Vec::new();
            if points.clone().any(|point| point[child].is_nan()) && points.clone().any(|point| !point[child].is_nan()) {
                let parents = (0..self.dimensions.len()).filter(|parent| *parent != child);
                candidates.extend(parents.filter_map(|parent| self.condition(child, parent, points.clone())));
            }
            // Prefers choices to numbers, and parents with fewer values, because such conditions are simpler explanations.
            let simplicity = |condition: &Condition| {
                let is_choice = matches!(self.dimensions[condition.parent].distribution, Distribution::Choice { .. });
                (!is_choice, condition.present.len())
            };
            let simplest = candidates.into_iter().min_by_key(simplicity);
            self.dimensions[child].condition = simplest;
        }
    }

    /// The condition of `child` on `parent`, if the parent's value determines at every point whether the trial asks for
    /// the child.
    fn condition<'a>(&self, child: usize, parent: usize, points: impl Iterator<Item = &'a [f64]>) -> Option<Condition> {
        let distribution = &self.dimensions[parent].distribution;
        let cells = distribution.cells().filter(|cells| *cells <= MOST_CELLS)? as usize;
        let mut seen = vec![None; cells];
        for point in points {
            let is_present = !point[child].is_nan();
            if point[parent].is_nan() {
                if is_present {
                    return None;
                }
                continue;
            }
            let slot = &mut seen[distribution.cell_at(point[parent])];
            if *slot.get_or_insert(is_present) != is_present {
                return None;
            }
        }
        // A condition that is always true has no information, and could make a cycle.
        if !seen.contains(&Some(false)) {
            return None;
        }
        let is_choice = matches!(distribution, Distribution::Choice { .. });
        let guess = |index: usize| if is_choice { true } else { nearest_seen(&seen, index) };
        Some(Condition {
            parent,
            present: (0..cells).map(|index| seen[index].unwrap_or_else(|| guess(index))).collect(),
        })
    }
}

/// Whether the trial has progressed so far that it must have asked for all its parameters.
pub fn has_asked_all(trial: &TrialRecord) -> bool {
    matches!(trial.ending, Some(Ending::Finished | Ending::Pruned)) || is_training(trial)
}

/// Whether the trial has reported, has announced its epochs, or waits for more epochs.
pub(crate) fn is_training(trial: &TrialRecord) -> bool {
    !trial.metrics.is_empty() || trial.epochs.is_some() || trial.waited_at().is_some()
}

/// Whether trials asked for the parameter at the parent's nearest tried value.
fn nearest_seen(seen: &[Option<bool>], index: usize) -> bool {
    let tried = seen.iter().enumerate().filter_map(|(other, present)| Some((other.abs_diff(index), (*present)?)));
    tried.min_by_key(|(distance, _)| *distance).is_none_or(|(_, present)| present)
}
