//! The trial as its objective sees it: reports, epochs, the device and the best value so far.

mod checkpoint;
mod generation;
mod parameters;
mod state;

pub use state::{Restore, Save};

pub use parameters::{ChoiceParameter, Choosable, FloatParameter, IntParameter, Integer, Plain, Real};

use crate::connection::{Desk, unexpected};
use crate::device::open_device;
use crate::error::{Result, TrialError};
use candle_core::Device;
use ferrotune_devices::Strategy;
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::wire::{Assignment, Reply, Request, Verdict};
use parameters::Asked;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

/// One trial: asks the supervisor for hyper-parameters, and tells it what comes of them.
#[derive(Debug)]
pub struct Trial {
    desk: RefCell<Box<dyn Desk>>,
    assignment: Assignment,
    /// What was reported, by earlier workers of this trial too.
    record: RefCell<TrialRecord>,
    /// The last step that the objective has come to, in this worker.
    step: Cell<Option<u64>>,
    /// The first epoch that the checkpoint which was restored does not cover.
    resume_at: Cell<u64>,
    verdict: Cell<Verdict>,
    /// Whether the objective goes by [`Trial::epochs`], which ends when the trial is to.
    goes_by_epochs: Cell<bool>,
    /// The steps of the checkpoints whose steps this worker has come to know, by generation.
    checkpoints: RefCell<BTreeMap<u64, u64>>,
    /// Why this trial cannot go on, whatever its objective makes of that.
    refusal: RefCell<Option<TrialError>>,
    /// The parameters that the objective has asked for, in this worker.
    asked: RefCell<BTreeMap<String, Asked>>,
}

impl Trial {
    /// The trial whose requests `desk` answers. For programs that run objectives themselves.
    ///
    /// Fails where the desk does not know what is to be run.
    #[doc(hidden)]
    pub fn at(mut desk: Box<dyn Desk>) -> Result<Trial, TrialError> {
        let assignment = desk.hello()?;
        Ok(Trial::new(desk, assignment))
    }

    pub(crate) fn new(desk: Box<dyn Desk>, assignment: Assignment) -> Trial {
        let mut record = TrialRecord::new(assignment.trial);
        record.metrics = assignment.reported.clone();
        Trial {
            desk: RefCell::new(desk),
            assignment,
            record: RefCell::new(record),
            step: Cell::new(None),
            resume_at: Cell::new(0),
            verdict: Cell::new(Verdict::Continue),
            goes_by_epochs: Cell::new(false),
            checkpoints: RefCell::default(),
            refusal: RefCell::new(None),
            asked: RefCell::default(),
        }
    }

    /// The trial's number in the study, counted from 0.
    pub fn number(&self) -> u64 {
        self.assignment.trial
    }

    /// A seed of the trial's own, the same whenever it is resumed, and another one for each of its executions.
    pub fn seed(&self) -> u64 {
        self.assignment.seed
    }

    /// Which execution of the trial this is, counted from 0: with `--executions N` each trial runs N times.
    pub fn execution(&self) -> u64 {
        self.assignment.execution
    }

    /// The trial's own folder, which a trial without a worker of its own has from its first checkpoint on. What is
    /// written there stays with the study.
    pub fn folder(&self) -> &Path {
        &self.assignment.folder
    }

    /// The device that was connected when the search began.
    ///
    /// Fails where this build has no such device.
    pub fn device(&self) -> Result<Device> {
        open_device(&self.assignment.device)
    }

    /// That device as a strategy with one replica. A trial on several devices makes its own, as a cell does.
    pub fn strategy(&self) -> Strategy {
        Strategy::on(&*self.assignment.device)
    }

