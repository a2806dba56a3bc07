//! Hyper-parameter search: the study's journal, and the supervision of trials.
//!
//! Links no candle, CUDA or PJRT: a trial's work happens in a worker process that this crate starts, watches and
//! ends. The space, the records and the worker's protocol are plain data of `ferrotune-space`; what is tried next
//! is decided by `ferrotune-oracle`.

pub mod folder;
pub mod in_process;
pub mod journal;
pub mod process;
pub mod search;
pub mod study_folder;
pub mod supervisor;
