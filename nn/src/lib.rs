//! What training needs beside candle-nn: losses. Computes with tensors only, on whatever device they are.

pub mod loss;
