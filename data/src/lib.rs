//! Input pipelines with the verbs of tf.data: a [`Dataset`] describes the source of elements and their transformations,
//! and an [`Iter`] passes over them. A [`Table`] has columns of several kinds, of which a [`Prep`] makes features.
//!
//! The same seeds give the same elements in the same order, on any number of threads. This crate makes elements on the CPU,
//! and knows neither devices nor models.
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

mod arrays;
mod batch;
mod blocks;
mod cache;
mod cache_file;
mod columns;
mod dataset;
mod description;
mod encode;
mod error;
mod image_folder;
mod images;
mod iter;
mod map;
mod parallel;
mod prefetch;
mod prep;
mod reader;
mod ready;
mod records;
mod rows;
mod source;
mod stream;
mod table;
mod tabular;
mod verb;

pub use arrays::{cifar10, idx, mnist, npy, safetensors};
pub use batch::Batch;
pub use columns::Columns;
pub use dataset::Dataset;
pub use encode::{StandardScaler, one_hot};
pub use error::DataError;
pub use image_folder::{ImageFolder, image_folder};
pub use iter::{Iter, Position};
pub use prep::{DatePart, Fill, Prep, PrepOptions, Scale};
pub use ready::{digits, iris, wine};
pub use records::{json_lines, lines, tf_records};
pub use table::{TableFiles, arrow, csv, json_table, parquet};
pub use tabular::{Column, ColumnKind, Description, Head, Summary, Table, TableOptions, Value};

/// The result of all functions that make elements.
pub type Result<T, E = DataError> = std::result::Result<T, E>;
