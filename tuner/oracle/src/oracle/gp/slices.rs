//! What a Gaussian process expects of each parameter: slices of the space through the point where it expects the lowest loss.

use super::evidence::Evidence;
use super::kernel::embed;
use super::model::Prediction;
use super::{Gp, View};
use crate::oracle::history::History;
use crate::oracle::random::generator;
use ferrotune_space::{Distribution, Value};

/// The number of points of a slice along a range without a lattice, or with a fine one.
const POINTS: usize = 49;
/// The distance of the bounds from the expected value, in standard deviations: 95 of 100 values lie between them.
const BOUNDS: f64 = 1.96;

/// What the model expects of one parameter, if all others have the values of the best point.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The parameter's name.
    pub parameter: String,
    /// The parameter's range.
    pub distribution: Distribution,
    /// The expectations, in the order of the parameter's values.
    pub points: Vec<Expected>,
}

/// What the model expects of one value of a parameter. The numbers are in the unit of the objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The parameter's value.
    pub value: Value,
    /// The value of the objective that is as probably exceeded as not, without noise.
    pub median: f64,
    /// The lower of the two bounds between which the objective is with a probability of 95 %, without noise.
    pub low: f64,
    /// The upper of these bounds.
    pub high: f64,
}

/// The slices of a model of the finished trials, along each parameter that the best point has; empty before enough trials have finished.
pub(in crate::oracle) fn slices(history: &History) -> Vec<Slice> {
    let dimensions = history.space.dimensions.len();
    let mut rng = generator(history.settings.seed, 0, "slices");
    let evidence = Evidence::of(history, history.own(), &mut rng);
    if dimensions == 0 || !evidence.is_enough() || evidence.is_of_excesses {
        return Vec::new();
    }
    let view = View::of(&evidence, &[], false, &Gp::default().prior(&evidence), &[], &mut rng);
    let is_best = |point: &&Vec<f64>| view.good.first() == Some(*point);
    let embedded = |point: &[f64]| embed(&evidence.axes, &history.space, point);
    let best = history.own().iter().map(|row| &row.point).find(|point| is_best(&&embedded(point)));
    let Some(best) = best else { return Vec::new() };
    let direction = history.settings.objective().direction;
    let expected = |index: usize, unit: f64| {
        let mut point = best.clone();
        point[index] = unit;
        let Prediction { mean, deviation } = view.promise.expectation.predict(&embedded(&point));
        // A loss is the objective's value with another sign, or the value itself.
        let at = |bound: f64| direction.loss(view.scaling.restore(mean + bound * deviation));
        let ends = [at(-BOUNDS), at(BOUNDS)];
        Expected {
            value: history.space.dimensions[index].distribution.from_unit(unit),
            median: at(0.0),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
        }
    };
    let units = |index: usize| {
        let levels = history.space.dimensions[index].distribution.levels(POINTS);
        levels.unwrap_or_else(|| (0..POINTS).map(|point| point as f64 / (POINTS - 1) as f64).collect())
    };
    let is_asked = |index: &usize| !best[*index].is_nan();
    let slice = |index: usize| Slice {
        parameter: history.space.dimensions[index].name.clone(),
        distribution: history.space.dimensions[index].distribution.clone(),
        points: units(index).into_iter().map(|unit| expected(index, unit)).collect(),
    };
    (0..dimensions).filter(is_asked).map(slice).collect()
}
