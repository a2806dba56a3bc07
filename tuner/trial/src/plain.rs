//! The functions of `plugins` for a program with the candle of crates.io: no plugins, no seed for the CPU's random numbers, and no
//! NaN detection.

use crate::error::TrialError;
use candle_core::{Device, Tensor};
use ferrotune_devices::{Cluster, DeviceName, Shortage};
use ferrotune_space::record::DeviceUse;
use ferrotune_state::BoxError;
use std::path::Path;

fn missing<T>(what: String) -> Result<T, BoxError> {
    Err(TrialError::NoPlugins { what }.into())
}

pub(crate) fn open(name: &DeviceName, _cores: usize, _cluster: Option<&Cluster>) -> Result<Device, BoxError> {
    missing(format!("the device `{name}`"))
}

pub(crate) fn count_cores(device: &DeviceName) -> Result<usize, BoxError> {
    missing(format!("the device `{device}`"))
}

/// The least number of pieces of work for each thread: always 1.
pub(crate) fn least_pieces() -> usize {
    1
}

/// Whether this process has opened this plugin: always `false`.
pub fn is_open(_plugin: &Path) -> bool {
    false
}

/// The known facts of a plugin's device: always `None`.
pub(crate) fn facts_of(_device: &str) -> Option<DeviceUse> {
    None
}

pub(crate) fn seed_open(_seed: u64) -> Result<(), BoxError> {
    Ok(())
}

/// Does nothing: candle's generator for the CPU takes no seed, so there is no public `seed`.
pub(crate) fn seed_cpu(_seed: u64) -> Result<(), BoxError> {
    Ok(())
}

pub(crate) fn with_seed<R>(_seed: u64, run: impl FnOnce() -> R) -> R {
    run()
}

pub(crate) fn detect_anomalies(on: bool) -> Result<(), BoxError> {
    if on { missing("the search for the operation that makes a NaN".to_owned()) } else { Ok(()) }
}

/// Does nothing: the candle of crates.io has no hook for errors.
pub(crate) fn witness_errors() {}

pub(crate) fn line_of_error(_message: &str) -> Option<String> {
    None
}

pub(crate) fn take_anomaly(_message: &str) -> Option<String> {
    None
}

pub(crate) fn zeros_like(tensor: &Tensor) -> candle_core::Result<Tensor> {
    tensor.zeros_like()
}

pub(crate) fn shortage_of(_text: &str) -> Option<Shortage> {
    None
}

pub(crate) fn writes_first_program() -> bool {
    false
}

/// Does nothing: no step is compiled, so the trial ends without its first program and reports that.
pub(crate) fn write_first_program(_file: &Path) {}
