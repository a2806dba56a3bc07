//! Hyper-parameter searches in a Rust program, without a notebook: all that `%%tune` does, from [`Study::builder`].
//!
//! Trials are processes, as in a notebook: nothing that one does can end the program or the search. The program starts
//! itself again, once as the supervisor of the search and once for each trial; in these, [`Study::builder`] and
//! [`Study::optimize`] do not return. So the study is best built first in `main`: what comes before it runs in each of
//! these processes, too.
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
//! An objective of microseconds is better run in the program's own process: see [`StudyBuilder::in_process`], and
//! [`Study::ask`] for a loop of one's own.

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

/// Where the trials run.
#[derive(Debug)]
enum Place {
    /// In processes that this one has a supervisor start.
    Processes,
    /// In the thread that asks; the study is open once it has begun.
    InProcess(Option<OpenStudy>),
    /// In this process, which was started for one of them.
    Worker {
        /// The study of that trial.
        study: PathBuf,
    },
}

impl Study {
    /// A search that is still to be described.
    ///
    /// In a process that the program was started in again to supervise a search, this does so and does not return.
    pub fn builder() -> StudyBuilder {
        StudyBuilder::new()
    }

    /// Runs the search, or goes on with it, until it is over or Ctrl-C stops it; gives why it ended.
    ///
    /// A program that is run again goes on where it was: finished trials count, and one that ran goes on from its last
    /// checkpoint, where the objective restores it. Fails where the study cannot be opened or written, or where the
    /// objective itself is at fault: its first trials all fail, or it never reports what is to be optimised.
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
                // `overwrite` applies to one call: the next one goes on.
                let spec = StudySpec { overwrite: std::mem::take(&mut self.spec.overwrite), ..self.spec.clone() };
                processes::search(&spec, &mut self.callbacks)
            }
            Place::InProcess(_) => self.open_study()?.optimize(objective),
            Place::Worker { study } if *study == self.spec.directory.join(&self.spec.project) => {
                processes::enter_objective();
                let status = run_trials(|| ferrotune_trial::run_objective(|trial, _| objective(trial)));
                std::process::exit(status.unwrap_or_else(processes::not_run))
            }
            // The trial is of a later search in the program, which begins with what came of this one.
            Place::Worker { .. } => Ok(Finish::MaxTrials),
        }
    }

    /// Begins one more trial, for a loop of one's own: ask it for parameters, then [`Study::tell`] what came of it.
    ///
    /// Every fact is on disk before its call returns.
    ///
    /// # Errors
    /// Fails unless the study is [`in_process`](StudyBuilder::in_process); if the search has nothing more to try; and with
    /// [`StudyError::Waiting`] while the oracle needs the values of trials that were asked for and have not been told.
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
        // In a trial of a later search in the program, this one has had all its trials.
        if matches!(self.place, Place::Worker { .. }) {
            Err(StudyError::Over { finish: Finish::MaxTrials })
        } else {
            self.open_study()?.ask()
        }
    }

    /// Ends a trial that [`Study::ask`] began, with what its objective would have returned; gives what is on disk of it.
    ///
    /// A trial without any finite value ends as failed.
    pub fn tell(&mut self, trial: Trial, values: impl ObjectiveValue) -> Result<TrialRecord, StudyError> {
        self.open_study()?.tell(&trial, values.values())
    }

    /// Ends a trial that [`Study::ask`] began and that came to nothing.
    pub fn tell_failed(&mut self, trial: Trial, reason: &str) -> Result<TrialRecord, StudyError> {
        self.open_study()?.tell_failed(&trial, reason)
    }

    /// Adds a finished trial that was run elsewhere, by hand or by another program, as Optuna's `study.add_trial`: oracles learn
    /// from it, and it counts as one of the study's trials. Its record is on disk when this returns.
    ///
    /// A program that is run again adds it again; look at [`Study::trials`] first. In the processes of trials nothing is added.
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
        // A value that is none is refused with the others.
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

    /// All trials so far, by their numbers; none where the study has not begun.
    pub fn trials(&self) -> Result<Vec<TrialRecord>, StudyError> {
        if let Place::InProcess(Some(study)) = &self.place {
            return Ok(study.trials());
        }
        match Journal::read(&self.folder()) {
            Err(ferrotune_journal::JournalError::Missing { .. }) => Ok(Vec::new()),
            study => Ok(study?.trials),
        }
    }

    /// The finished trial with the best value, of those that keep the constraints; none where there is none. Of several
    /// objectives it is the first of [`Study::best_trials`].
    pub fn best_trial(&self) -> Result<Option<TrialRecord>, StudyError> {
        Ok(self.best_trials()?.into_iter().next())
    }

    /// The finished trials that no other one beats in every objective, of those that keep the constraints: where there
    /// is one objective, the best trial alone.
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
