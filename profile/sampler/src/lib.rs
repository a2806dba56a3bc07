//! A sampler of the stacks of this process' threads by their CPU time, whose samples make the flame graph of a cell.
//!
//! Each thread has a timer of its CPU time. The timer's signal copies the thread's registers and the end of its stack, and does
//! nothing else (`signal.rs`). A thread of the sampler finds the callers in the copies (`recording.rs`), with the unwind tables of
//! the loaded libraries (`modules.rs`). Another process later finds names and lines (`symbols.rs`) and draws the flame graph
//! (`flame.rs`).
//!
//! A signal comes only while its thread computes, so that no system call is interrupted. The handler neither allocates nor locks,
//! so that the signal may come at any instruction. Threads that live for less than 20 ms may not be sampled.

mod error;
mod flame;
mod modules;
mod recording;
mod samples;
mod signal;
mod symbols;

pub use error::SamplerError;
pub use flame::{Flame, Hot};
pub use recording::Sampler;
pub use samples::{Node, Place, Samples};
pub use symbols::{Frame, Symbols};
