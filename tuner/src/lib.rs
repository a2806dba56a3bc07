//! Hyper-parameter search: the answers of a search to the requests of its trials, and the supervision of their workers.
//!
//! Links no candle, CUDA or PJRT: a trial's work happens in a worker process that this crate starts, watches and ends. The
//! space, the records and the worker's protocol are plain data of `ferrotune-space`; `ferrotune-oracle` decides which
//! parameters are tried next.

pub mod in_process;
pub mod process;
pub mod search;
pub mod supervisor;
