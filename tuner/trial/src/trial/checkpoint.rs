//! Checkpoints in the trial's folder, one file for each generation. Keeps the last two and the best one; never changes
//! a file.

use super::Trial;
use super::fixed::Fixed;
use super::generation::{self, OpenError};
use crate::error::TrialError;
use crate::seed::draw_from;
use ferrotune_profile::{self as profile, Part};
use ferrotune_space::checkpoint::{checkpoint_file, checkpoint_generation, step_of};
use ferrotune_space::seed::derived;
use ferrotune_space::wire::Request;
use ferrotune_state::{BoxError, Pack, Restore, Result, Save, ShareError, Shared, located};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const READ: &str = "read the checkpoint";
/// The number of recent checkpoints that a trial keeps.
const KEPT: usize = 2;

/// A function that loads a state of any type from a checkpoint.
type Loading<'a> = Box<dyn FnOnce(&Shared) -> Result<(), ShareError> + 'a>;

impl Trial {
    /// Saves the trial's state for the present step to disk: a `VarMap`, or several things at once, such as `(&vars,
    /// &optimiser, &position)`. See [`Save`].
    ///
    /// When this returns, the checkpoint survives a crash of the machine. The trial resumes from it only if the
    /// objective calls [`Trial::restore`]. If the search is being stopped and the objective does not use
    /// [`Trial::epochs`], this call fails with [`TrialError::Stopped`] after the checkpoint has been written. A trial of given values
    /// ([`Trial::of`]) writes no checkpoint.
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
    #[track_caller]
    pub fn checkpoint(&self, state: impl Save) -> Result<()> {
        located(self.save(&|pack| state.save("", pack)))
    }

    fn save(&self, save: &dyn Fn(&mut Pack) -> Result<(), ShareError>) -> Result<(), BoxError> {
        let _writing = profile::span(Part::Checkpoint);
        let step = self.step.get().ok_or(TrialError::NoStep)?;
        self.check_refusal()?;
        if self.fixed.is_some() {
            return Ok(());
        }
        let folder = self.folder();
        // Only a worker has its folder from the start.
        fs::create_dir_all(folder).map_err(|source| failure("make the folder of", folder, source.into()))?;
        let generations = self.generations()?;
        let number = generations.last().map_or(0, |last| last + 1);
        let file = checkpoint_file(number);
        let path = folder.join(&file);
        let mut pack = Pack::new();
        let packed = save(&mut pack).map_err(Into::into);
        packed.and_then(|()| generation::write(pack, step, &path)).map_err(|source| failure("write", &path, source))?;
        self.tell(&Request::Checkpoint { step, file })?;
        self.checkpoints.borrow_mut().insert(number, step);
        self.remove_old(&generations, number)?;
        self.draw_after(step)?;
        if self.is_stopped() && !self.goes_by_epochs.get() { Err(TrialError::Stopped.into()) } else { Ok(()) }
    }

    /// Loads the trial's last good checkpoint; returns `false` if there is none.
    ///
    /// Call it after building the state and before [`Trial::epochs`], which then continues after the checkpoint:
    /// `trial.restore((&vars, &mut optimiser, &mut position))`. Fails if the checkpoint has another state. If a
    /// checkpoint is damaged, loads the previous one. If the system cannot read a checkpoint, this call and all later calls
    /// fail, and the trial continues from that checkpoint another time.
    ///
    /// A trial of given values ([`Trial::of`]) loads the file of
    /// [`FixedTrial::with_checkpoint`](super::FixedTrial::with_checkpoint), and fails if the file is damaged.
    #[track_caller]
    pub fn restore(&self, state: impl Restore) -> Result<bool> {
        let restore: Loading<'_> = Box::new(|saved| state.restore("", saved));
        located(match &self.fixed {
            Some(fixed) => self.load_given(fixed, restore),
            None => self.load(restore),
        })
    }

    fn load(&self, restore: Loading<'_>) -> Result<bool, BoxError> {
        let Some(last) = self.assignment.checkpoint.as_deref().and_then(checkpoint_generation) else {
            return Ok(false);
        };
        let mut generations = self.generations()?;
        // A checkpoint that the journal does not have is from a worker that was killed before its report.
        generations.retain(|number| *number <= last);
        if generations.last() != Some(&last) {
            let path = self.folder().join(checkpoint_file(last));
            eprintln!("ferrotune: the checkpoint {} is gone, and the one before it is tried", path.display());
        }
        for number in generations.into_iter().rev() {
            let path = self.folder().join(checkpoint_file(number));
            match generation::open(&path) {
                Ok((saved, step)) => {
                    restore(&saved).map_err(|error| self.not_restored(path, error))?;
                    self.resume_at.set(step + 1);
                    self.checkpoints.borrow_mut().insert(number, step);
                    self.draw_after(step)?;
                    return Ok(true);
                }
                // A damaged file is the reason to keep the previous checkpoint too.
                Err(OpenError::Damaged(reason)) => {
                    eprintln!("ferrotune: the checkpoint {} is damaged: {reason}", path.display());
                }
                Err(OpenError::Unreadable(source)) => return Err(self.unreadable(READ, path, source).into()),
                Err(error @ OpenError::Newer { .. }) => return Err(failure("read", &path, error.into()).into()),
            }
        }
        Ok(false)
    }

