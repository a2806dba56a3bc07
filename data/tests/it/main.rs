//! Tests of datasets through the public API.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arrays;
mod batches;
mod failures;
mod images;
mod order;
mod position;
mod prep;
mod reader;
mod ready;
mod seeds;
mod tables;
mod threads;

use candle_core::Tensor;
use ferrotune_data::{DataError, Dataset, Iter};

/// The elements of a pass.
fn all<T: Send + 'static>(elements: Iter<T>) -> Vec<T> {
    elements.map(|element| element.unwrap()).collect()
}

/// The whole numbers below `count`, as rows of a tensor.
fn rows(count: u32) -> Dataset<Tensor> {
    let device = &candle_core::Device::Cpu;
    Dataset::from_tensors(Tensor::arange(0u32, count, device).unwrap()).unwrap()
}

/// The whole numbers below `count`, which are made when they are requested.
fn numbers(count: u32) -> Dataset<u32> {
    Dataset::from_iter(0..count)
}

fn value(row: &Tensor) -> u32 {
    row.to_scalar().unwrap()
}

/// The numbers in the rows of a pass.
fn values(elements: Iter<Tensor>) -> Vec<u32> {
    all(elements).iter().map(value).collect()
}

/// The only error of a pass, which ends the pass.
fn error<T: Send + 'static>(mut elements: Iter<T>) -> DataError {
    let error = elements.by_ref().find_map(Result::err).expect("an element fails");
    assert!(elements.next().is_none(), "an error ends the pass");
    error
}
