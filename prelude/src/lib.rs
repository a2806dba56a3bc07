//! The one library that every cell and every trial links, dynamically.
//!
//! It contains candle, rayon and our own libraries, so that a process has one copy of each: candle numbers its
//! tensors with a counter, and two counters in one process give wrong gradients without an error. A cell therefore
//! never links candle itself.
//!
//! Functions that only the kernel and its generated code call are hidden from documentation and completion.

// The code that `#[derive(Show)]` generates names this crate `ferrotune`.
#[cfg(test)]
extern crate self as ferrotune;

mod best;
#[doc(hidden)]
pub mod cell;
mod compile;
mod dataset;
pub mod device;
mod image;
mod input;
mod interrupt;
/// The function that marks a step for `%%profile`, in loops that do not iterate over a dataset.
pub mod profile {
    pub use ferrotune_profile::step;
}
#[doc(hidden)]
pub mod python;
pub mod strategy;
mod tensor;
#[doc(hidden)]
pub mod tpu_check;
#[doc(hidden)]
pub mod tune;

pub use best::best;
pub use candle_core;
pub use candle_nn;
pub use compile::{Step, compile};
pub use ferrotune_display::{progress, widget};
pub use ferrotune_fit::{BestTrial, Fit};
pub use ferrotune_trial::optim;
pub use ferrotune_trial::{
    AdamW, Error, FixedTrial, FixedValues, Restore, Result, Save, Share, Trial, debug_nans, seed, share_fields,
};
pub use input::{input, input_password};
pub use interrupt::{interrupted, sleep};
pub use rayon;

// The compiler writes a type's path with the name of a module here, and would write a path that does not exist if these were other
// names for crates.

/// Datasets, tables, images and arrays, and how they are prepared.
pub mod data {
    pub use ferrotune_data::*;
}

/// Devices, and strategies over several of them.
pub mod devices {
    pub use ferrotune_devices::*;
}

/// Training loops with callbacks.
pub mod fit {
    pub use ferrotune_fit::*;
}

/// Layers, losses and metrics.
pub mod nn {
    pub use ferrotune_nn::*;
}

/// Functions that XLA compiles.
pub mod xla {
    pub use ferrotune_xla::*;
}

/// The imports of a notebook that trains: `use ferrotune::prelude::*;`.
///
/// A name that a cell declares or imports itself takes precedence over a name from here.
pub mod prelude {
    pub use crate::{AdamW, Fit, Result, Trial, compile, data, device, display, nn, optim, progress, strategy, widget};
    pub use candle_core::{D, DType, Device, IndexOp, Shape, Tensor, Var};
    pub use candle_nn::{
        Activation, BatchNorm, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, Dropout, Embedding, Func, GRU, GroupNorm,
        Init, LSTM, LayerNorm, Linear, Module, ModuleT, Optimizer, ParamsAdamW, RNN, RmsNorm, SGD, Sequential,
        VarBuilder, VarMap, batch_norm, conv1d, conv2d, embedding, func, group_norm, gru, init, layer_norm, linear,
        linear_no_bias, loss, lstm, ops, rms_norm, seq,
    };
    pub use ferrotune_data::{Dataset, DatePart, Fill, Iter, Prep, Scale, StandardScaler, one_hot};
    pub use ferrotune_devices::Strategy;
    pub use ferrotune_fit::{Batch, Callback, Control, CsvLog, Logs, ModelCheckpoint, ReduceOnPlateau, TensorBoard};
    pub use ferrotune_nn::metrics;
    // Without a name, so that a cell can have its own `Model`.
    pub use ferrotune_nn::Model as _;
}

/// The functions for showing output while a cell runs.
pub mod display {
    pub use crate::image::image;
    pub use ferrotune_display::*;
}
