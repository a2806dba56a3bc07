//! The losses that candle-nn does not have. Computes with tensors only, on any device.

pub mod loss;
