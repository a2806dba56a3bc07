//! Errors of a plugin, with PJRT's code and text, and errors in using one.

use crate::fork::Forked;
use std::fmt;
use std::path::PathBuf;

/// Why a plugin or one of its objects could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PjrtError {
    /// The file could not be loaded.
    #[error("cannot load the plugin {path}: {reason}")]
    Load {
        /// The file.
        path: PathBuf,
        /// The dynamic linker's message.
        reason: String,
    },
    /// The file is a library, but not a plugin.
    #[error("{path} is not a PJRT plugin: {reason}; name the library of libtpu or of another PJRT plugin")]
    NotAPlugin {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: &'static str,
    },
    /// The plugin has another version of the interface.
    #[error("{path} speaks PJRT {major}.{minor}, and only 0.x is known here; use an older plugin")]
    Version {
        /// The file.
        path: PathBuf,
        /// First part of its version.
        major: i32,
        /// Second part of its version.
        minor: i32,
    },
    /// The plugin is older than the function.
    #[error("the plugin speaks PJRT {major}.{minor}, which has no {function}; use a newer plugin")]
    Missing {
        /// The function.
        function: String,
        /// First part of the plugin's version.
        major: i32,
        /// Second part of the plugin's version.
        minor: i32,
    },
    /// The plugin refused.
    #[error("{function}: {code}: {message}")]
    Refused {
        /// The function.
        function: String,
        /// PJRT's code.
        code: Code,
        /// The plugin's message.
        message: String,
    },
    /// The plugin has no profiler.
    #[error("the plugin has no profiler of its own, as libtpu has one")]
    NoProfiler,
    /// Devices were opened by the process that this one is a fork of.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The arguments do not match.
    #[error("{what}")]
    Mismatch {
        /// What does not match.
        what: String,
    },
}

/// PJRT's codes, which are those of Abseil's `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// Something did not come in time.
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    /// There is no such thing.
    pub const NOT_FOUND: Code = Code(5);
    /// There is such a thing already.
    pub const ALREADY_EXISTS: Code = Code(6);
    /// The device or the compiler ran out of memory.
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    /// Things are not as they must be.
    pub const FAILED_PRECONDITION: Code = Code(9);
    /// The plugin cannot do this at all.
    pub const UNIMPLEMENTED: Code = Code(12);
    /// Another process does not answer.
    pub const UNAVAILABLE: Code = Code(14);
}

impl fmt::Display for Code {
    /// `RESOURCE_EXHAUSTED`, or `code 99` for a code that Abseil does not have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        match usize::try_from(self.0).ok().and_then(|code| NAMES.get(code)) {
            Some(name) => f.write_str(name),
            None => write!(f, "code {}", self.0),
        }
    }
}
