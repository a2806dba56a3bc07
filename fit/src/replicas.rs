//! A training by several replicas: all begin with the same variables, and all know what each has measured.

use candle_core::{DType, Tensor, Var};
use candle_nn::VarMap;
use ferrotune_devices::{Replica, StrategyError};
use ferrotune_state::variables;
use ferrotune_trial::current_seed;

/// The seed of the first replica.
pub(crate) fn first_seed(replica: &Replica<'_>) -> ferrotune_state::Result<u64> {
    let seed = if replica.index() == 0 { current_seed() } else { 0 };
    // Two halves, because a number of 64 bits has 53 digits.
    let mut halves = [seed >> 32, seed & u64::from(u32::MAX)].map(|half| half as f64 * replica.count() as f64);
    replica.all_reduce_mean(&mut halves)?;
    Ok((halves[0] as u64) << 32 | halves[1] as u64)
}

/// Gives all replicas the variables of the first one.
pub(crate) fn begin_alike(replica: &Replica<'_>, vars: &VarMap) -> ferrotune_state::Result<()> {
    let share = if replica.index() == 0 { replica.count() as f64 } else { 0.0 };
    variables(vars).values().try_for_each(|var| share_variable(replica, var, share))
}

/// Gives all replicas the mean of the variables that are not trained, such as the statistics of batch norm.
pub(crate) fn average_statistics(replica: &Replica<'_>, vars: &VarMap, trained: &[Var]) -> ferrotune_state::Result<()> {
    let is_trained = |var: &Var| trained.iter().any(|other| other.as_tensor().id() == var.as_tensor().id());
    let all = variables(vars);
    let statistics = all.values().filter(|var| var.dtype().is_float() && !is_trained(var));
    statistics.into_iter().try_for_each(|var| share_variable(replica, var, 1.0))
}

/// Gives a variable the mean of all replicas' values, each multiplied by its share.
fn share_variable(replica: &Replica<'_>, var: &Var, share: f64) -> ferrotune_state::Result<()> {
    let values = var.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    // A share of 0 also hides values that are not finite.
    let share = |value: f64| if share == 0.0 { 0.0 } else { value * share };
    let mut values: Vec<f64> = values.into_iter().map(share).collect();
    replica.all_reduce_mean(&mut values)?;
    var.set(&Tensor::from_vec(values, var.shape(), var.device())?.to_dtype(var.dtype())?)?;
    Ok(())
}

/// The numbers of all replicas, in their order.
pub(crate) fn gather(replica: &Replica<'_>, numbers: &[f64]) -> std::result::Result<Vec<Vec<f64>>, StrategyError> {
    let (count, length) = (replica.count(), numbers.len());
    let mut all = vec![0.0; count * length];
    // The mean of whole numbers times the count is exact.
    for (slot, number) in all[replica.index() * length..].iter_mut().zip(numbers) {
        *slot = number * count as f64;
    }
    replica.all_reduce_mean(&mut all)?;
    Ok(all.chunks(length.max(1)).map(<[f64]>::to_vec).collect())
}
