//! A line for each trial through its value and all its parameters, which shows good combinations.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_PARAMETERS, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale, Shades, extent};
use crate::number::significant;
use crate::values::{finished, keeps_constraints};
use ferrotune_journal::Study;

/// The largest number of lines that are still readable.
const MOST_LINES: usize = 400;
/// The largest number of names on one axis that do not cover each other.
const MOST_PLATES: usize = 12;

pub(super) fn chart(study: &Study, objective: usize, named: Option<&str>) -> Result<Chart, ResultsError> {
    let mut finished = finished(study, objective)?;
    let names = chosen(study, objective, named, (1, MOST_PARAMETERS))?;
    let (metric, direction) = (metric(study, objective), study.spec.objectives[objective].direction);
    let mut axes: Vec<ParameterAxis> = names.iter().map(|name| ParameterAxis::of(name, &finished)).collect();
    for axis in &mut axes {
        axis.axis.scale = axis.axis.scale.exactly(finished.iter().filter_map(|(trial, _)| axis.coordinate(trial)));
    }
    let values = || finished.iter().map(|(_, value)| *value);
    let ((low, high), value_scale) = (extent(values()), Scale::around(values()).exactly(values()));
    // Draws the best trials last, on top of the others, and trials that break a constraint first.
    finished.sort_by(|one, other| {
        let keeps = |trial| keeps_constraints(study, trial);
        let by_loss = direction.loss(other.1).total_cmp(&direction.loss(one.1));
        keeps(one.0).cmp(&keeps(other.0)).then(by_loss)
    });
    let (drawn, note) = thinned(finished, MOST_LINES);
    let line = |(trial, value): &(&_, f64)| {
        let parameters = axes
            .iter()
            .enumerate()
            .filter_map(|(index, axis)| Some((index as f64 + 1.0, axis.axis.scale.position(axis.coordinate(trial)?))));
        let points = std::iter::once((0.0, value_scale.position(*value))).chain(parameters).collect();
        Line { points, shade: *value, label: label(trial, metric, *value) }
    };
    let lines = Marks::Lines(drawn.iter().map(line).collect());
    let scales = || std::iter::once(&value_scale).chain(axes.iter().map(|axis| &axis.axis.scale)).enumerate();
    let labels = |of: fn(usize, &Scale) -> Vec<Point>| scales().flat_map(|(index, scale)| of(index, scale)).collect();
    let layer = |colour, marks| Layer { name: String::new(), colour, marks };
    let layers = vec![
        layer(Colour::Shade, lines),
        layer(Colour::Ink, Marks::Lines(scales().map(|(index, _)| upright(index)).collect())),
        layer(Colour::Ink, Marks::Labels(labels(ends))),
        layer(Colour::Ink, Marks::Plates(labels(plates))),
    ];
    let names = std::iter::once(metric.to_owned()).chain(names).collect();
    let (x, y) = (Axis::new("", Scale::Names(names)), Axis::new("", Scale::Share));
    let shades = Some(Shades { title: metric.to_owned(), low, high });
    Ok(Chart { title: title(study, "parallel"), panels: vec![Panel { x, y, layers }], shades, note })
}

/// The line that draws an axis.
fn upright(index: usize) -> Line {
    Line { points: vec![(index as f64, 0.0), (index as f64, 1.0)], shade: 0.0, label: String::new() }
}

/// The numbers at the lower and the upper end of an axis, beyond the lines.
fn ends(index: usize, scale: &Scale) -> Vec<Point> {
    if matches!(scale, Scale::Names(_)) {
        return Vec::new();
    }
    let label = |y: f64, at: f64| Point { x: index as f64, y, shade: 0.0, label: significant(scale.value_at(at), 3) };
    vec![label(-0.05, 0.0), label(1.05, 1.0)]
}

/// The names on an axis, at the points where the lines of each name meet; if there are too many, only some.
fn plates(index: usize, scale: &Scale) -> Vec<Point> {
    let Scale::Names(names) = scale else { return Vec::new() };
    let every = names.len().div_ceil(MOST_PLATES).max(1);
    let plate = |(at, name): (usize, &String)| Point {
        x: index as f64,
        y: scale.position(at as f64),
        shade: 0.0,
        label: name.clone(),
    };
    names.iter().enumerate().step_by(every).map(plate).collect()
}
