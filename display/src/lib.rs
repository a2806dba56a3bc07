//! The output of a notebook: MIME bundles, tables and progress.
//!
//! The kernel and cells share this crate. It knows nothing of Jupyter's sockets, and all its output has a
//! text form for terminals and scripted runs.

pub mod bundle;
pub mod comm;
pub mod escape;
mod fields;
pub mod png;
mod progress;
mod rich;
mod show;
mod table;
pub mod tensorboard;
mod text;
pub mod value;
pub mod widget;

pub use bundle::Bundle;
pub use ferrotune_display_derive::Show;
pub use progress::{Progress, progress};
pub use rich::Show;
#[doc(hidden)]
pub use rich::{field_text, of_fields};
#[doc(hidden)]
pub use show::now;
pub use show::{Handle, clear_output, html, json, latex, markdown, mime, png, show, show_as, svg, text, update};
pub use table::table;
pub use text::beginning;
#[doc(hidden)]
pub use text::grouped;
