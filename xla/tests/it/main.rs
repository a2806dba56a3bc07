//! candle on XLA:CPU against candle on the CPU.

mod compare;
mod custom;
mod elementwise;
mod gradient;
mod layers;
mod pipeline;
mod plugin;
mod random;
mod sharding;
mod space;
mod step;
mod structure;
