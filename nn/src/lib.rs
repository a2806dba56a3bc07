//! Models that carry their variables, metrics, and the losses that candle-nn does not have. Computes with tensors only, on any device,
//! and trains nothing: it has no optimiser and no loop over batches.

mod cnn;
pub mod loss;
mod mlp;
mod model;
mod sequential;

pub use cnn::{Cnn, cnn};
pub use mlp::{Mlp, mlp};
pub use model::{LayerSummary, Model, Summary};
pub use sequential::{Flatten, MaxPool2d, Sequential, flatten, max_pool2d, model, seq};
