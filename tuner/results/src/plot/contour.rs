//! The value over pairs of parameters. Interpolates between trials by distance, so no value is beyond those of the
//! trials.

use super::parameter::{ParameterAxis, chosen};
use super::{MOST_MARKS, joined, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Cell, Chart, Colour, Layer, Marks, Panel, Point, Scale, Shades, extent};
use crate::values::finished;
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;

/// The number of cells along an axis of numbers.
const CELLS: usize = 24;
/// The largest number of parameters, of which the plot shows all pairs.
const MOST: usize = 4;
/// The largest number of trials for a cell's value; more trials take time and change little.
const MOST_TRIALS: usize = 500;

pub(super) fn chart(study: &Study, objective: usize, named: Option<&str>) -> Result<Chart, ResultsError> {
    let finished = finished(study, objective)?;
    let mut names = chosen(study, objective, named, (2, 2))?;
    let left_out = names.split_off(names.len().min(MOST));
    let metric = metric(study, objective);
    let axes: Vec<ParameterAxis> = names.iter().map(|name| ParameterAxis::of(name, &finished)).collect();
    let (low, high) = extent(finished.iter().map(|(_, value)| *value));
    let (drawn, note) = thinned(finished, MOST_TRIALS.min(MOST_MARKS / (axes.len() - 1)));
    let pairs = (0..axes.len()).flat_map(|x| (x + 1..axes.len()).map(move |y| (x, y)));
    let panels = pairs.map(|(x, y)| panel(&axes[x], &axes[y], &drawn, metric)).collect();
    let of_names = (!left_out.is_empty()).then(|| format!("without {}: {MOST} parameters fit", left_out.join(", ")));
    let note = joined(note, of_names);
    let shades = Some(Shades { title: metric.to_owned(), low, high });
    Ok(Chart { title: title(study, "contour"), panels, shades, note })
}

fn panel(x: &ParameterAxis, y: &ParameterAxis, trials: &[(&TrialRecord, f64)], metric: &str) -> Panel {
    let point = |(trial, value): &(&TrialRecord, f64)| {
        let label = label(trial, metric, *value);
        Some(Point { x: x.coordinate(trial)?, y: y.coordinate(trial)?, shade: *value, label })
    };
    let points: Vec<Point> = trials.iter().filter_map(point).collect();
    let layers = vec![
        Layer { name: String::new(), colour: Colour::Shade, marks: Marks::Cells(cells(x, y, &points)) },
        Layer { name: String::new(), colour: Colour::Shade, marks: Marks::Points(points) },
    ];
    Panel { x: x.axis.clone(), y: y.axis.clone(), layers }
}

/// The cells of the grid, with values interpolated between the points.
fn cells(x: &ParameterAxis, y: &ParameterAxis, points: &[Point]) -> Vec<Cell> {
    if points.is_empty() {
        return Vec::new();
    }
    let (x, y) = (&x.axis.scale, &y.axis.scale);
    let places: Vec<(f64, f64, f64)> =
        points.iter().map(|point| (x.position(point.x), y.position(point.y), point.shade)).collect();
    let (columns, rows) = (count(x), count(y));
    let place = |index: usize, count: usize| index as f64 / count as f64;
    let cell = |(column, row): (usize, usize)| {
        let range = |scale: &Scale, index: usize, count: usize| {
            (scale.value_at(place(index, count)), scale.value_at(place(index + 1, count)))
        };
        let middle = ((column as f64 + 0.5) / columns as f64, (row as f64 + 0.5) / rows as f64);
        Cell { x: range(x, column, columns), y: range(y, row, rows), shade: interpolated(&places, middle) }
    };
    (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row))).map(cell).collect()
}

fn count(scale: &Scale) -> usize {
    match scale {
        Scale::Names(names) => names.len(),
        _ => CELLS,
    }
}

/// Shepard's interpolation: the mean of all values, weighted by the inverse fourth power of their distance.
fn interpolated(places: &[(f64, f64, f64)], (x, y): (f64, f64)) -> f64 {
    let weigh = |(sum, weights): (f64, f64), (at_x, at_y, value): &(f64, f64, f64)| {
        let distance = (at_x - x).powi(2) + (at_y - y).powi(2);
        let weight = 1.0 / (distance * distance).max(1e-12);
        (sum + weight * value, weights + weight)
    };
    let (sum, weights) = places.iter().fold((0.0, 0.0), weigh);
    sum / weights
}
