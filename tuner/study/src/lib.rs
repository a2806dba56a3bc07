//! Hyper-parameter searches in a Rust program, without a notebook: all functions of `%%tune`, from [`Study::builder`].
//!
//! Trials are processes, as in a notebook: no trial can end the program or the search. The program starts
//! itself again, once as the supervisor of the search and once for each trial; in these processes, [`Study::builder`] and
//! [`Study::optimize`] do not return. The study should therefore be built first in `main`: code before it also runs in each of
//! these processes.
//!
//! ```no_run
//! use ferrotune_study::{Direction, Result, Study};
//!
//! fn main() -> Result<()> {
//!     let mut study = Study::builder().project("parabola").objective("loss", Direction::Min).max_trials(30).build()?;
//!     study.optimize(|trial| {
//!         let x: f64 = trial.float("x", -10.0..=10.0).get()?;
//!         Ok((x - 2.0).powi(2))
//!     })?;
//!     println!("{:?}", study.best_trial()?);
//!     Ok(())
//! }
//! ```
//!
//! An objective that takes microseconds should run in the program's own process: see [`StudyBuilder::in_process`], and
//! [`Study::ask`] for a loop in the program.

mod builder;
mod callback;
mod error;
mod in_process;
mod processes;

pub use builder::StudyBuilder;
pub use callback::{Callback, Control};
pub use error::StudyError;
pub use ferrotune_space::event::Finish;
pub use ferrotune_space::objective::{Direction, Objective};
pub use ferrotune_space::record::{Ending, State, TrialRecord};
pub use ferrotune_space::{Distribution, Parameter, Scale, Value};
pub use ferrotune_trial::{Error, FixedTrial, FixedValues, ObjectiveValue, Result, Trial};

use ferrotune_journal::Journal;
use ferrotune_oracle::analysis::ranking::best;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::in_process::InProcessSearch;
use ferrotune_tuner::process::run_trials;
use in_process::OpenStudy;
use std::path::PathBuf;

/// A search: made by [`Study::builder`], run by [`Study::optimize`].
#[derive(Debug)]
pub struct Study {
    spec: StudySpec,
    place: Place,
    callbacks: Vec<Box<dyn Callback>>,
}

/// The place where the trials run.
#[derive(Debug)]
enum Place {
    /// The trials run in processes that a supervisor starts.
    Processes,
    /// The trials run in the calling thread; the study is open once the search has begun.
    InProcess(Option<OpenStudy>),
    /// This process was started to run a trial.
    Worker {
        /// The folder of that trial's study.
        study: PathBuf,
    },
}

impl Study {
    /// A builder for the description of a search.
    ///
    /// In a process in which the program was started again as a supervisor, this runs the search and does not return.
    pub fn builder() -> StudyBuilder {
        StudyBuilder::new()
    }

    /// Runs or continues the search until it is over or Ctrl-C stops it; returns why the search ended.
    ///
    /// A program that is run again continues the search: finished trials are kept, and an interrupted trial continues from its last
    /// checkpoint, if the objective restores the checkpoint. Fails if the study cannot be opened or written, or if the
    /// objective has an error: its first trials all fail, or it never reports the metric to optimise.
    ///
    /// ```no_run
    /// # use ferrotune_study::{Direction, Study};
    /// let mut study = Study::builder().project("digits").objective("val_accuracy", Direction::Max).build()?;
    /// let finish = study.optimize(|trial| {
    ///     let units: usize = trial.int("units", 32..=512).step(32).get()?;
    ///     for epoch in trial.epochs(20) {
    ///         trial.report(epoch, [("val_accuracy", 1.0 / units as f64)])?;
    ///     }
    ///     trial.best("val_accuracy")
    /// })?;
    /// println!("{finish:?} after {} trials", study.trials()?.len());
    /// # Ok::<(), ferrotune_study::StudyError>(())
    /// ```
    pub fn optimize<R: ObjectiveValue>(
        &mut self,
        mut objective: impl FnMut(&Trial) -> Result<R>,
    ) -> Result<Finish, StudyError> {
        match &mut self.place {
            Place::Processes => {
                // `overwrite` applies to one call: the next call continues the study.
                let spec = StudySpec { overwrite: std::mem::take(&mut self.spec.overwrite), ..self.spec.clone() };
                processes::search(&spec, &mut self.callbacks)
            }
            Place::InProcess(_) => self.open_study()?.optimize(objective),
            Place::Worker { study } if *study == self.spec.directory.join(&self.spec.project) => {
                processes::enter_objective();
                let status = run_trials(|| ferrotune_trial::run_objective(|trial, _| objective(trial)));
                std::process::exit(status.unwrap_or_else(processes::not_run))
            }
            // This process runs a trial of a later search in the program, which begins with the results of this search.
            Place::Worker { .. } => Ok(Finish::MaxTrials),
        }
    }

