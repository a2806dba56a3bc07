//! The trial inside its objective: reports, epochs, the device and the best value so far.

mod checkpoint;
mod fixed;
mod generation;
mod parameters;

pub use ferrotune_state::{Restore, Save};
pub use fixed::{FixedTrial, FixedValues};

pub use parameters::{ChoiceParameter, Choosable, FloatParameter, IntParameter, Integer, Plain, Real};

use crate::connection::{SupervisorClient, unexpected};
use crate::device::open_device;
use crate::error::TrialError;
use crate::plugins::writes_first_program;
use candle_core::Device;
use ferrotune_devices::Strategy;
use ferrotune_profile::{self as profile, Part};
use ferrotune_space::Value;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::wire::{Assignment, Reply, Request, Verdict};
use ferrotune_state::{Result, located};
use fixed::Fixed;
use parameters::Asked;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;

/// A trial, which asks the supervisor for hyper-parameters and reports results to it.
#[derive(Debug)]
pub struct Trial {
    client: RefCell<Box<dyn SupervisorClient>>,
    assignment: Assignment,
    /// All reports of this trial, also those of its earlier workers.
    record: RefCell<TrialRecord>,
    /// The last step of the objective in this worker.
    step: Cell<Option<u64>>,
    /// The first epoch after the restored checkpoint.
    resume_at: Cell<u64>,
    verdict: Cell<Verdict>,
    /// Whether the objective uses [`Trial::epochs`], which ends when the trial has to stop.
    goes_by_epochs: Cell<bool>,
    /// The known steps of checkpoints, by generation.
    checkpoints: RefCell<BTreeMap<u64, u64>>,
    /// Why this trial cannot continue, even if its objective ignores the error.
    refusal: RefCell<Option<TrialError>>,
    /// The parameters that the objective has asked for, in this worker.
    asked: RefCell<BTreeMap<String, Asked>>,
    /// The settings of a trial of given values, see [`Trial::of`]; `None` in a search.
    fixed: Option<Fixed>,
}

impl Trial {
    /// A trial that sends its requests through `client`, for programs that run objectives themselves.
    ///
    /// Fails if the supervisor does not return an assignment.
    #[doc(hidden)]
    pub fn at(mut client: Box<dyn SupervisorClient>) -> Result<Trial, TrialError> {
        let assignment = client.hello()?;
        Ok(Trial::new(client, assignment))
    }

    pub(crate) fn new(client: Box<dyn SupervisorClient>, assignment: Assignment) -> Trial {
        let mut record = TrialRecord::new(assignment.trial);
        record.metrics = assignment.reported.clone();
        Trial {
            client: RefCell::new(client),
            assignment,
            record: RefCell::new(record),
            step: Cell::new(None),
            resume_at: Cell::new(0),
            verdict: Cell::new(Verdict::Continue),
            goes_by_epochs: Cell::new(false),
            checkpoints: RefCell::default(),
            refusal: RefCell::new(None),
            asked: RefCell::default(),
            fixed: None,
        }
    }

    /// The trial's number in the study, counted from 0.
    pub fn number(&self) -> u64 {
        self.assignment.trial
    }

    /// The trial's own seed: the same after a resume, and different for each execution. It decides all random numbers of the trial, as
    /// [`seed`](crate::seed) does.
    pub fn seed(&self) -> u64 {
        self.assignment.seed
    }

    /// The number of this execution of the trial, counted from 0. With `--executions N` each trial runs N times.
    pub fn execution(&self) -> u64 {
        self.assignment.execution
    }

    /// The first step that this trial itself has reported, also in an earlier process; none before its first report. The steps before it in a
    /// checkpoint are those of a trial that it continues.
    #[doc(hidden)]
    pub fn first_report(&self) -> Option<u64> {
        self.record.borrow().metrics.keys().next().copied()
    }

    /// Whether this is a trial of given values, which belongs to no search.
    #[doc(hidden)]
    pub fn is_given(&self) -> bool {
        self.fixed.is_some()
    }

    /// The trial's own folder. Its files stay with the study. Without processes, the folder exists only after the first
    /// checkpoint.
    pub fn folder(&self) -> &Path {
        &self.assignment.folder
    }

    /// The device that was connected when the search began.
    ///
    /// Fails if this build has no such device.
    #[track_caller]
    pub fn device(&self) -> Result<Device> {
        located(open_device(self.device_name()))
    }

    /// The number of steps to profile.
    pub(crate) fn profiled_steps(&self) -> Option<u64> {
        self.assignment.profile
    }

    /// Whether the first operation that makes a NaN or an infinity ends the trial.
    pub(crate) fn debugs_nans(&self) -> bool {
        self.assignment.debug_nans
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.assignment.device
    }

    /// The trial's device as a strategy with one replica. A trial on several devices makes its own strategy, like a cell.
    pub fn strategy(&self) -> Strategy {
        Strategy::on(&*self.assignment.device)
    }

