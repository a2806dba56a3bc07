//! A line for each trial through its value and all its parameters, which shows good combinations.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_PARAMETERS, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale, Shades, extent};
use crate::number::significant;
use crate::values::{finished, keeps_constraints};
use ferrotune_tuner::journal::Study;

/// More lines are not readable.
const MOST_LINES: usize = 400;

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
    // Draws the best trials last, on top of the others, and those that break a constraint first.
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
    let mut labels = ends(0, &value_scale);
    labels.extend(axes.iter().enumerate().flat_map(|(index, axis)| ends(index + 1, &axis.axis.scale)));
    let layers = vec![
        Layer { name: String::new(), colour: Colour::Shade, marks: lines },
        Layer { name: String::new(), colour: Colour::Series(0), marks: Marks::Labels(labels) },
    ];
    let names = std::iter::once(metric.to_owned()).chain(names).collect();
    let (x, y) = (Axis::new("", Scale::Names(names)), Axis::new("", Scale::Share));
    let shades = Some(Shades { title: metric.to_owned(), low, high });
    Ok(Chart { title: title(study, "parallel"), panels: vec![Panel { x, y, layers }], shades, note })
}

/// The labels at the lower and the upper end of an axis, and between them those of names.
fn ends(index: usize, scale: &Scale) -> Vec<Point> {
    let label = |y: f64, label: String| Point { x: index as f64, y, shade: 0.0, label };
    match scale {
        Scale::Names(names) => {
            // Above the point where the lines of a name meet.
            let place = |at: usize| scale.position(at as f64) + 0.025;
            names.iter().enumerate().map(|(at, name)| label(place(at), name.clone())).collect()
        }
        scale => {
            let at = |position: f64| significant(scale.value_at(position), 3);
            vec![label(-0.05, at(0.0)), label(1.02, at(1.0))]
        }
    }
}
