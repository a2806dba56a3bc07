//! candle on XLA:CPU against candle on the CPU.

mod plugin;
mod step;