    /// The checkpoint that was given to a trial of given values, and its step.
    pub(super) fn given_checkpoint(&self) -> Result<Option<(Shared, u64)>, BoxError> {
        let Some(path) = self.fixed.as_ref().and_then(|fixed| fixed.checkpoint.as_ref()) else { return Ok(None) };
        let opened = generation::open(path).map_err(|error| failure("read", path, error.into()))?;
        Ok(Some(opened))
    }

    /// Loads the checkpoint that was given to a trial of given values, if there is one.
    fn load_given(&self, fixed: &Fixed, restore: Loading<'_>) -> Result<bool, BoxError> {
        let Some(path) = &fixed.checkpoint else { return Ok(false) };
        let Some((saved, step)) = self.given_checkpoint()? else { return Ok(false) };
        let misfit = |error: ShareError| match error {
            ShareError::File { source, .. } => failure("read", path, source.into()),
            misfit => TrialError::GivenModel { path: path.clone(), mismatch: misfit.to_string() },
        };
        restore(&saved).map_err(misfit)?;
        self.resume_at.set(step + 1);
        Ok(true)
    }

    /// Restarts the random numbers after a checkpoint from a seed of the step. They do not depend on earlier draws, so that a resumed
    /// trial draws the same numbers.
    fn draw_after(&self, step: u64) -> Result<(), BoxError> {
        draw_from(derived(self.seed(), step))
    }

    fn not_restored(&self, path: PathBuf, error: ShareError) -> TrialError {
        match error {
            ShareError::File { source, .. } => self.unreadable(READ, path, source),
            misfit => TrialError::Model { path, mismatch: misfit.to_string() },
        }
    }

    /// Ends the trial for now, because it must not remove a checkpoint that it could not read.
    fn unreadable(&self, what: &'static str, path: PathBuf, source: io::Error) -> TrialError {
        let error = TrialError::Unreadable { what, path, source };
        let reason = error.to_string();
        self.refuse(error);
        TrialError::Refused { reason }
    }

    /// Removes all checkpoints except the last ones and that of the best step; `earlier` are the checkpoints before `last`.
    fn remove_old(&self, earlier: &[u64], last: u64) -> Result<(), TrialError> {
        self.read_steps(earlier)?;
        self.checkpoints.borrow_mut().retain(|number, _| *number == last || earlier.contains(number));
        let best = self.best_of(&self.checkpoints.borrow());
        let older = earlier.iter().rev().skip(KEPT - 1);
        for number in older.filter(|number| best != Some(**number)) {
            let path = self.folder().join(checkpoint_file(*number));
            fs::remove_file(&path).map_err(|source| failure("remove", &path, source.into()))?;
        }
        Ok(())
    }

    /// Reads the steps of checkpoints that earlier workers of this trial, or of its original, have written.
    fn read_steps(&self, generations: &[u64]) -> Result<(), TrialError> {
        for number in generations {
            let is_known = self.checkpoints.borrow().contains_key(number);
            let path = self.folder().join(checkpoint_file(*number));
            let step = if is_known { Ok(None) } else { step_of(&path) };
            match step {
                // A damaged checkpoint has no step, and is never the best.
                Ok(step) => self.checkpoints.borrow_mut().extend(step.map(|step| (*number, step))),
                Err(source) => return Err(self.unreadable(READ, path, source)),
            }
        }
        Ok(())
    }

    /// The sorted generations of the checkpoints in the trial's folder.
    fn generations(&self) -> Result<Vec<u64>, TrialError> {
        let folder = self.folder();
        generations_in(folder)
            .map_err(|source| self.unreadable("look for checkpoints in", folder.to_path_buf(), source))
    }

    /// The checkpoint at whose step the first objective's metric was best.
    fn best_of(&self, steps: &BTreeMap<u64, u64>) -> Option<u64> {
        let record = self.record.borrow();
        let objective = &self.assignment.objectives[0];
        let value = |step: &u64| *record.metrics.get(step)?.get(&objective.metric)?;
        // The last report of a repeated step counts.
        let by_step: BTreeMap<u64, u64> = steps.iter().map(|(number, step)| (*step, *number)).collect();
        let known = by_step.iter().filter_map(|(step, number)| Some((*number, value(step)?)));
        let best = known.reduce(|best, next| if objective.direction.prefers(next.1, best.1) { next } else { best });
        best.map(|(number, _)| number)
    }
}

fn failure(what: &'static str, path: &Path, source: Box<dyn Error + Send + Sync>) -> TrialError {
    TrialError::Checkpoint { what, path: path.to_path_buf(), source }
}

fn generations_in(folder: &Path) -> io::Result<Vec<u64>> {
    let mut generations = Vec::new();
    let entries = match fs::read_dir(folder) {
        // Without processes, the folder exists only after the first checkpoint.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(generations),
        entries => entries?,
    };
    for entry in entries {
        generations.extend(entry?.file_name().to_str().and_then(checkpoint_generation));
    }
    generations.sort_unstable();
    Ok(generations)
}
