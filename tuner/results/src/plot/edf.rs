//! The share of trials whose value is at most as large: it shows the quality of the search space as a whole.

use super::{MOST_MARKS, metric, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Scale, between, extent};
use crate::values::finished;
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::empirical_distribution;

pub(super) fn chart(study: &Study, objective: usize) -> Result<Chart, ResultsError> {
    let values: Vec<f64> = finished(study, objective)?.into_iter().map(|(_, value)| value).collect();
    let (low, high) = extent(values.iter().copied());
    let mut at = values.clone();
    at.sort_by(f64::total_cmp);
    at.dedup();
    if at.len() > MOST_MARKS / 2 {
        let place = |index: usize| between(low, high, index as f64 / (MOST_MARKS / 2 - 1) as f64);
        at = (0..MOST_MARKS / 2).map(place).collect();
    }
    // The values are not empty here, because the function returns an error above if they are.
    let shares = empirical_distribution(&values, &at).unwrap_or_default();
    let mut points = vec![(low, 0.0)];
    for (value, share) in at.into_iter().zip(shares) {
        let before = points.last().map_or(0.0, |(_, share)| *share);
        points.extend([(value, before), (value, share)]);
    }
    let line = Line { points, shade: 0.0, label: study.spec.project.clone() };
    let layers = vec![Layer { name: String::new(), colour: Colour::Series(0), marks: Marks::Lines(vec![line]) }];
    let x = Axis::new(metric(study, objective), Scale::around([low, high]));
    let y = Axis::new("share of the trials", Scale::Linear { low: 0.0, high: 1.02 });
    Ok(Chart { title: title(study, "edf"), panels: vec![Panel { x, y, layers }], ..Chart::default() })
}
