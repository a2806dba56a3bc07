//! The reports of trials, step by step, including pruned and running trials; later trials are more orange.

use super::{joined, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale, Shades};
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;

/// The largest number of lines that are still readable.
const MOST_LINES: usize = 200;
/// The largest number of corners of a line.
const MOST_CORNERS: usize = 100;
/// The largest number of corners of all lines together, so that the plot fits into a message.
const MOST_CORNERS_IN_ALL: usize = 6_000;

pub(super) fn chart(study: &Study, named: Option<&str>) -> Result<Chart, ResultsError> {
    let name = named.unwrap_or_else(|| metric(study, 0));
    let reported = study.trials.iter().filter(|trial| trial.metrics.values().any(|step| step.contains_key(name)));
    let most = (MOST_CORNERS_IN_ALL / reported.count().clamp(1, MOST_LINES)).min(MOST_CORNERS);
    let lines: Vec<(Line, bool)> = study.trials.iter().filter_map(|trial| line(trial, name, most)).collect();
    if lines.is_empty() {
        return Err(ResultsError::NeverReported { study: study.spec.project.clone(), name: name.to_owned() });
    }
    let (lines, note) = thinned(lines, MOST_LINES);
    let is_thinned = lines.iter().any(|(_, is_thinned)| *is_thinned);
    let of_steps = is_thinned.then(|| format!("of long trainings {most} steps are drawn"));
    let note = joined(note, of_steps);
    let lines: Vec<Line> = lines.into_iter().map(|(line, _)| line).collect();
    let corners = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::new("step", Scale::around_whole(corners().map(|(step, _)| *step)));
    let y = Axis::new(name, Scale::around(corners().map(|(_, value)| *value)));
    let last = lines.last().map_or(0.0, |line| line.shade);
    // A trial with a single report is drawn as a point.
    let (single, lines): (Vec<Line>, Vec<Line>) = lines.into_iter().partition(|line| line.points.len() == 1);
    let point = |line: Line| Point { x: line.points[0].0, y: line.points[0].1, shade: line.shade, label: line.label };
    let layers = [Marks::Lines(lines), Marks::Points(single.into_iter().map(point).collect())];
    let layers = layers.map(|marks| Layer { name: String::new(), colour: Colour::Shade, marks }).into();
    let shades = Some(Shades { title: "trial".to_owned(), low: 0.0, high: last });
    Ok(Chart { title: title(study, "intermediate"), panels: vec![Panel { x, y, layers }], shades, note })
}

/// The line of a trial, and whether some of its steps are omitted.
fn line(trial: &TrialRecord, metric: &str, most: usize) -> Option<(Line, bool)> {
    let corner = |(step, metrics): (&u64, &std::collections::BTreeMap<String, Option<f64>>)| {
        Some((*step as f64, metrics.get(metric).copied().flatten()?))
    };
    let (points, left_out) = thinned(trial.metrics.iter().filter_map(corner).collect(), most);
    let label = || format!("trial {} ({})", trial.number, crate::values::ending(trial));
    (!points.is_empty()).then(|| (Line { points, shade: trial.number as f64, label: label() }, left_out.is_some()))
}
