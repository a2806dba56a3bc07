//! Why a process cannot be sampled.

use std::io;
use std::path::PathBuf;

/// Why a process cannot be sampled, or its samples have no names.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The program uses the signal itself, as other profilers do.
    #[error("this process has its own handler of SIGPROF; end the profiler that it runs")]
    SignalTaken,
    /// The system refuses what sampling needs.
    #[error("the system refuses {what}: {source}")]
    System {
        /// What it refuses.
        what: &'static str,
        /// Its reason.
        source: io::Error,
    },
    /// The sampler's thread has panicked.
    #[error("the sampler's thread has panicked; please report it")]
    Panicked,
    /// A library cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl SamplerError {
    /// For `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
