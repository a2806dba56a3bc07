//! The devices of a plugin, which this process has opened itself or which the [device process](crate::process) has: the same
//! operations in both forms.
//!
//! A plugin that this process has opened cannot be used by its forks, ends with it, and takes its memory. With the device process
//! nothing is copied twice and nothing waits that need not: uploads and runs are sent and not answered, and their errors come with the
//! first value that is read.

mod buffer;
mod client;
mod executable;
mod far;
mod handle;
mod link;
mod running;
mod start;

pub use buffer::{Buffer, Event, Transfer};
pub use client::{Client, Device, Profiler};
pub use executable::{Input, Launch, LoadedExecutable, Refused};
pub use far::{Route, has_lost_values, hold, interrupt_waits_with, interrupted};
pub use running::{Running, process_of, running};
