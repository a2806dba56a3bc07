//! Hyper-parameter search: search space, oracles, the study's journal, and the supervision of trials.
//!
//! Links no candle, CUDA or PJRT: a trial's work happens in a worker process that this crate starts, watches and
//! ends. Without the default feature `supervisor` only the space, the records and the worker's protocol remain,
//! which is what an objective needs.

#[cfg(feature = "supervisor")]
pub mod analysis;
pub mod checkpoint;
pub mod event;
#[cfg(feature = "supervisor")]
pub mod folder;
pub mod given;
#[cfg(feature = "supervisor")]
pub mod importance;
#[cfg(feature = "supervisor")]
pub mod in_process;
#[cfg(feature = "supervisor")]
pub mod journal;
#[cfg(feature = "supervisor")]
mod normal;
#[cfg(feature = "supervisor")]
pub mod oracle;
#[cfg(feature = "supervisor")]
pub mod process;
#[cfg(feature = "supervisor")]
pub mod pruner;
pub mod record;
#[cfg(feature = "supervisor")]
pub mod search;
pub mod seed;
pub mod space;
pub mod spec;
#[cfg(feature = "supervisor")]
pub mod study_folder;
#[cfg(feature = "supervisor")]
pub mod supervisor;
#[cfg(feature = "supervisor")]
pub mod terminator;
pub mod warm_start;
pub mod wire;
