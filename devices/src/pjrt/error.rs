//! Errors of a plugin, with PJRT's code and text, and errors in the use of a plugin.

use crate::fork::Forked;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The reason why an operation of a plugin, or of one of its objects, failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
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
        /// The part of the interface that is missing.
        reason: String,
    },
    /// The plugin has an unsupported version of PJRT's interface.
    #[error("{path} speaks PJRT {major}.{minor}, and only 0.x is known here; use an older plugin")]
    Version {
        /// The file.
        path: PathBuf,
        /// First part of the plugin's version.
        major: i32,
        /// Second part of the plugin's version.
        minor: i32,
    },
    /// The plugin is older than the called function.
    #[error("the plugin speaks PJRT {major}.{minor}, which has no {function}; use a newer plugin")]
    Missing {
        /// The function.
        function: String,
        /// First part of the plugin's version.
        major: i32,
        /// Second part of the plugin's version.
        minor: i32,
    },
    /// The plugin has refused a call.
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
    /// This process is a fork of a process that had opened devices.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The device process cannot be started, or does not serve this client.
    #[error("{device}: {reason}")]
    NoProcess {
        /// The name of the device.
        device: String,
        /// The reason and the cure.
        reason: String,
    },
    /// The device process has ended, and with it what was on the device.
    #[error("{device}: {reason}, and the values that were on the device are lost; compute them again")]
    Lost {
        /// The name of the device.
        device: String,
        /// How the device process has ended.
        reason: String,
    },
    /// The user has ended the wait for the device.
    #[error("{device}: the wait for the device was interrupted; what was started there goes on")]
    Interrupted {
        /// The name of the device.
        device: String,
    },
    /// The arguments do not fit together.
    #[error("{what}")]
    Mismatch {
        /// A description of the mismatch.
        what: String,
    },
}

/// An error code of PJRT, which is one of Abseil's `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code(pub i32);

impl Code {
    /// The caller has given something that the function does not take.
    pub const INVALID_ARGUMENT: Code = Code(3);
    /// The operation did not end within its deadline.
    pub const DEADLINE_EXCEEDED: Code = Code(4);
    /// The requested object does not exist.
    pub const NOT_FOUND: Code = Code(5);
    /// The object exists already.
    pub const ALREADY_EXISTS: Code = Code(6);
    /// The device or the compiler ran out of memory.
    pub const RESOURCE_EXHAUSTED: Code = Code(8);
    /// The system is not in the state that the operation requires.
    pub const FAILED_PRECONDITION: Code = Code(9);
    /// The plugin does not have this operation.
    pub const UNIMPLEMENTED: Code = Code(12);
    /// Another process does not answer.
    pub const UNAVAILABLE: Code = Code(14);
}

impl fmt::Display for Code {
    /// Writes the code's name such as `RESOURCE_EXHAUSTED`, or `code 99` for a code that Abseil does not have.
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
