//! candle on PJRT: each kernel that candle calls becomes a node of a graph, which is written as StableHLO, compiled by a
//! plugin and run on its device. Views, `backward`, layers and optimisers are candle's own.
//!
//! This crate does not choose devices: its caller names the plugin.

mod backend;
mod budget;
mod checks;
mod device;
mod element;
mod executables;
mod first_program;
mod graph;
mod literal;
mod lower;
mod mesh;
mod pipeline;
mod places;
#[cfg(test)]
mod plugin;
mod precision;
mod program;
mod random;
mod recent;
mod replicas;
mod sharding;
mod stablehlo;
mod step;
pub mod strategy;
mod trace;
mod traffic;
mod value;
mod view;
mod work;

pub use backend::{Backend, backend_of};
pub use budget::shortage_of;
pub use device::{Options, cores, device_across, device_on, identity, open, open_across, open_with, profile};
pub use first_program::{write_first_program, writes_first_program};
pub use pipeline::{Pipeline, Stage};
pub use places::{ShowNote, UNKNOWN_PLACE, is_in_program, lines_at, show_notes_with};
pub use precision::{autocast, check_precision};
pub use replicas::{all_reduce_gradients, all_reduce_mean, shard};
pub use sharding::{device_bytes, spread, with_sharding_constraint, zeros_like};
pub use step::{Signature, Step};
pub use traffic::Traffic;
