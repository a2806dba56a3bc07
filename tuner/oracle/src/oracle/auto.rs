//! The default oracle: chooses the sampler that does best for the number of trials so far. Proposes nothing itself.

use super::cmaes::CmaEs;
use super::gp::Gp;
use super::history::History;
use super::sampler::Sampler;
use super::tpe::Tpe;

/// The number of trials from which on the Gaussian process is not used. The process learns most from a trial, but its cost
/// grows with the cube of the number of trials.
const MOST_TRIALS: usize = 250;
/// The largest number of dimensions for the Gaussian process, which is slow and no better than other samplers in more.
const MOST_DIMENSIONS: usize = 30;

/// The default sampler: a Gaussian process first; then CMA-ES and TPE by turns, or TPE alone if CMA-ES does not suit the space.
#[derive(Debug, Default)]
pub(super) struct Auto {
    gp: Gp,
    tpe: Tpe,
    cmaes: CmaEs,
    repeats: bool,
}

impl Sampler for Auto {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        self.repeats = false;
        if history.own().len() < MOST_TRIALS && history.space.dimensions.len() <= MOST_DIMENSIONS {
            let point = self.gp.propose(history, trial);
            self.repeats = self.gp.repeats();
            return point;
        }
        // Trials of other studies, whose losses may have another unit, are not needed any more.
        let count = history.own().len();
        let own = (count >= MOST_TRIALS && count < history.rows.len()).then(|| history.without_earlier());
        let history = own.as_ref().unwrap_or(history);
        // CMA-ES and TPE alternate, because CMA-ES refines good regions and TPE searches for new ones.
        if is_numeric(history) && trial.is_multiple_of(2) {
            return self.cmaes.propose(history, trial);
        }
        self.tpe.propose(history, trial)
    }

    fn repeats(&self) -> bool {
        self.repeats
    }

    fn begins_in_the_middle(&self) -> bool {
        self.gp.begins_in_the_middle()
    }
}

/// Whether all trials ask for all parameters, all parameters have an order, and there is one objective.
fn is_numeric(history: &History) -> bool {
    let is_plain =
        |dimension: &crate::inferred::Dimension| dimension.condition.is_none() && dimension.distribution.has_order();
    history.settings.objectives.len() == 1 && history.space.dimensions.iter().all(is_plain)
}
