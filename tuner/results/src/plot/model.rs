//! What the search's model expects of each parameter, if the others have the values of the best point, and the next trial's values.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_PARAMETERS, metric, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale, extent};
use crate::values::finished;
use ferrotune_journal::Study;
use ferrotune_oracle::{Belief, Expected, Slice, belief};
use ferrotune_space::objective::Direction;

pub(super) fn chart(study: &Study, named: Option<&str>) -> Result<Chart, ResultsError> {
    let too_little = |need| ResultsError::TooLittle { study: study.spec.project.clone(), need };
    if study.spec.objectives.len() > 1 {
        return Err(too_little("a single objective; %plot pareto shows how several go together"));
    }
    let finished = finished(study, 0)?;
    let names = chosen(study, 0, named, (1, MOST_PARAMETERS))?;
    let Belief { slices, next } = belief(&study.spec, &study.trials)?;
    let shown: Vec<&Slice> =
        names.iter().filter_map(|name| slices.iter().find(|slice| slice.parameter == *name)).collect();
    if shown.is_empty() {
        return Err(too_little("three finished trials, and a parameter that the best of them has"));
    }
    let direction = study.spec.objectives[0].direction;
    // A bound on the bad side may be far from every value, and would flatten the rest.
    let expected = || shown.iter().flat_map(|slice| &slice.points);
    let promising = |point: &Expected| if direction == Direction::Min { point.low } else { point.high };
    let values = finished.iter().map(|(_, value)| *value);
    let (low, high) = extent(values.chain(expected().flat_map(|point| [point.median, promising(point)])));
    let is_cut = expected().any(|point| point.low < low || point.high > high);
    let metric = metric(study, 0);
    let panels = shown.iter().map(|slice| {
        let axis = ParameterAxis::over(
            &slice.parameter,
            slice.points.iter().map(|point| (&slice.distribution, &point.value)).collect(),
        );
        let trial = next.get(&slice.parameter).and_then(|value| Some((axis.position(value)?, value)));
        let next = trial.map(|(x, value)| Line {
            points: vec![(x, low), (x, high)],
            shade: 0.0,
            label: format!("the next trial has {} = {value}", slice.parameter),
        });
        let mut layers = layers(slice, &axis, metric, (low, high));
        layers.extend(next.map(|line| Layer {
            name: "next trial".to_owned(),
            colour: Colour::Series(3),
            marks: Marks::Lines(vec![line]),
        }));
        Panel { x: axis.axis, y: Axis::new(metric, Scale::around([low, high])), layers }
    });
    let panels = panels.collect();
    let cut = if is_cut { "; bounds beyond all trials are cut" } else { "" };
    let note = format!("the other parameters have the values where the model expects the best {metric}{cut}");
    Ok(Chart { title: title(study, "model"), panels, shades: None, note: Some(note) })
}

/// The expected values and their bounds: lines along numbers, and a bar for each choice.
fn layers(slice: &Slice, axis: &ParameterAxis, metric: &str, (low, high): (f64, f64)) -> Vec<Layer> {
    let at = |point: &Expected, y: f64| Some((axis.position(&point.value)?, y.clamp(low, high)));
    let label = |point: &Expected| {
        let [median, low, high] = [point.median, point.low, point.high].map(crate::number);
        format!("{} = {}: {metric} {median} ({low} to {high})", slice.parameter, point.value)
    };
    let along = |y: fn(&Expected) -> f64, label: &str| Line {
        points: slice.points.iter().filter_map(|point| at(point, y(point))).collect(),
        shade: 0.0,
        label: label.to_owned(),
    };
    let across = |point: &Expected| Line {
        points: [point.low, point.high].into_iter().filter_map(|y| at(point, y)).collect(),
        shade: 0.0,
        label: label(point),
    };
    let bounds = if axis.has_names() {
        slice.points.iter().map(across).collect()
    } else {
        vec![along(|point| point.low, "lower bound"), along(|point| point.high, "upper bound")]
    };
    let median = |point: &Expected| {
        let (x, y) = at(point, point.median)?;
        Some(Point { x, y, shade: 0.0, label: label(point) })
    };
    let medians = if axis.has_names() {
        Marks::Points(slice.points.iter().filter_map(median).collect())
    } else {
        Marks::Lines(vec![along(|point| point.median, "expected")])
    };
    vec![
        Layer { name: "95 % bounds, without noise".to_owned(), colour: Colour::Series(1), marks: Marks::Lines(bounds) },
        Layer { name: "expected".to_owned(), colour: Colour::Series(0), marks: medians },
    ]
}
