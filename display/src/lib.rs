//! What a notebook shows: MIME bundles, tables and progress.
//!
//! The kernel and cells share this crate. It knows nothing of Jupyter's sockets, and everything that it shows has a
//! text form for terminals and scripted runs.

pub mod bundle;
pub mod comm;
pub mod escape;
mod progress;
mod show;
mod table;
pub mod widget;

pub use bundle::Bundle;
pub use progress::{Progress, progress};
pub use show::{Handle, clear_output, html, json, markdown, mime, png, show, svg, text};
pub use table::table;
