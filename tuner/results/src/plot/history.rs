//! Each trial's value and the best value so far, which show whether the search still improves.

use super::{MOST_MARKS, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale};
use crate::values::{finished, keeps_constraints};
use ferrotune_journal::Study;

pub(super) fn chart(study: &Study, objective: usize) -> Result<Chart, ResultsError> {
    let (metric, direction) = (metric(study, objective), study.spec.objectives[objective].direction);
    let finished = finished(study, objective)?;
    let last = finished.last().map_or(0.0, |(trial, _)| trial.number as f64);
    let mut best: Vec<(f64, f64)> = Vec::new();
    for (trial, value) in finished.iter().filter(|(trial, _)| keeps_constraints(study, trial)) {
        let number = trial.number as f64;
        match best.last() {
            Some((_, so_far)) if !direction.prefers(*value, *so_far) => {}
            Some((_, so_far)) => best.extend([(number, *so_far), (number, *value)]),
            None => best.push((number, *value)),
        }
    }
    best.extend(best.last().map(|(_, value)| (last, *value)));
    let y = Scale::around(finished.iter().map(|(_, value)| *value));
    let (drawn, note) = thinned(finished, MOST_MARKS);
    let points = drawn.iter().map(|(trial, value)| Point {
        x: trial.number as f64,
        y: *value,
        shade: 0.0,
        label: label(trial, metric, *value),
    });
    let layers = vec![
        Layer { name: "trials".to_owned(), colour: Colour::Series(0), marks: Marks::Points(points.collect()) },
        Layer {
            name: "best so far".to_owned(),
            colour: Colour::Series(3),
            marks: Marks::Lines(vec![Line { points: best, shade: 0.0, label: "best so far".to_owned() }]),
        },
    ];
    let (x, y) = (Axis::new("trial", Scale::around_whole([0.0, last])), Axis::new(metric, y));
    Ok(Chart { title: title(study, "history"), panels: vec![Panel { x, y, layers }], shades: None, note })
}
