//! The results of a search for people and for other programs: tables, charts, files.
//!
//! Pure functions of a [`Study`](ferrotune_journal::Study), usable by the kernel's magics and by any program
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
