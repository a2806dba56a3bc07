//! Input pipelines with the verbs of tf.data: a [`Dataset`] describes where elements come from and what happens to them,
//! and an [`Iter`] passes over them.
//!
//! The same seeds give the same elements in the same order, on any number of threads. Devices and models are not the
//! business of this crate: elements are made on the CPU.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use ferrotune_data::Dataset;
//!
//! let inputs = Tensor::rand(0f32, 1., (100, 4), &Device::Cpu)?;
//! let labels = Tensor::zeros(100, candle_core::DType::U32, &Device::Cpu)?;
//! let train = Dataset::from_tensors((inputs, labels))?.shuffle(100, 7).batch(32, false).prefetch(2);
//! for _epoch in 0..2 {
//!     for batch in &train {
//!         let (inputs, labels) = batch?;
//!         assert_eq!(inputs.dims()[1..], [4]);
//!         assert_eq!(inputs.dims()[0], labels.dims()[0]);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod cache;
mod columns;
mod dataset;
mod encode;
mod error;
mod iter;
mod map;
mod parallel;
mod prefetch;
mod ready;
mod rows;
mod stream;
mod verb;

pub use batch::Batch;
pub use columns::Columns;
pub use dataset::Dataset;
pub use encode::{StandardScaler, one_hot};
pub use error::DataError;
pub use iter::{Iter, Position};
pub use ready::{digits, iris, wine};

/// The result of everything that makes elements.
pub type Result<T, E = DataError> = std::result::Result<T, E>;
