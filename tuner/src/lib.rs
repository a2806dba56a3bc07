//! Hyper-parameter search: oracles, the study's journal, and the supervision of trials.
//!
//! Links no candle, CUDA or PJRT: a trial's work happens in a worker process that this crate starts, watches and
//! ends. The space, the records and the worker's protocol are plain data of `ferrotune-space`.

pub mod analysis;
pub mod folder;
pub mod importance;
pub mod in_process;
pub mod inferred;
pub mod journal;
mod normal;
pub mod oracle;
pub mod process;
pub mod pruner;
pub mod sampling;
pub mod search;
pub mod study_folder;
pub mod supervisor;
pub mod terminator;
