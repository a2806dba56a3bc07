//! candle on PJRT: each kernel that candle asks for becomes a node of a graph, which is written as StableHLO, compiled by a
//! plugin and run on its device. Views, `backward`, layers and optimisers are candle's own.
//!
//! Decides nothing about devices: whoever uses it loads the plugin.

mod element;
mod graph;
mod lower;
mod program;
mod random;
mod stablehlo;
mod value;
mod view;