    /// Begins another trial, for a loop in the program: ask the trial for parameters, then pass its result to [`Study::tell`].
    ///
    /// All data of a call is on disk before the call returns.
    ///
    /// # Errors
    /// Fails unless the study is [`in_process`](StudyBuilder::in_process); if the search has no further trial; and with
    /// [`StudyError::Waiting`] while the oracle needs the values of running trials for which `tell` was not called.
    ///
    /// ```no_run
    /// # use ferrotune_study::{Direction, Study};
    /// # fn main() -> ferrotune_study::Result<()> {
    /// let builder = Study::builder().project("parabola").objective("loss", Direction::Min);
    /// let mut study = builder.max_trials(50).in_process().build()?;
    /// for _ in 0..50 {
    ///     let trial = study.ask()?;
    ///     let x: f64 = trial.float("x", -10.0..=10.0).get()?;
    ///     study.tell(trial, (x - 2.0).powi(2))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask(&mut self) -> Result<Trial, StudyError> {
        // In a trial of a later search in the program, this search has already run all its trials.
        if matches!(self.place, Place::Worker { .. }) {
            Err(StudyError::Over { finish: Finish::MaxTrials })
        } else {
            self.open_study()?.ask()
        }
    }

    /// Ends a trial that [`Study::ask`] began, with the value that its objective would return; returns the trial's record on disk.
    ///
    /// A trial without any finite value ends as failed.
    pub fn tell(&mut self, trial: Trial, values: impl ObjectiveValue) -> Result<TrialRecord, StudyError> {
        self.open_study()?.tell(&trial, values.values())
    }

    /// Ends a trial that [`Study::ask`] began and that failed.
    pub fn tell_failed(&mut self, trial: Trial, reason: &str) -> Result<TrialRecord, StudyError> {
        self.open_study()?.tell_failed(&trial, reason)
    }

    /// Adds a finished trial that was run elsewhere, by hand or by another program, like Optuna's `study.add_trial`. Oracles learn
    /// from the trial, and it is one of the study's trials. Its record is on disk when this returns.
    ///
    /// A program that is run again adds the trial again; check [`Study::trials`] first. In the processes of trials nothing is added.
    ///
    /// # Errors
    /// Fails for a value that is not in its range, or that is not finite, for a parameter that has another kind in other
    /// trials, and while a search of the study runs in another process.
    ///
    /// ```no_run
    /// # use ferrotune_study::{Direction, Distribution, Parameter, Scale, Study};
    /// # fn main() -> ferrotune_study::Result<()> {
    /// let mut study = Study::builder().project("digits").objective("loss", Direction::Min).build()?;
    /// if study.trials()?.is_empty() {
    ///     let range = Distribution::Float { low: 1e-4, high: 1e-1, step: None, scale: Scale::Log };
    ///     study.add_trial([("lr", Parameter { distribution: range, value: 0.01.into() })], 0.25)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_trial<N: Into<String>>(
        &mut self,
        parameters: impl IntoIterator<Item = (N, Parameter)>,
        values: impl ObjectiveValue,
    ) -> Result<TrialRecord, StudyError> {
        let parameters = parameters.into_iter().map(|(name, parameter)| (name.into(), parameter)).collect();
        // A missing value becomes NaN, which is an error like other values that are not finite.
        let values: Vec<f64> = values.values().into_iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        match &self.place {
            Place::InProcess(_) => self.open_study()?.add(&parameters, values),
            Place::Processes => {
                let spec = StudySpec { overwrite: std::mem::take(&mut self.spec.overwrite), ..self.spec.clone() };
                Ok(InProcessSearch::open(&spec)?.add(&parameters, values)?.clone())
            }
            Place::Worker { .. } => {
                let ending = Some(Ending::Finished);
                Ok(TrialRecord { parameters, values, ending, ..TrialRecord::default() })
            }
        }
    }

    /// All trials so far, in the order of their numbers; empty if the study has not begun.
    pub fn trials(&self) -> Result<Vec<TrialRecord>, StudyError> {
        if let Place::InProcess(Some(study)) = &self.place {
            return Ok(study.trials());
        }
        match Journal::read(&self.folder()) {
            Err(ferrotune_journal::JournalError::Missing { .. }) => Ok(Vec::new()),
            study => Ok(study?.trials),
        }
    }

    /// The finished trial with the best value that keeps the constraints; `None` if there is no such trial. With several
    /// objectives it is the first of [`Study::best_trials`].
    pub fn best_trial(&self) -> Result<Option<TrialRecord>, StudyError> {
        Ok(self.best_trials()?.into_iter().next())
    }

    /// The finished trials that keep the constraints and that no other such trial dominates: with one objective, only the best
    /// trial.
    pub fn best_trials(&self) -> Result<Vec<TrialRecord>, StudyError> {
        Ok(best(&self.trials()?, &self.spec).into_iter().cloned().collect())
    }

    /// The study's folder, with its journal and its trials' checkpoints.
    pub fn folder(&self) -> PathBuf {
        self.spec.directory.join(&self.spec.project)
    }

    /// The study, open in this process.
    fn open_study(&mut self) -> Result<&mut OpenStudy, StudyError> {
        let Place::InProcess(study) = &mut self.place else { return Err(StudyError::NotInProcess) };
        Ok(match study {
            Some(study) => study,
            None => {
                let opened = OpenStudy::open(&self.spec, std::mem::take(&mut self.callbacks))?;
                self.spec.overwrite = false;
                study.insert(opened)
            }
        })
    }
}
