//! Opens XLA:CPU for the tests.

use candle_core::{Device, Result, bail};
use std::path::{Path, PathBuf};

/// Opens a device of XLA:CPU, whose plugin `cargo xtask` installs for the tests.
pub(crate) fn open() -> Result<Device> {
    ferrotune_xla::open(&path()?)
}

pub(crate) fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FERROTUNE_XLA_CPU") {
        return Ok(path.into());
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/lib");
    let pythons = std::fs::read_dir(&libraries).into_iter().flatten().flatten();
    let found = pythons
        .map(|python| python.path().join("site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so"))
        .find(|path| path.is_file());
    match found {
        Some(path) => Ok(path),
        None => bail!("there is no fastatomstruct-xla-cpu in {}; `cargo xtask test` installs it", libraries.display()),
    }
}
