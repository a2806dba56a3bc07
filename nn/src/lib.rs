//! Models that carry their variables, metrics, and the losses that candle-nn does not have. Computes with tensors only, on any device,
//! and trains nothing: it has no optimiser and no loop over batches.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use ferrotune_nn::{self as nn, Model as _, metrics};
//! let model = nn::mlp(4, &[16, 8], 3).dropout(0.1).build(&Device::Cpu)?;
//! println!("{}", model.summary()?);
//! let rows = Tensor::randn(0_f32, 1.0, (10, 4), &Device::Cpu)?;
//! let targets = Tensor::zeros(10, candle_core::DType::U32, &Device::Cpu)?;
//! let mut accuracy = metrics::accuracy();
//! accuracy.update(&model.predict(&rows)?, &targets)?;
//! assert!((0.0..=1.0).contains(&accuracy.value()?));
//! # Ok::<(), candle_core::Error>(())
//! ```

mod architecture;
mod cnn;
pub mod loss;
pub mod metrics;
mod mlp;
mod model;
mod rows;
mod sequential;

pub use architecture::{build, describe};
pub use cnn::{Cnn, cnn};
pub use mlp::{Mlp, mlp};
#[doc(hidden)]
pub use model::description;
pub use model::{LayerSummary, Model, Summary, open};
pub use sequential::{Flatten, MaxPool2d, Sequential, flatten, max_pool2d, model, seq};
