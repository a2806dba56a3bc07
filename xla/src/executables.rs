//! Compiled programs, kept so that each one is compiled once.

use crate::program::Program;
use crate::stablehlo;
use candle_core::{Error, Result};
use ferrotune_devices::pjrt::{Client, CompileOptions, LoadedExecutable};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The programs that a device has compiled since it was opened.
#[derive(Default)]
pub(crate) struct Executables {
    compiled: Mutex<HashMap<u64, Arc<LoadedExecutable>>>,
    compilations: AtomicU64,
}

impl Executables {
    /// The compiled program.
    ///
    /// # Errors
    /// Those of the plugin's compiler.
    pub(crate) fn get(&self, client: &Client, program: &Program) -> Result<Arc<LoadedExecutable>> {
        let fingerprint = program.fingerprint();
        let known = |executables: &Self| {
            executables.compiled.lock().unwrap_or_else(PoisonError::into_inner).get(&fingerprint).cloned()
        };
        if let Some(executable) = known(self) {
            return Ok(executable);
        }
        let replicas = u32::try_from(program.replicas).map_err(Error::wrap)?;
        let text = stablehlo::text(program);
        let executable = client.compile(text.as_bytes(), &CompileOptions::replicated(replicas)).map_err(Error::wrap)?;
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(compiled.entry(fingerprint).or_insert_with(|| Arc::new(executable)).clone())
    }

    /// How many programs have been compiled.
    pub(crate) fn compilations(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }
}
