//! The importance of each parameter by PED-ANOVA.

use super::{importances, metric, parameter, title};
use crate::ResultsError;
use crate::chart::{Axis, Bar, Chart, Colour, Layer, Marks, Panel, Scale};
use crate::values::finished;
use ferrotune_tuner::journal::Study;

pub(super) fn chart(study: &Study, objective: usize, named: Option<&str>) -> Result<Chart, ResultsError> {
    finished(study, objective)?;
    let mut shares = importances(study, objective);
    if named.is_some() {
        let names = parameter::chosen(study, objective, named, (1, usize::MAX))?;
        shares.retain(|importance| names.contains(&importance.name));
    }
    let bars = shares.iter().enumerate().map(|(row, importance)| Bar {
        from: 0.0,
        to: importance.share,
        row,
        label: format!("{:.3}", importance.share),
    });
    let layers = vec![Layer { name: String::new(), colour: Colour::Series(0), marks: Marks::Bars(bars.collect()) }];
    let largest = shares.first().map_or(1.0, |importance| importance.share);
    let x = Axis::new(
        format!("share of the importance for {}", metric(study, objective)),
        Scale::Linear { low: 0.0, high: (largest * 1.05).max(1e-3) },
    );
    let y = Axis::new("", Scale::Names(shares.into_iter().map(|importance| importance.name).collect()));
    Ok(Chart { title: title(study, "importance"), panels: vec![Panel { x, y, layers }], ..Chart::default() })
}
