//! The library of objectives in workers: the [`Trial`] with its hyper-parameters, reports and checkpoints, and the
//! [`Shared`] variables of the notebook. Makes no decisions: every request goes to the supervisor.
//!
//! ```no_run
//! # use ferrotune_trial::{Result, Trial, run_objective};
//! # struct Mlp;
//! # impl Mlp { fn new(_units: usize, _lr: f64) -> Mlp { Mlp } fn fit(&mut self) -> f32 { 0.5 } }
//! let status = run_objective(|trial, _shared| {
//!     let units = trial.int("units", 32..=512).step(32).get()?;
//!     let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
//!     let mut model = Mlp::new(units, lr);
//!     for epoch in trial.epochs(20) {
//!         let accuracy = model.fit();
//!         trial.report(epoch, [("val_accuracy", accuracy)])?;
//!     }
//!     trial.best("val_accuracy")
//! });
//! # std::process::exit(status);
//! ```
//!
//! The feature `plugins` adds devices of PJRT plugins (`tpu`, `xla:cpu`), `seed` and `debug_nans`. It needs candle with
//! Ferrotune's changes, which `ferrotune candle FOLDER` writes.

#[cfg(feature = "plugins")]
mod anomaly;
mod connection;
mod device;
mod error;
pub mod optim;
#[cfg(feature = "plugins")]
mod origin;
mod place;
#[cfg(not(feature = "plugins"))]
mod plain;
#[cfg(feature = "plugins")]
mod plugins;
mod runtime;
mod seed;
pub mod threads;
pub mod trial;

#[cfg(not(feature = "plugins"))]
use plain as plugins;

#[cfg(feature = "plugins")]
pub use anomaly::debug_nans;
pub use connection::SupervisorClient;
pub use device::{connect, connected, count_cores, open_cores, open_cores_across, open_device};
pub use error::TrialError;
pub use ferrotune_space::objective::Direction;
pub use ferrotune_state::{
    BoxError, Error, Pack, Restore, Result, Save, Share, ShareError, Shared, current_seed, derived_seed, given_seed,
    located, map_array, place_in, share_fields, shared,
};
pub use optim::AdamW;
#[cfg(feature = "plugins")]
pub use origin::{calls_to, lines_of, witness_errors};
pub use place::in_cell;
pub use plugins::is_open;
#[cfg(feature = "plugins")]
pub use plugins::{client_of, use_device_process};
pub use runtime::{ObjectiveValue, run_in_process, run_objective};
#[cfg(feature = "plugins")]
pub use seed::seed;
pub use trial::{FixedTrial, FixedValues, Trial};
