//! The plain data of hyper-parameter searches: ranges and values of parameters, records of trials, the description of a
//! search, the messages between workers and their supervisor, and the seeds of all of these.
//!
//! Objectives, magics and results need only this crate. This crate decides nothing: it has no oracle, writes no file and starts
//! no process.

pub mod checkpoint;
mod distribution;
pub mod event;
pub mod given;
pub mod lattice;
pub mod objective;
pub mod record;
pub mod seed;
pub mod spec;
pub mod warm_start;
pub mod wire;

pub use distribution::{Distribution, Parameter, Scale, SpaceError, Value};
