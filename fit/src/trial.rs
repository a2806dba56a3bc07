//! A training in a trial: it continues at the checkpoint, reports each epoch and saves its state after it.

use crate::best::Best;
use crate::fit::Fit;
use crate::history::{Ended, Epoch, History};
use crate::optimizers::Optimizers;
use crate::recipe::{Recipe, epochs_name, recipe_name};
use crate::run::{Rows, with_training};
use candle_core::{Device, Tensor};
use candle_nn::VarMap;
use ferrotune_devices::runtime::interrupted;
use ferrotune_state::{Pack, Restore, Result, Save, ShareError, Shared};
use ferrotune_trial::{Trial, TrialError};

pub(crate) fn run(fit: Fit<'_>, trial: &Trial, train: &Rows, valid: Option<&Rows>) -> Result<History> {
    if fit.replica.is_some_and(|replica| replica.count() > 1) {
        Err(
            "several replicas cannot report to one trial; train one replica in a trial, or several with a loop of your own",
        )?;
    }
    let recipe = Recipe::of(&fit)?.to_json()?;
    with_training(fit, train, valid, |training| {
        let recipe = recipe.as_str();
        let vars = training.fit.model.vars();
        let mut saved = Progress::of(&[], (1.0, false))?;
        let mut best = Best::default();
        trial.restore(State {
            vars,
            optimizers: training.optimizers,
            recipe,
            progress: &mut saved,
            best: &mut best,
        })?;
        training.epochs = saved.epochs()?;
        (training.control.rate, training.control.stop) = saved.control;
        let own = trial.first_report().map_or(training.epochs.len(), |first| first as usize);
        training.inherited = own.min(training.epochs.len());
        if best.epoch.is_some_and(|best| best < training.inherited) {
            best = Best::default();
        }
        for callback in &mut training.fit.callbacks {
            callback.on_train_begin()?;
            if !training.epochs.is_empty() {
                callback.on_resume(&training.epochs, &training.control)?;
            }
        }
        let is_over = training.epochs.len() > training.inherited && training.ends_early(training.best());
        let mut ended = if is_over { Ended::Early } else { Ended::Finished };
        if !is_over {
            for number in trial.epochs(training.fit.epochs) {
                let logs = match training.epoch(number, &mut |_| {}) {
                    Ok(Some(epoch)) => epoch.logs.clone(),
                    Err(error) if !interrupted() => {
                        best.put_back(vars)?;
                        return Err(error);
                    }
                    ended_early => {
                        if let Err(error) = ended_early {
                            eprintln!("ferrotune: the training was interrupted: {error}");
                        }
                        if !trial.is_given() {
                            // The search continues this trial another time.
                            return Err(TrialError::Stopped.into());
                        }
                        ended = Ended::Interrupted;
                        break;
                    }
                };
                let now = training.best();
                best.keep(vars, now, training.epochs.len())?;
                trial.report(number, logs)?;
                let mut progress = Progress::of(&training.epochs, (training.control.rate, training.control.stop))?;
                let optimizers = training.optimizers;
                trial.checkpoint(State { vars, optimizers, recipe, progress: &mut progress, best: &mut best })?;
                if training.ends_early(now) {
                    ended = Ended::Early;
                    break;
                }
            }
        }
        best.put_back(vars)?;
        for callback in &mut training.fit.callbacks {
            callback.on_train_end()?;
        }
        Ok(History { epochs: std::mem::take(&mut training.epochs), ended, best_epoch: best.epoch })
    })
}

/// What a checkpoint has beside model and optimiser.
struct Progress {
    /// The names of the metrics.
    names: Vec<String>,
    /// A row for each epoch, of type `f64`: its metrics, its learning rate and its seconds.
    rows: Tensor,
    /// What callbacks have set: the factor of the learning rate, and whether the training ends.
    control: (f64, bool),
}

impl Progress {
    fn of(epochs: &[Epoch], control: (f64, bool)) -> Result<Progress> {
        let names: Vec<String> = epochs.first().map_or_else(Vec::new, |epoch| epoch.logs.keys().cloned().collect());
        let columns = names.len() + 2;
        let row = |epoch: &Epoch| epoch.logs.values().copied().chain([epoch.learning_rate, epoch.seconds]).collect();
        let numbers: Vec<f64> = epochs.iter().flat_map(|epoch| -> Vec<f64> { row(epoch) }).collect();
        Ok(Progress { names, rows: Tensor::from_vec(numbers, (epochs.len(), columns), &Device::Cpu)?, control })
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
    optimizers: &'s Optimizers,
    recipe: &'s str,
    progress: &'s mut Progress,
    best: &'s mut Best,
}

impl Save for State<'_> {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        Save::save(&self.vars, name, pack)?;
        self.optimizers.save(name, pack)?;
        pack.text(&recipe_name(name), self.recipe.to_owned());
        let Progress { names, rows, control } = &*self.progress;
        pack.text(&epochs_name(name), rows.dims()[0].to_string());
        let Best { epoch, values } = &*self.best;
        let best = epoch.map(|epoch| epoch as u64);
        (names, rows, control, &best, values).save(&format!("{name}ferrotune:fit:"), pack)
    }
}

impl Restore for State<'_> {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        Restore::restore(self.vars, name, saved)?;
        self.optimizers.restore(name, saved)?;
        let Progress { names, rows, control } = self.progress;
        let (mut best, Best { epoch, values }) = (None::<u64>, self.best);
        (names, rows, control, &mut best, values).restore(&format!("{name}ferrotune:fit:"), saved)?;
        *epoch = best.map(|best| best as usize);
        Ok(())
    }
}
