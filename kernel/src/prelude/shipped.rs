//! The prelude that came with this program in a package, in a folder beside the program's `bin`.

use super::Prelude;
use crate::toolchain::Toolchain;
use anyhow::Result;
use std::path::PathBuf;

/// Path of the shipped prelude, below the folder that has the program in `bin`.
pub(crate) const PLACE: &str = "lib/ferrotune";

/// Opens the prelude that came with this program; none if the user has built the program.
pub(crate) fn find() -> Result<Option<Prelude>> {
    match folder() {
        Some(folder) => Prelude::open(&folder),
        None => Ok(None),
    }
}

/// The toolchain to use, as [`Toolchain::find`] says.
pub(crate) fn toolchain() -> Result<Toolchain> {
    Toolchain::find(find()?.as_ref().map(Prelude::standard_library))
}

/// The toolchain to use; none where `ferrotune setup` has to install one first, as [`Toolchain::look`] says.
pub(crate) fn installed_toolchain() -> Result<Option<Toolchain>> {
    Toolchain::look(find()?.as_ref().map(Prelude::standard_library))
}

fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join(PLACE))
}
