//! The value over each parameter; later trials are more orange, which shows how the search moved.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_MARKS, MOST_PARAMETERS, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Marks, Panel, Point, Scale, Shades};
use crate::values::finished;
use ferrotune_journal::Study;

pub(super) fn chart(study: &Study, objective: usize, named: Option<&str>) -> Result<Chart, ResultsError> {
    let finished = finished(study, objective)?;
    let names = chosen(study, objective, named, (1, MOST_PARAMETERS))?;
    let metric = metric(study, objective);
    let y = Scale::around(finished.iter().map(|(_, value)| *value));
    let last = finished.last().map_or(0.0, |(trial, _)| trial.number as f64);
    let axes: Vec<ParameterAxis> = names.iter().map(|name| ParameterAxis::of(name, &finished)).collect();
    let (drawn, note) = thinned(finished, MOST_MARKS / axes.len());
    let panels = axes.into_iter().map(|axis| {
        let point = |(trial, value): &(&_, f64)| {
            let x = axis.coordinate(trial)?;
            Some(Point { x, y: *value, shade: trial.number as f64, label: label(trial, metric, *value) })
        };
        let marks = Marks::Points(drawn.iter().filter_map(point).collect());
        let layers = vec![Layer { name: String::new(), colour: Colour::Shade, marks }];
        Panel { x: axis.axis, y: Axis::new(metric, y.clone()), layers }
    });
    let panels = panels.collect();
    let shades = Some(Shades { title: "trial".to_owned(), low: 0.0, high: last });
    Ok(Chart { title: title(study, "slice"), panels, shades, note })
}
