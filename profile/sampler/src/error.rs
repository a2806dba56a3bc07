//! The errors of the sampler.

use std::io;
use std::path::PathBuf;

/// The reason why a process cannot be sampled, or why its samples have no names.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The program has its own handler of the sampling signal, as other profilers have.
    #[error("this process has its own handler of SIGPROF; end the profiler that it runs")]
    SignalTaken,
    /// The system refuses an operation that sampling needs.
    #[error("the system refuses {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The sampler's thread has panicked.
    #[error("the sampler's thread has panicked; please report it")]
    Panicked,
    /// A library cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Library {
        /// Path of the library.
        path: PathBuf,
        /// The reason why the library cannot be read.
        reason: String,
    },
}

impl SamplerError {
    /// A conversion of an error of the system, for `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
