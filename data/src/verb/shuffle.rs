//! Shuffles with a buffer, as in tf.data: the next element is a random element of the buffer, and the element that
//! follows in the input replaces it. With a buffer as large as the dataset, every order is equally likely.

use crate::Result;
use crate::stream::{BoxStream, Stream};
use rand::RngExt as _;
use rand_pcg::Pcg64;

pub(super) struct Shuffled<X> {
    stream: BoxStream<X>,
    size: usize,
    buffer: Vec<X>,
    generator: Pcg64,
    has_ended: bool,
}

impl<X> Shuffled<X> {
    pub(super) fn new(stream: BoxStream<X>, size: usize, generator: Pcg64) -> Shuffled<X> {
        Shuffled { stream, size, buffer: Vec::new(), generator, has_ended: false }
    }

    fn fill(&mut self) -> Result<()> {
        while !self.has_ended && self.buffer.len() < self.size {
            match self.stream.next() {
                Some(element) => self.buffer.push(element?),
                None => self.has_ended = true,
            }
        }
        Ok(())
    }
}

impl<X: Send> Stream<X> for Shuffled<X> {
    fn next(&mut self) -> Option<Result<X>> {
        if let Err(error) = self.fill() {
            return Some(Err(error));
        }
        if self.buffer.is_empty() {
            return None;
        }
        let index = self.generator.random_range(0..self.buffer.len());
        Some(Ok(self.buffer.swap_remove(index)))
    }
}
