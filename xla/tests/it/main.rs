//! Tests of candle on XLA:CPU against candle on the CPU.

mod anomaly;
mod compare;
mod custom;
mod elementwise;
mod gradient;
mod indexes;
mod layers;
mod names;
mod pipeline;
mod plugin;
mod precision;
mod random;
mod reads;
mod sharding;
mod space;
mod step;
mod structure;
mod values;
