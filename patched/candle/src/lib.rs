//! Makes our candle and our evcxr: the packages of crates.io, in one version each, with our changes.
//!
//! The changes are patches, one for each topic (`patches/`), and files that the packages do not have (`files/`). Cargo downloads
//! the packages and checks their checksums. This crate contains no code of candle and evcxr, and links none.

mod amend;
mod changes;
mod diff;
mod error;
mod folder;
mod original;
mod package;
mod patch;
mod sources;
mod stamp;

pub use changes::Changes;
pub use diff::{Topic, write_changes};
pub use error::{Error, Result};
pub use folder::{edited, make};
pub use original::locate;
pub use package::{CANDLE, EVCXR, Package, Upstream};
pub use patch::Patch;
