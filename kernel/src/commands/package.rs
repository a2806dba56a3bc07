//! `ferrotune package DIR`: writes the files that a package of Ferrotune has beside the program. `cargo xtask wheel` calls this
//! command, and packs DIR.

use crate::commands::kernelspec;
use crate::prelude::{Prelude, shipped};
use crate::toolchain::own;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// Builds the prelude for the toolchain of `ferrotune setup` if it is missing, and writes the prelude and a kernelspec to `folder`.
/// In the package the program will be in `bin` below this folder.
pub(crate) fn write(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; name a new folder", folder.display());
    }
    let toolchain = shipped::toolchain()?;
    let version = toolchain.version().unwrap_or_default();
    if version != own::VERSION {
        bail!("a package has the prelude for Rust {}, and rustc is {version}; set FERROTUNE_TOOLCHAIN", own::VERSION);
    }
    let prelude = Prelude::ensure(&toolchain, progress)?;
    let target = folder.join(shipped::PLACE);
    for part in ["library", "analysis"] {
        copy(&prelude.folder().join(part), &target.join(part))?;
    }
    fs::copy(prelude.folder().join("ready.json"), target.join("ready.json"))?;
    kernelspec::package(folder)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}
