//! Checkpoints in the trial's folder, a generation to a file. Keeps the last two and the best; never changes one.

use super::Trial;
use super::generation::{self, Newer};
use super::state::{Restore, Save};
use crate::error::{Result, TrialError};
use crate::shared::Pack;
use ferrotune_tuner::wire::{Request, checkpoint_file, checkpoint_generation};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

/// How many of the last checkpoints a trial keeps.
const KEPT: usize = 2;

impl Trial {
    /// Saves the trial's state to disk, for the step that the objective has come to: a `VarMap`, or several things at
    /// once, such as `(&vars, &optimiser, &position)`. See [`Save`].
    ///
    /// When this returns, the checkpoint survives a crash of the machine. The trial resumes from it only if the
    /// objective calls [`Trial::restore`]. Fails with [`TrialError::Stopped`], after it is written, where the search is
    /// being stopped and the objective does not go by [`Trial::epochs`].
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial, vars: candle_nn::VarMap) -> ferrotune_trial::Result<()> {
    /// use candle_nn::{Optimizer, ParamsAdamW};
    /// let mut optimiser = ferrotune_trial::AdamW::new(vars.all_vars(), ParamsAdamW::default())?;
    /// let mut seen: usize = 0;
    /// trial.restore((&vars, &mut optimiser, &mut seen))?;
    /// for epoch in trial.epochs(20) {
    ///     seen += 100;
    ///     trial.report(epoch, [("loss", 0.5)])?;
    ///     trial.checkpoint((&vars, &optimiser, &seen))?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn checkpoint(&self, state: impl Save) -> Result<()> {
        let step = self.step.get().ok_or(TrialError::NoStep)?;
        let folder = self.folder();
        // Only a worker's folder is there from the start.
        fs::create_dir_all(folder).map_err(|source| failure("make the folder of", folder, source.into()))?;
        let generations = generations(folder).map_err(|source| failure("look for", folder, source.into()))?;
        let number = generations.last().map_or(0, |last| last + 1);
        let file = checkpoint_file(number);
        let path = folder.join(&file);
        let mut pack = Pack::new();
        let packed = state.save("", &mut pack).map_err(Into::into);
        packed.and_then(|()| generation::write(pack, step, &path)).map_err(|source| failure("write", &path, source))?;
        self.tell(&Request::Checkpoint { step, file })?;
        self.checkpoints.borrow_mut().insert(number, step);
        self.remove_old(&generations).map_err(|source| failure("clear up after", &path, source.into()))?;
        if self.is_stopped() && !self.goes_by_epochs.get() { Err(TrialError::Stopped.into()) } else { Ok(()) }
    }

    /// Loads the trial's last good checkpoint into what it was made of; `false` if there is none.
    ///
    /// Call it once all is built and before [`Trial::epochs`], which then goes on after the checkpoint:
    /// `trial.restore((&vars, &mut optimiser, &mut position))`. Fails where the checkpoint is of something else.
    pub fn restore(&self, state: impl Restore) -> Result<bool> {
        let Some(last) = self.assignment.checkpoint.as_deref().and_then(checkpoint_generation) else {
            return Ok(false);
        };
        let folder = self.folder();
        let generations = generations(folder).map_err(|source| failure("look for", folder, source.into()))?;
        // One that the journal does not know was written by a worker that was killed before it could tell.
        for number in generations.into_iter().rev().filter(|number| *number <= last) {
            let path = folder.join(checkpoint_file(number));
            match generation::open(&path) {
                Ok((saved, step)) => {
                    let misfit = |error: crate::ShareError| TrialError::Model { path, mismatch: error.to_string() };
                    state.restore("", &saved).map_err(misfit)?;
                    self.resume_at.set(step + 1);
                    self.checkpoints.borrow_mut().insert(number, step);
                    return Ok(true);
                }
                Err(error) if error.is::<Newer>() => return Err(failure("read", &path, error).into()),
                // The one before it is kept for this.
                Err(error) => eprintln!("ferrotune: the checkpoint {} is damaged: {error}", path.display()),
            }
        }
        Ok(false)
    }

    /// Removes what is none of the last checkpoints and not that of the best step.
    fn remove_old(&self, earlier: &[u64]) -> io::Result<()> {
        let steps = self.checkpoints.borrow();
        let best = self.best_of(&steps);
        let older = earlier.iter().rev().skip(KEPT - 1);
        for number in older.filter(|number| best != Some(**number)) {
            fs::remove_file(self.folder().join(checkpoint_file(*number)))?;
        }
        Ok(())
    }

    /// The checkpoint, of those whose step this worker knows, at whose step the first objective's metric was best.
    fn best_of(&self, steps: &BTreeMap<u64, u64>) -> Option<u64> {
        let record = self.record.borrow();
        let objective = &self.assignment.objectives[0];
        let value = |step: &u64| *record.metrics.get(step)?.get(&objective.metric)?;
        let known = steps.iter().filter_map(|(number, step)| Some((*number, value(step)?)));
        let best = known.reduce(|best, next| if objective.direction.prefers(next.1, best.1) { next } else { best });
        best.map(|(number, _)| number)
    }
}

fn failure(what: &'static str, path: &Path, source: Box<dyn Error + Send + Sync>) -> TrialError {
    TrialError::Checkpoint { what, path: path.to_path_buf(), source }
}

/// The generations of which the folder has a checkpoint, in order.
fn generations(folder: &Path) -> io::Result<Vec<u64>> {
    let mut generations = Vec::new();
    for entry in fs::read_dir(folder)? {
        generations.extend(entry?.file_name().to_str().and_then(checkpoint_generation));
    }
    generations.sort_unstable();
    Ok(generations)
}
