//! The training loop: [`Fit`] trains a model for epochs, with validation, metrics, a decay of the learning rate, early stopping and
//! curves, in a cell, in a program or in a trial of a search. It is made of the public parts of `data`, `nn` and `optim`, with which a
//! loop of your own can do the same. It makes no model and no data.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use ferrotune_data::wine;
//! use ferrotune_fit::Fit;
//! use ferrotune_nn::{self as nn, metrics};
//! use ferrotune_trial::{AdamW, optim};
//! let [train, valid] = wine()?.split([0.8, 0.2], 7)?;
//! let model = nn::mlp(13, &[16], 3).build(&Device::Cpu)?;
//! let history = Fit::classifier(&model)
//!     .optimizer(AdamW::lr(1e-2))
//!     .schedule(optim::cosine(0.1))
//!     .batch(16)
//!     .epochs(3)
//!     .metric("f1", metrics::f1())
//!     .early_stop("val_loss", 5)
//!     .run(&train, &valid)?;
//! assert_eq!(history.len(), 3);
//! assert_eq!(history.get("val_f1").len(), 3);
//! # Ok::<(), ferrotune_state::Error>(())
//! ```

mod batch;
mod best;
mod best_trial;
mod callback;
mod check;
mod criterion;
mod fit;
mod history;
mod optimizers;
mod pass;
mod recipe;
mod replicas;
mod run;
mod stop;
mod totals;
mod trial;

pub use batch::Batch;
pub use best_trial::BestTrial;
pub use callback::{BatchEnd, Callback, Control, CsvLog, ModelCheckpoint, ReduceOnPlateau, TensorBoard};
pub use fit::Fit;
pub use history::{Ended, Epoch, History, Logs};
