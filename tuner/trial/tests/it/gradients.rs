//! The gradients of every differentiable operation of candle and candle-nn, against central differences.

mod accumulation;
mod difference;
mod edges;
mod elementwise;
mod fused;
mod indexing;
mod matrices;
mod views;
mod windows;
