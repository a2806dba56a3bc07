//! `ferrotune install`: builds the library that cells are linked with, and installs the kernelspec.

use super::{remove_old_preludes, with_progress};
use crate::commands::kernelspec;
use crate::folders;
use crate::prelude::{Prelude, shipped};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Install {
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct Target {
    /// For the current user.
    #[arg(long)]
    pub(super) user: bool,
    /// Under DIR/share/jupyter.
    #[arg(long, value_name = "DIR")]
    pub(super) prefix: Option<PathBuf>,
    /// For the Python environment in use.
    #[arg(long)]
    pub(super) sys_prefix: bool,
}

impl Target {
    /// Where the kernelspec is.
    pub(super) fn place(self) -> kernelspec::Target {
        match self.prefix {
            Some(prefix) => kernelspec::Target::Prefix(prefix),
            None if self.sys_prefix => kernelspec::Target::SysPrefix,
            None => kernelspec::Target::User,
        }
    }
}

/// Installs the kernel.
pub(crate) fn run(Install { target }: Install) -> Result<()> {
    let toolchain = shipped::toolchain()?;
    let prelude = with_progress(|show| Prelude::ensure(&toolchain, show))?;
    // It may be an old one, and is used from now on.
    let _held = folders::holds::hold(prelude.folder())?;
    let folder = kernelspec::install(&target.place(), &std::env::current_exe()?)?;
    remove_old_preludes();
    eprintln!("installed the kernel in {}; cells are linked with {}", folder.display(), prelude.folder().display());
    eprintln!("cells are compiled with the toolchain in {}: {}", toolchain.sysroot.display(), toolchain.rule.text());
    Ok(())
}
