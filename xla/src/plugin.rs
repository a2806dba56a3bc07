//! Finds XLA:CPU for the tests of this crate's modules.

use candle_core::{Result, bail};
use std::path::{Path, PathBuf};

/// The plugin that `cargo xtask` installs for the tests.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FERROTUNE_XLA_CPU") {
        return Ok(path.into());
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/lib");
    let pythons = std::fs::read_dir(libraries).into_iter().flatten().flatten();
    let mut found = pythons.map(|python| python.path().join("site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so"));
    match found.find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => bail!("there is no fastatomstruct-xla-cpu; `cargo xtask test` installs it"),
    }
}
