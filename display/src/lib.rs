//! What a notebook shows: MIME bundles, progress, and the frames in which a cell process sends them to the kernel.
//!
//! Shared by the kernel and by cells. Knows nothing of Jupyter's sockets, and draws nothing that a terminal or a
//! scripted run could not show as text.

pub mod bundle;
pub mod escape;
pub mod frame;
pub mod link;
mod progress;
mod show;
mod table;

pub use bundle::Bundle;
pub use progress::{Progress, progress};
pub use show::{Handle, clear_output, html, json, markdown, mime, png, show, svg, text};
pub use table::table;