    /// The epochs to run now, out of `total` in a whole training.
    ///
    /// They begin after the checkpoint that [`Trial::restore`] has loaded, or at 0. They end early if the oracle first
    /// compares this trial with others: return as usual, and the trial continues later if it does well. If the
    /// supervisor refuses, there are no epochs and the trial fails with the reason.
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
            // The number is at most `total`, which is a usize.
            epoch as usize
        })
    }

    /// Reports the metrics of a step, usually an epoch. The result says whether to continue.
    ///
    /// Values that are not finite count as missing. Fails with [`TrialError::Stopped`] or [`TrialError::Pruned`] if the
    /// trial has to end; leave the objective with `?` then, which does not count as a failure. If the search is being
    /// stopped and a checkpoint may still follow, [`Trial::checkpoint`] or the end of [`Trial::epochs`] ends the trial
    /// instead.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// trial.report(3, [("loss", 0.25), ("val_accuracy", 0.9)])?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn report<N: AsRef<str>, V: Into<f64>>(
        &self,
        step: usize,
        metrics: impl IntoIterator<Item = (N, V)>,
    ) -> Result<()> {
        let mut metrics = metrics.into_iter().map(|(name, value)| (name.as_ref().to_owned(), value.into()));
        located(self.report_all(step as u64, &mut metrics))
    }

    fn report_all(&self, step: u64, metrics: &mut dyn Iterator<Item = (String, f64)>) -> Result<(), TrialError> {
        if writes_first_program() {
            return Err(TrialError::NoProgram);
        }
        let _reporting = profile::span(Part::Report);
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let metrics: BTreeMap<String, Option<f64>> = metrics.map(|(name, value)| (name, finite(value))).collect();
        let was_stopped = self.is_stopped();
        self.step.set(Some(step));
        self.record.borrow_mut().metrics.entry(step).or_default().extend(metrics.clone());
        match self.ask(&Request::Report { step, metrics })? {
            Reply::Verdict { verdict } => self.verdict.set(verdict),
            reply => return Err(unexpected(&reply)),
        }
        match self.verdict.get() {
            Verdict::Continue => Ok(()),
            Verdict::Prune => Err(TrialError::Pruned),
            Verdict::Stop if !was_stopped && self.may_checkpoint() => Ok(()),
            Verdict::Stop => Err(TrialError::Stopped),
        }
    }

    /// Stores a remark on the trial, such as a number of parameters or a note, as Optuna's user attributes do. `%trials NUMBER` shows
    /// it, and exports contain it. A second value of a name replaces the first.
    ///
    /// A number that is not finite is stored as the text `NaN`, `inf` or `-inf`. Fails for a name that begins with `ferrotune:`.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// trial.set_user_attr("weights", 12_345)?;
    /// trial.set_user_attr("note", "diverged twice")?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn set_user_attr(&self, name: &str, value: impl Into<Value>) -> Result<()> {
        let value = match value.into() {
            Value::Float(number) if !number.is_finite() => Value::Text(number.to_string()),
            value => value,
        };
        let request = Request::UserAttribute { name: name.to_owned(), value };
        located(self.check_refusal().and_then(|()| self.tell(&request)))
    }

    /// Ends the search early, for example when a value is good enough, as Optuna's `study.stop()` does. No further trial begins. This
    /// trial and the others that run now continue to their ends, and the search continues when it is started again.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<f64> {
    /// let accuracy = trial.best("val_accuracy")?;
    /// if accuracy > 0.99 {
    ///     trial.stop_search()?;
    /// }
    /// # Ok(accuracy) }
    /// ```
    #[track_caller]
    pub fn stop_search(&self) -> Result<()> {
        located(self.check_refusal().and_then(|()| self.tell(&Request::StopSearch)))
    }

    /// The best value of an objective's metric in this trial's reports, also those of earlier workers; the last value
    /// or the mean if `--objective` says so.
    ///
    /// Fails before the first report, and for a metric that is not an objective, because its direction is unknown.
    #[track_caller]
    pub fn best(&self, metric: &str) -> Result<f64> {
        located(self.summary(metric))
    }

    fn summary(&self, metric: &str) -> Result<f64, TrialError> {
        let objectives = &self.assignment.objectives;
        let Some(objective) = objectives.iter().find(|objective| objective.metric == metric) else {
            if self.fixed.is_some() {
                return Err(TrialError::NoDirection { metric: metric.to_owned() });
            }
            let names: Vec<&str> = objectives.iter().map(|objective| objective.metric.as_str()).collect();
            let (metric, objectives) = (metric.to_owned(), names.join(", "));
            return Err(TrialError::NotAnObjective { metric, objectives });
        };
        let best = self.record.borrow().summary(objective);
        best.ok_or_else(|| TrialError::NothingReported { metric: metric.to_owned() })
    }

    /// Whether the supervisor has asked this trial to end.
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
        self.client.borrow_mut().tell(request)
    }

    fn ask(&self, request: &Request) -> Result<Reply, TrialError> {
        self.check_refusal()?;
        self.client.borrow_mut().ask(request)
    }

    /// Records why the trial cannot continue. Keeps only the first reason, because later ones follow from it.
    fn refuse(&self, error: TrialError) {
        self.refusal.borrow_mut().get_or_insert(error);
    }

    /// Fails if the trial cannot continue.
    fn check_refusal(&self) -> Result<(), TrialError> {
        let reason = self.refusal.borrow().as_ref().map(ToString::to_string);
        reason.map_or(Ok(()), |reason| Err(TrialError::Refused { reason }))
    }
}
