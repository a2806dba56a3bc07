//! The link between the kernel, the cell supervisor and the cell process: the frames, and the cell's connection.
//!
//! This crate knows nothing of Jupyter, evcxr or candle. The kernel and the prelude share it, so both sides of each
//! socket have the same types.

mod cell;
mod comm;
pub mod connection;
mod frame;
mod supervisor;
pub mod wire;

pub use cell::{Answer, CellOrder, CellReport, Surroundings};
pub use comm::{CommAction, CommAnswer, CommMessage};
pub use frame::{CellEnding, KernelFrame, Stream};
pub use supervisor::{MemoryReport, SnapshotKey, SnapshotReport, SupervisorOrder, SupervisorReply, SupervisorRequest};