    /// The epochs to run now, of `total` in a whole training.
    ///
    /// They begin after the checkpoint that [`Trial::restore`] has loaded, and at 0 without one. They end early where
    /// the oracle wants to compare this trial with others first: return as usual, and the trial goes on later if it
    /// does well. Where the supervisor refuses, there are no epochs and the trial fails with its reason.
    pub fn epochs(&self, total: usize) -> impl Iterator<Item = usize> + '_ {
        self.goes_by_epochs.set(true);
        let request = Request::Epochs { total: total as u64, resume_at: self.resume_at.get() };
        let epochs = match self.ask(&request) {
            Ok(Reply::Epochs { start, stop }) => start..stop,
            Ok(reply) => {
                self.refuse(unexpected(&reply));
                0..0
            }
            Err(error) => {
                self.refuse(error);
                0..0
            }
        };
        epochs.take_while(|_| !self.is_stopped()).map(|epoch| {
            self.step.set(Some(epoch));
            // No more than `total`, which is a usize.
            epoch as usize
        })
    }

    /// Reports metrics of a step (an epoch, by habit), and hears whether to go on.
    ///
    /// Values that are not finite are kept as missing. Fails with [`TrialError::Stopped`] or [`TrialError::Pruned`]
    /// when the trial is to end; leave the objective with `?` then, which counts as no failure. Where the search is
    /// being stopped and a checkpoint may still follow, that comes first: [`Trial::checkpoint`] or the end of
    /// [`Trial::epochs`] ends the trial then.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// trial.report(3, [("loss", 0.25), ("val_accuracy", 0.9)])?;
    /// # Ok(()) }
    /// ```
    pub fn report<N: AsRef<str>, V: Into<f64>>(
        &self,
        step: usize,
        metrics: impl IntoIterator<Item = (N, V)>,
    ) -> Result<()> {
        let step = step as u64;
        let finite = |value: V| Some(value.into()).filter(|value: &f64| value.is_finite());
        let metrics: BTreeMap<String, Option<f64>> =
            metrics.into_iter().map(|(name, value)| (name.as_ref().to_owned(), finite(value))).collect();
        let was_stopped = self.is_stopped();
        self.step.set(Some(step));
        self.record.borrow_mut().metrics.entry(step).or_default().extend(metrics.clone());
        match self.ask(&Request::Report { step, metrics })? {
            Reply::Verdict { verdict } => self.verdict.set(verdict),
            reply => return Err(unexpected(&reply).into()),
        }
        match self.verdict.get() {
            Verdict::Continue => Ok(()),
            Verdict::Prune => Err(TrialError::Pruned.into()),
            Verdict::Stop if !was_stopped && self.may_checkpoint() => Ok(()),
            Verdict::Stop => Err(TrialError::Stopped.into()),
        }
    }

    /// The best value of an objective's metric that this trial has reported, in earlier workers too; the last one or the
    /// mean where `--objective` says so.
    ///
    /// Fails for another metric, of which nobody said whether small or large is good, and before the first report.
    pub fn best(&self, metric: &str) -> Result<f64> {
        let objectives = &self.assignment.objectives;
        let Some(objective) = objectives.iter().find(|objective| objective.metric == metric) else {
            let names: Vec<&str> = objectives.iter().map(|objective| objective.metric.as_str()).collect();
            let (metric, objectives) = (metric.to_owned(), names.join(", "));
            return Err(TrialError::NotAnObjective { metric, objectives }.into());
        };
        let best = self.record.borrow().summary(objective);
        best.ok_or_else(|| TrialError::NothingReported { metric: metric.to_owned() }.into())
    }

    /// Whether this trial has been told to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.verdict.get() != Verdict::Continue
    }

    fn may_checkpoint(&self) -> bool {
        self.goes_by_epochs.get() || !self.checkpoints.borrow().is_empty()
    }

    pub(crate) fn take_refusal(&self) -> Option<TrialError> {
        self.refusal.take()
    }

    pub(crate) fn tell(&self, request: &Request) -> Result<(), TrialError> {
        self.desk.borrow_mut().tell(request)
    }

    fn ask(&self, request: &Request) -> Result<Reply, TrialError> {
        self.check_refusal()?;
        self.desk.borrow_mut().ask(request)
    }

    /// The first reason is the one to tell: what comes after it follows from it.
    fn refuse(&self, error: TrialError) {
        self.refusal.borrow_mut().get_or_insert(error);
    }

    /// Fails where the trial cannot go on.
    fn check_refusal(&self) -> Result<(), TrialError> {
        let reason = self.refusal.borrow().as_ref().map(ToString::to_string);
        reason.map_or(Ok(()), |reason| Err(TrialError::Refused { reason }))
    }
}
