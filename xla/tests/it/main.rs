//! candle on XLA:CPU against candle on the CPU.

mod compare;
mod elementwise;
mod gradient;
mod plugin;
mod random;
mod space;
mod step;
mod structure;
