//! Makes our candle-core and our evcxr: crates.io's own packages, of one version each, with our changes.
//!
//! The changes are unified diffs (`patches/`) and files that the package does not have (`files/`). Cargo downloads the package
//! and checks its checksum. This crate contains no code of candle and evcxr, and links none.

mod changes;
mod diff;
mod error;
mod folder;
mod original;
mod package;
mod sources;
mod stamp;

pub use changes::Changes;
pub use diff::write_changes;
pub use error::{Error, Result};
pub use folder::{edited, make};
pub use original::locate;
pub use package::{CANDLE, EVCXR, Package};
