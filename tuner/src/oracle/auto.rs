//! The search for those who do not choose one: the sampler that does best at the length that the search has come to.
//! Proposes nothing itself.

use super::cmaes::CmaEs;
use super::gp::Gp;
use super::history::History;
use super::sampler::Sampler;
use super::tpe::Tpe;

/// A Gaussian process learns most from a trial, but its cost grows with the cube of their number.
const MOST_TRIALS: usize = 250;
/// In more dimensions it is no better than others, and slow.
const MOST_DIMENSIONS: usize = 30;

/// Gaussian process, then CMA-ES where all parameters are numbers, or else TPE.
#[derive(Debug, Default)]
pub(super) struct Auto {
    gp: Gp,
    tpe: Tpe,
    cmaes: CmaEs,
}

impl Sampler for Auto {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        if history.rows.len() < MOST_TRIALS && history.space.dimensions.len() <= MOST_DIMENSIONS {
            return self.gp.propose(history, trial);
        }
        // Alternating, for CMA-ES refines what is known and TPE goes on looking.
        if is_numeric(history) && trial.is_multiple_of(2) {
            return self.cmaes.propose(history, trial);
        }
        self.tpe.propose(history, trial)
    }
}

/// Whether there are numbers only, asked for by all trials, and one objective.
fn is_numeric(history: &History) -> bool {
    let is_plain =
        |dimension: &crate::space::Dimension| dimension.condition.is_none() && dimension.distribution.has_order();
    history.settings.objectives.len() == 1 && history.space.dimensions.iter().all(is_plain)
}
