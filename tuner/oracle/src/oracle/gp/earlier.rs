//! The models of earlier studies of the same objective, perhaps on other data. With one objective they are made once.

use super::evidence::Evidence;
use super::kernel::{Axis, embed};
use super::model::{Data, Hyper, Process};
use super::warp::Warped;
use super::{FINE, model, thinned};
use crate::oracle::history::{History, Row};
use crate::oracle::settings::Outcome;
use rand_pcg::Pcg64;
use std::sync::Arc;

/// The model of an earlier study.
#[derive(Debug)]
pub(super) struct Earlier {
    /// The outcomes of which the model is made, and their points, which depend on the conditions of all trials.
    outcomes: Vec<Outcome>,
    points: Vec<Vec<f64>>,
    pub(super) evidence: Evidence,
    /// A process over the losses, in a unit of their own.
    pub(super) process: Process,
    /// The point of the lowest loss.
    pub(super) best: Vec<f64>,
}

impl Earlier {
    /// The models of all earlier studies with enough trials, of which some may be `known`. `rng` draws the weights of several losses.
    pub(super) fn all(
        history: &History,
        known: &[Arc<Earlier>],
        prior: impl Fn(&Evidence) -> Hyper,
        rng: &Pcg64,
    ) -> Vec<Arc<Earlier>> {
        let axes = Axis::all(&history.space);
        // The weights of several losses are others for each trial.
        let is_lasting = history.settings.objectives.len() == 1;
        let models = history.earlier().filter_map(|rows| {
            let points: Vec<Vec<f64>> = rows.iter().map(|row| embed(&axes, &history.space, &row.point)).collect();
            let has_outcomes = |earlier: &Earlier| rows.iter().map(|row| &row.outcome).eq(&earlier.outcomes);
            let is_same = |earlier: &&Arc<Earlier>| {
                is_lasting && earlier.evidence.axes == axes && earlier.points == points && has_outcomes(earlier)
            };
            let found = known.iter().find(is_same).cloned();
            found.or_else(|| Earlier::of(history, rows, points, &prior, &mut rng.clone()).map(Arc::new))
        });
        models.collect()
    }

    fn of(
        history: &History,
        rows: &[Row],
        points: Vec<Vec<f64>>,
        prior: impl Fn(&Evidence) -> Hyper,
        rng: &mut Pcg64,
    ) -> Option<Earlier> {
        let evidence = Evidence::of(history, rows, rng);
        if !evidence.is_enough() {
            return None;
        }
        let members = thinned(&evidence.losses, FINE);
        let observed = evidence.observed(&members);
        let (warp, hyper) = model(&evidence.axes, &observed, &prior(&evidence));
        let Warped { values, errors, .. } = warp.apply(&observed.losses, &observed.deviations);
        let data = Data { axes: &evidence.axes, points: &observed.points, values: &values, errors: &errors };
        let process = Process::new(&data, &hyper);
        let feasible = (0..values.len()).filter(|index| evidence.is_feasible[members[*index]]);
        let best = feasible.min_by(|a, b| values[*a].total_cmp(&values[*b]))?;
        let best = observed.points[best].clone();
        let outcomes = rows.iter().map(|row| row.outcome.clone()).collect();
        Some(Earlier { outcomes, points, evidence, process, best })
    }
}
