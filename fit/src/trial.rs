//! A training in a trial: it continues at the checkpoint, reports each epoch and saves its state after it.

use crate::fit::Fit;
use crate::history::{Ended, Epoch, History};
use crate::pass::Optimizing;
use crate::run::{Rows, with_training};
use candle_core::{Device, Tensor};
use candle_nn::VarMap;
use ferrotune_nn::Model;
use ferrotune_state::{Pack, Restore, Result, Save, ShareError, Shared};
use ferrotune_trial::Trial;

pub(crate) fn run<M: Model>(fit: Fit<'_, M>, trial: &Trial, train: &Rows, valid: Option<&Rows>) -> Result<History> {
    with_training(fit, train, valid, |training| {
        let vars = training.fit.model.vars();
        let mut saved = Progress::of(&[], 1.0)?;
        let state = State { vars, optimizing: training.optimizing, progress: &mut saved };
        trial.restore(state)?;
        training.epochs = saved.epochs()?;
        training.control.rate = saved.rate;
        let mut ended = Ended::Finished;
        for callback in &mut training.fit.callbacks {
            callback.on_train_begin()?;
        }
        if !training.epochs.is_empty() && training.ends_early(training.best()?) {
            ended = Ended::Early;
        } else {
            for number in trial.epochs(training.fit.epochs) {
                let Some(epoch) = training.epoch(number, &mut |_| {})? else {
                    ended = Ended::Interrupted;
                    break;
                };
                let logs = epoch.logs.clone();
                trial.report(number, logs)?;
                let mut progress = Progress::of(&training.epochs, training.control.rate)?;
                trial.checkpoint(State { vars, optimizing: training.optimizing, progress: &mut progress })?;
                if training.ends_early(training.best()?) {
                    ended = Ended::Early;
                    break;
                }
            }
        }
        for callback in &mut training.fit.callbacks {
            callback.on_train_end()?;
        }
        let best_epoch = None;
        Ok(History { epochs: std::mem::take(&mut training.epochs), ended, best_epoch })
    })
}

/// What a checkpoint has beside model and optimiser.
struct Progress {
    /// The names of the metrics.
    names: Vec<String>,
    /// A row for each epoch, of type `f64`: its metrics, its learning rate and its seconds.
    rows: Tensor,
    /// The factor of the learning rate that callbacks have set.
    rate: f64,
}

impl Progress {
    fn of(epochs: &[Epoch], rate: f64) -> Result<Progress> {
        let names: Vec<String> = epochs.first().map_or_else(Vec::new, |epoch| epoch.logs.keys().cloned().collect());
        let columns = names.len() + 2;
        let row = |epoch: &Epoch| epoch.logs.values().copied().chain([epoch.learning_rate, epoch.seconds]).collect();
        let numbers: Vec<f64> = epochs.iter().flat_map(|epoch| -> Vec<f64> { row(epoch) }).collect();
        Ok(Progress { names, rows: Tensor::from_vec(numbers, (epochs.len(), columns), &Device::Cpu)?, rate })
    }

    fn epochs(&self) -> Result<Vec<Epoch>> {
        let epoch = |row: Vec<f64>| {
            let [.., learning_rate, seconds] = row[..] else {
                unreachable!("a row has two numbers beside its metrics")
            };
            let logs = self.names.iter().cloned().zip(row.iter().copied()).collect();
            Epoch { logs, learning_rate, seconds }
        };
        Ok(self.rows.to_vec2()?.into_iter().map(epoch).collect())
    }
}

/// The state of a training.
struct State<'s> {
    vars: &'s VarMap,
    optimizing: &'s Optimizing,
    progress: &'s mut Progress,
}

impl Save for State<'_> {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        Save::save(&self.vars, name, pack)?;
        self.optimizing.optimizer.borrow().save(name, pack)?;
        let Progress { names, rows, rate } = &*self.progress;
        (names, rows, rate).save(&format!("{name}ferrotune:fit:"), pack)
    }
}

impl Restore for State<'_> {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        Restore::restore(self.vars, name, saved)?;
        self.optimizing.optimizer.borrow_mut().restore(name, saved)?;
        let Progress { names, rows, rate } = self.progress;
        (names, rows, rate).restore(&format!("{name}ferrotune:fit:"), saved)
    }
}
