//! Writes the first program of a process to a file instead of running it: `%tpu_check` of an objective compiles that program for a TPU.

use candle_core::{Result, bail};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Path of the file for the first program, and whether it is written.
static FILE: Mutex<Option<(PathBuf, bool)>> = Mutex::new(None);

/// Makes all compiled steps of this process fail instead of running. The first one on a device with a compiler writes its program to
/// this file, as the text of a [StableHLO] module.
///
/// [StableHLO]: https://openxla.org/stablehlo/spec
pub fn write_first_program(file: &Path) {
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some((file.to_owned(), false));
}

/// Whether [`write_first_program`] was called.
pub fn writes_first_program() -> bool {
    FILE.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Writes a program, if it is the first one of the process.
///
/// # Errors
/// If programs are written instead of being run.
pub(crate) fn instead_of_running(program: impl FnOnce() -> String) -> Result<()> {
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((path, is_written)) = &mut *file else { return Ok(()) };
    if !*is_written {
        std::fs::write(&*path, program())?;
        *is_written = true;
    }
    bail!("%tpu_check has the program of the first compiled step, and runs none")
}
