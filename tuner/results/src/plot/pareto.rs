//! One objective against another, and the trials that no other trial dominates.

use super::{MOST_MARKS, label, metric, thinned, title};
use crate::ResultsError;
use crate::chart::{Axis, Chart, Colour, Layer, Marks, Panel, Point, Scale};
use crate::values::{finished, finished_value};
use ferrotune_journal::Study;
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::record::TrialRecord;
use std::collections::BTreeSet;

pub(super) fn chart(study: &Study) -> Result<Chart, ResultsError> {
    let count = study.spec.objectives.len();
    if count < 2 {
        let need = "two objectives; %plot history shows the one";
        return Err(ResultsError::TooLittle { study: study.spec.project.clone(), need });
    }
    let winning: BTreeSet<u64> =
        ranking::best(&study.trials, &study.spec).into_iter().map(|trial| trial.number).collect();
    let (won, lost): (Vec<_>, Vec<_>) =
        finished(study, 0)?.into_iter().map(|(trial, _)| trial).partition(|trial| winning.contains(&trial.number));
    let (lost, note) = thinned(lost, MOST_MARKS);
    let pairs = (0..count).flat_map(|x| (x + 1..count).map(move |y| (x, y)));
    let panels = pairs.map(|pair| panel(study, pair, &won, &lost)).collect();
    Ok(Chart { title: title(study, "pareto"), panels, shades: None, note })
}

fn panel(study: &Study, (x, y): (usize, usize), won: &[&TrialRecord], lost: &[&TrialRecord]) -> Panel {
    let points = |trials: &[&TrialRecord]| -> Vec<Point> {
        let point = |trial: &&TrialRecord| {
            let (at, value) = (finished_value(trial, x)?, finished_value(trial, y)?);
            let label =
                format!("{}, {} = {}", label(trial, metric(study, x), at), metric(study, y), crate::number(value));
            Some(Point { x: at, y: value, shade: 0.0, label })
        };
        trials.iter().filter_map(point).collect()
    };
    let (won, lost) = (points(won), points(lost));
    let all = || won.iter().chain(&lost);
    let axis = |objective, value: fn(&Point) -> f64| {
        Axis::new(metric(study, objective), Scale::around(all().map(value).collect::<Vec<_>>()))
    };
    let (x, y) = (axis(x, |point| point.x), axis(y, |point| point.y));
    let layers = vec![
        Layer { name: "other trials".to_owned(), colour: Colour::Series(5), marks: Marks::Points(lost) },
        Layer { name: "best trade-offs".to_owned(), colour: Colour::Series(3), marks: Marks::Points(won) },
    ];
    Panel { x, y, layers }
}
