//! Callbacks for the events of a running search. A callback can end the search, but no single trial: pruners end trials.

use crate::{Ending, Finish, TrialRecord};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

/// The decision whether the search continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The search continues.
    Continue,
    /// The search ends: running trials stop at their next report, with a checkpoint, and continue in a later search.
    Stop,
}

impl Control {
    /// The decision to stop if at least one of the two decisions is to stop.
    fn and(self, other: Control) -> Control {
        if self == Control::Stop { self } else { other }
    }
}

/// A callback: receives the events of a search, in the process and the thread that called [`optimize`](crate::Study::optimize). Each
/// event's data is on disk before the call.
///
/// ```
/// use ferrotune_study::{Callback, Control, TrialRecord};
///
/// /// Ends the search once a trial is good enough.
/// #[derive(Debug)]
/// struct GoodEnough(f64);
///
/// impl Callback for GoodEnough {
///     fn on_trial_end(&mut self, trial: &TrialRecord) -> Control {
///         if trial.value().is_some_and(|loss| loss < self.0) { Control::Stop } else { Control::Continue }
///     }
/// }
/// ```
pub trait Callback: Debug {
    /// The study is open, with this many trials of earlier runs.
    fn on_search_begin(&mut self, _folder: &Path, _earlier_trials: u64) -> Control {
        Control::Continue
    }

    /// A trial begins, or continues with its first execution.
    fn on_trial_begin(&mut self, _trial: u64) -> Control {
        Control::Continue
    }

    /// An execution of a trial begins or continues; the first one follows [`Callback::on_trial_begin`].
    fn on_execution_begin(&mut self, _trial: u64, _execution: u64) -> Control {
        Control::Continue
    }

    /// An execution of a trial has finished, with a value for each objective.
    fn on_execution_end(&mut self, _trial: u64, _execution: u64, _values: &[f64]) -> Control {
        Control::Continue
    }

    /// A trial has reported metrics of a step (usually an epoch); `None` is a value that was not finite.
    fn on_report(&mut self, _trial: u64, _step: u64, _metrics: &BTreeMap<String, Option<f64>>) -> Control {
        Control::Continue
    }

    /// A trial has ended.
    fn on_trial_end(&mut self, _trial: &TrialRecord) -> Control {
        Control::Continue
    }

    /// The search is over.
    fn on_search_end(&mut self, _finish: &Finish) {}
}

/// Reports to all callbacks that an execution of a trial begins. Before the first execution, also reports that the trial begins.
pub(crate) fn began(callbacks: &mut [Box<dyn Callback>], trial: u64, execution: u64) -> Control {
    let is_first = execution == 0;
    let of_trial =
        if is_first { tell(callbacks, |callback| callback.on_trial_begin(trial)) } else { Control::Continue };
    of_trial.and(tell(callbacks, |callback| callback.on_execution_begin(trial, execution)))
}

/// Reports to all callbacks that a trial has ended. If it has finished, first reports that its last execution has finished.
pub(crate) fn ended(callbacks: &mut [Box<dyn Callback>], record: &TrialRecord) -> Control {
    let (trial, executions) = (record.number, &record.executions);
    let last = executions.len().saturating_sub(1) as u64;
    let of_execution = match record.ending {
        Some(Ending::Finished) => {
            let values = executions.last().unwrap_or(&record.values);
            tell(callbacks, |callback| callback.on_execution_end(trial, last, values))
        }
        _ => Control::Continue,
    };
    of_execution.and(tell(callbacks, |callback| callback.on_trial_end(record)))
}

/// Reports an event to all callbacks; the result is `Stop` if one of them wants the search to end.
pub(crate) fn tell(callbacks: &mut [Box<dyn Callback>], event: impl Fn(&mut dyn Callback) -> Control) -> Control {
    let answers: Vec<Control> = callbacks.iter_mut().map(|callback| event(callback.as_mut())).collect();
    if answers.contains(&Control::Stop) { Control::Stop } else { Control::Continue }
}
