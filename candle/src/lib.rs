//! Makes our candle-core: crates.io's own package, of one version, with our changes.
//!
//! The changes are unified diffs (`patches/`) and files that candle does not have (`files/`). Cargo downloads the package and
//! checks its checksum. This crate contains no code of candle and links none.

mod changes;
mod diff;
mod error;
mod folder;
mod original;
mod sources;
mod stamp;

pub use changes::Changes;
pub use diff::write_changes;
pub use error::{Error, Result};
pub use folder::{edited, make};
pub use original::locate;

/// The version of candle-core that the changes are for.
pub const VERSION: &str = "0.11.1";

/// The checksum of that package on crates.io.
const CHECKSUM: &str = "d11c8be87cfbaef9ebb62fb3f850d1fc8e00cc1d11d393fdbe55a4d5c2cdb325";
