//! Hyper-parameter search: what a search does with the requests of its trials, and the supervision of their workers.
//!
//! Links no candle, CUDA or PJRT: a trial's work happens in a worker process that this crate starts, watches and
//! ends. The space, the records and the worker's protocol are plain data of `ferrotune-space`; what is tried next
//! is decided by `ferrotune-oracle`.

pub mod in_process;
pub mod process;
pub mod search;
pub mod supervisor;
