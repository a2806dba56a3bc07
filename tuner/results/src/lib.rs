//! The results of a search for people and for other programs: tables, charts, files.
//!
//! The crate has only pure functions of a [`Study`](ferrotune_journal::Study), for the kernel's magics and for any program
//! that reads a journal. Never reads or writes anything: callers handle folders, files and notebooks.

pub mod best;
mod bundle;
pub mod chart;
mod columns;
mod error;
pub mod export;
pub mod listing;
mod number;
pub mod overview;
pub mod plot;
mod snippet;
pub mod space;
pub mod tensorboard;
mod values;

pub use bundle::with_note;
pub use error::ResultsError;
pub use number::number;
pub use snippet::snippet;
