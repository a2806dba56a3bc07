//! The bound on the improvement that is still possible, and the threshold at which the terminator `regret` ends the search, after each
//! judgement.

use super::{metric, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Line, Marks, Panel, Point, Scale};
use crate::values::finished;
use ferrotune_journal::Study;
use ferrotune_oracle::{Judgement, judgements};

/// The largest number of judgements; each fits a model, which takes about 10 ms.
const MOST_JUDGEMENTS: usize = 40;

pub(super) fn chart(study: &Study) -> Result<Chart, ResultsError> {
    let too_little = |need| ResultsError::TooLittle { study: study.spec.project.clone(), need };
    if study.spec.objectives.len() > 1 {
        return Err(too_little("a single objective; %plot hypervolume shows how several improve"));
    }
    finished(study, 0)?;
    let course = judgements(&study.spec, &study.trials, MOST_JUDGEMENTS)?;
    let Some(last) = course.last() else {
        return Err(too_little("20 finished trials, after which the terminator judges for the first time"));
    };
    let last = last.trial as f64;
    let corners = |value: fn(&Judgement) -> f64| -> Vec<(f64, f64)> {
        course.iter().map(|judgement| (judgement.trial as f64, value(judgement))).collect()
    };
    let (bounds, thresholds) = (corners(|judgement| judgement.bound), corners(|judgement| judgement.threshold));
    let y = Scale::around(bounds.iter().chain(&thresholds).map(|(_, value)| *value));
    let point = |judgement: &Judgement| {
        let (bound, threshold) = (crate::number(judgement.bound), crate::number(judgement.threshold));
        let label = format!("after trial {}: bound {bound}, threshold {threshold}", judgement.trial);
        Point { x: judgement.trial as f64, y: judgement.bound, shade: 0.0, label }
    };
    let line = |name: &str, colour, points| Layer {
        name: name.to_owned(),
        colour: Colour::Series(colour),
        marks: Marks::Lines(vec![Line { points, shade: 0.0, label: name.to_owned() }]),
    };
    let layers = vec![
        line("bound on the regret", 0, bounds),
        line("threshold", 3, thresholds),
        Layer {
            name: String::new(),
            colour: Colour::Series(0),
            marks: Marks::Points(course.iter().map(point).collect()),
        },
    ];
    let x = Axis::new("trial", Scale::around_whole([0.0, last]));
    let y = Axis::new(format!("possible improvement of {}", metric(study, 0)), y);
    Ok(Chart { title: title(study, "terminator"), panels: vec![Panel { x, y, layers }], ..Chart::default() })
}
