//! Writes the first program of a process to a file instead of running it: `%tpu_check` of an objective compiles that for a TPU.

use candle_core::{Result, bail};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the first program goes, and whether it is there.
static FILE: Mutex<Option<(PathBuf, bool)>> = Mutex::new(None);

/// From now on no compiled step runs in this process. The first one on a device with a compiler writes its program to this file,
/// as the text of a [StableHLO] module, and each one is an error.
///
/// [StableHLO]: https://openxla.org/stablehlo/spec
pub fn write_first_program(file: &Path) {
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some((file.to_owned(), false));
}

/// Whether [`write_first_program`] was called.
pub fn writes_first_program() -> bool {
    FILE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Writes a program, if it is the first one that is asked for.
///
/// # Errors
/// If programs are written and not run.
pub(crate) fn instead_of_running(program: impl FnOnce() -> String) -> Result<()> {
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((path, is_written)) = &mut *file else { return Ok(()) };
    if !*is_written {
        std::fs::write(&*path, program())?;
        *is_written = true;
    }
    bail!("%tpu_check has the program of the first compiled step, and runs none")
}
