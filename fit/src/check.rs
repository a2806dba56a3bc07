//! What is refused before anything is trained.

use crate::fit::Fit;
use crate::history::is_reserved;
use crate::stop::EarlyStop;
use candle_core::{DType, Device};
use ferrotune_devices::{Precision, Replica};
use ferrotune_state::Result;
use ferrotune_trial::given_seed;
use ferrotune_xla::check_precision;
use ferrotune_xla::strategy::cores_of;

/// Fails if nothing would be trained, or processes would have other orders of rows. `shuffles` says whether there is an order to choose.
pub(crate) fn check_training(fit: &Fit<'_>, shuffles: bool) -> Result<()> {
    if fit.epochs == 0 {
        Err("a training of 0 epochs trains nothing; choose `.epochs(10)`")?;
    }
    let is_spread =
        |replica: &&Replica<'_>| replica.strategy().spread().is_some() && replica.strategy().cluster().is_some();
    if shuffles && fit.replica.filter(is_spread).is_some() && given_seed().is_none() {
        Err(
            "the processes of a cluster need the same seed for the same order of rows; call `ferrotune::seed(7)?` first",
        )?;
    }
    Ok(())
}

/// Fails if the description of a training cannot be carried out.
pub(crate) fn check(fit: &Fit<'_>, has_validation: bool) -> Result<()> {
    if fit.batch == 0 {
        Err("a batch of 0 rows trains nothing; choose `.batch(32)`")?;
    }
    if fit.accumulated == 0 {
        Err("gradients of 0 batches train nothing; choose `.accumulate(1)`, or leave it out")?;
    }
    let device = fit.model.device().unwrap_or(Device::Cpu);
    if let Err(error) = check_precision(&device, precision_of(fit)) {
        if fit.precision == precision_of(fit) {
            Err(error)?;
        }
        Err(
            "this strategy computes in bf16, which needs a device with a compiler; leave out its `.with_precision(Precision::Bf16)`",
        )?;
    }
    if let Some(replica) = fit.replica.filter(|replica| replica.strategy().spread().is_some()) {
        let cores = replica.strategy().num_replicas_in_sync();
        if cores_of(&device) != cores {
            Err(format!(
                "the model is on {:?} with {} cores, and the strategy has {cores}; build it on `strategy::device(replica)?`",
                device.location(),
                cores_of(&device)
            ))?;
        }
        if !fit.batch.is_multiple_of(cores) {
            Err(format!(
                "{cores} cores cannot share batches of {} rows; choose a multiple of {cores} for `.batch`",
                fit.batch
            ))?;
        }
    }
    if fit.criterion.optimizes() && fit.accumulated > 1 {
        Err("`.steps` takes its own steps, which `.accumulate` cannot add; leave out one of both")?;
    }
    if let Some(replica) = divided(fit) {
        let count = replica.count();
        if !device.is_cpu() {
            Err(format!(
                "{count} replicas train with `Fit` on the CPU; several cores of a plugin are one device, with \
                 `Strategy::cores(\"{}\", {count})?`",
                replica.device()
            ))?;
        }
        if fit.criterion.optimizes() {
            Err("`.steps` takes its own steps, which replicas cannot share; use `.step`, or one replica")?;
        }
        if !fit.batch.is_multiple_of(count) {
            Err(format!(
                "{count} replicas cannot share batches of {} rows; choose a multiple of {count} for `.batch`",
                fit.batch
            ))?;
        }
    }
    if let Some((name, _)) = fit.metrics.first().filter(|_| !fit.criterion.has_outputs()) {
        Err(format!(
            "the metric `{name}` compares outputs with targets, and `.step` returns a loss alone; begin with `Fit::new`, without \
             `.metric`, and log a value of the step with `batch.log(\"{name}\", &value)?`"
        ))?;
    }
    check_names(fit, has_validation)
}

/// The precision of the training, or of its strategy.
pub(crate) fn precision_of(fit: &Fit<'_>) -> DType {
    match fit.replica.map(|replica| replica.strategy().precision()) {
        Some(Precision::Bf16) => DType::BF16,
        _ => fit.precision,
    }
}

/// This replica of a training, if there are others.
pub(crate) fn divided<'a>(fit: &Fit<'a>) -> Option<&'a Replica<'a>> {
    fit.replica.filter(|replica| replica.count() > 1)
}

/// Fails if metrics have names that stand for something else, or early stopping watches one that does not exist.
fn check_names(fit: &Fit<'_>, has_validation: bool) -> Result<()> {
    let names = || fit.metrics.iter().map(|(name, _)| name.as_str());
    if let Some(name) = names().enumerate().find_map(|(at, name)| names().take(at).find(|other| *other == name)) {
        Err(format!("two metrics have the name `{name}`; give one of them another name"))?;
    }
    if let Some(name) = names().find(|name| is_reserved(name)) {
        Err(format!(
            "a metric cannot have the name `{name}`, which stands for the loss or for validation data; choose another one"
        ))?;
    }
    // What a step logs is known after the first epoch.
    if !fit.criterion.has_outputs() {
        return Ok(());
    }
    let mut known: Vec<String> = names().chain(["loss"]).map(str::to_owned).collect();
    if has_validation {
        known.extend(known.clone().into_iter().map(|name| format!("val_{name}")));
    }
    is_watched(fit, known.iter().map(String::as_str))
}

/// Fails if early stopping watches a metric that is not among these.
pub(crate) fn is_watched<'n>(fit: &Fit<'_>, known: impl Iterator<Item = &'n str>) -> Result<()> {
    let Some(EarlyStop { metric, .. }) = &fit.early_stop else { return Ok(()) };
    let mut known: Vec<&str> = known.collect();
    if !known.contains(&metric.as_str()) {
        known.sort_unstable();
        Err(format!("early_stop watches `{metric}`, which is not measured; measured are {}", known.join(", ")))?;
    }
    Ok(())
}
