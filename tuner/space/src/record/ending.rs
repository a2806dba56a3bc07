//! How a trial ended, as data and in words.

use ferrotune_format::bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// How a trial's last worker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// The objective returned a value.
    Finished,
    /// The oracle or the pruner ended the trial.
    Pruned,
    /// The objective returned an error or no value, or the worker ended without a result.
    Failed {
        /// One line: the error, or the missing result.
        reason: String,
    },
    /// The objective panicked.
    Panicked {
        /// The panic's message and place.
        message: String,
    },
    /// The trial's memory exceeded the budget, or the machine was running out of memory.
    OutOfMemory {
        /// The trial's memory when it was stopped, in bytes.
        peak_bytes: u64,
        /// The budget in bytes.
        budget_bytes: u64,
    },
    /// The trial needed more memory than the device has.
    DeviceOutOfMemory {
        /// The device's name.
        device: String,
        /// One line: the plugin's error message.
        reason: String,
    },
    /// The trial did not train: an estimate, from similar trials or from the compiler of its device, exceeds the budget.
    Refused {
        /// A lower bound of the memory that the trial needs, in bytes.
        estimate_bytes: u64,
        /// The budget in bytes, or the memory of the device.
        budget_bytes: u64,
        /// The device whose compiler gave the estimate; none if the estimate comes from other trials.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
    },
    /// A signal ended the worker.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The trial ran past its deadline.
    TimedOut {
        /// The deadline in seconds, rounded up.
        after_s: u64,
    },
    /// The search was stopped while the trial ran.
    Cancelled,
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Finished => formatter.write_str("finished"),
            Ending::Pruned => formatter.write_str("pruned"),
            Ending::Failed { reason } => formatter.write_str(&one_line(reason)),
            Ending::Panicked { message } => write!(formatter, "panicked: {}", one_line(message)),
            Ending::OutOfMemory { peak_bytes, budget_bytes } => {
                let (peak, budget) = (bytes(*peak_bytes), bytes(*budget_bytes));
                write!(formatter, "out of memory: {peak} of {budget}; raise it with --memory")
            }
            Ending::DeviceOutOfMemory { device, reason } => {
                let reason = one_line(reason);
                write!(formatter, "out of memory on {device}: {reason}; choose a smaller model or batch")
            }
            Ending::Refused { estimate_bytes, budget_bytes, device: Some(device) } => {
                let (estimate, budget) = (bytes(*estimate_bytes), bytes(*budget_bytes));
                write!(
                    formatter,
                    "refused: a program needs {estimate} of {budget} on {device}; make the batch or the model smaller"
                )
            }
            Ending::Refused { estimate_bytes, budget_bytes, device: None } => {
                let (estimate, budget) = (bytes(*estimate_bytes), bytes(*budget_bytes));
                write!(formatter, "refused: it would need {estimate} of {budget}; raise it with --memory")
            }
            Ending::Signalled { signal } => write!(formatter, "killed by {}", signal_name(*signal)),
            Ending::TimedOut { after_s } => write!(formatter, "timed out after {after_s} s"),
            Ending::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Name of a signal that ends processes, as Linux numbers them on x86-64 and aarch64; `signal 40` for any other.
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    Cow::Borrowed(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return Cow::Owned(format!("signal {signal}")),
    })
}
