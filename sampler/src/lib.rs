//! Samples the stacks of this process' threads by the CPU time that they use: what a flame graph of a cell is made of.
//!
//! Each thread has a timer of its CPU time, whose signal copies the thread's registers and the end of its stack, and does
//! nothing else (`signal.rs`). A thread of the sampler finds the callers in the copies (`recording.rs`), with the unwind tables of
//! the loaded libraries (`modules.rs`). Names and lines come later, and in another process (`symbols.rs`), which draws them
//! (`flame.rs`).
//!
//! A signal comes only while its thread computes, so that no system call is interrupted. It neither allocates nor locks, so that
//! it may come at any instruction. Threads that live for less than 20 ms may not be seen.

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
