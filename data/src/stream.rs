//! A stream: the elements of one pass over a dataset, in order.

use crate::Result;
use ferrotune_state::{current_seed, derived_seed};
use std::sync::Arc;

/// The elements of one pass.
pub(crate) trait Stream<T>: Send {
    /// The next element; `None` after the last one. A stream is not used after an error.
    fn next(&mut self) -> Option<Result<T>>;

    /// Skips the next `count` elements, or all that remain, and returns the number of skipped elements. Makes them only
    /// if it must.
    fn skip(&mut self, count: u64) -> Result<u64> {
        skip_one_by_one(self, count)
    }
}

/// Does [`Stream::skip`] by making the elements.
pub(crate) fn skip_one_by_one<T>(stream: &mut (impl Stream<T> + ?Sized), count: u64) -> Result<u64> {
    for skipped in 0..count {
        match stream.next() {
            Some(element) => drop(element?),
            None => return Ok(skipped),
        }
    }
    Ok(count)
}

pub(crate) type BoxStream<T> = Box<dyn Stream<T>>;

/// A function that opens a stream for each pass.
pub(crate) type Open<T> = Arc<dyn Fn(Pass) -> Result<BoxStream<T>> + Send + Sync>;

/// A pass over a dataset. Its number goes into the seeds of all that is random in the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    number: u64,
    /// The place of a stream in its pipeline. Functions at different places draw different numbers. A shuffle is the same at
    /// every place, so that two datasets with the same shuffle can be zipped.
    place: u64,
}

impl Pass {
    pub(crate) fn new(number: u64) -> Pass {
        Pass { number, place: 0 }
    }

    /// A pass within this pass, such as a repetition. Number 0 is this pass itself.
    pub(crate) fn child(self, number: u64) -> Pass {
        Pass { number: if number == 0 { self.number } else { mix(self.number ^ mix(number)) }, ..self }
    }

    /// The same pass over input `index` of a verb that has functions, or several inputs.
    pub(crate) fn input(self, index: u64) -> Pass {
        Pass { place: derived_seed(self.place, index), ..self }
    }

    /// The seed for shuffling in this pass.
    pub(crate) fn seed(self, seed: u64) -> u64 {
        seed ^ mix(self.number)
    }

    /// The seed for the random numbers of functions in this pass.
    pub(crate) fn seed_of_functions(self) -> u64 {
        derived_seed(self.seed(current_seed()), self.place)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), which
/// maps 0 to 0.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The whole numbers in a range.
pub(crate) struct Numbers(pub(crate) std::ops::Range<usize>);

impl Stream<usize> for Numbers {
    fn next(&mut self) -> Option<Result<usize>> {
        self.0.next().map(Ok)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = count.min(self.0.len() as u64);
        self.0.start += skipped as usize;
        Ok(skipped)
    }
}

/// The elements of a list.
pub(crate) struct Listed<T> {
    elements: Arc<[T]>,
    next: usize,
}

impl<T> Listed<T> {
    pub(crate) fn new(elements: Arc<[T]>) -> Listed<T> {
        Listed { elements, next: 0 }
    }
}

impl<T: Clone + Send + Sync> Stream<T> for Listed<T> {
    fn next(&mut self) -> Option<Result<T>> {
        let element = self.elements.get(self.next)?;
        self.next += 1;
        Some(Ok(element.clone()))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = count.min((self.elements.len() - self.next) as u64);
        self.next += skipped as usize;
        Ok(skipped)
    }
}

/// The elements of several streams, one stream after another.
pub(crate) struct Chain<T> {
    pub(crate) streams: std::vec::IntoIter<BoxStream<T>>,
    pub(crate) current: Option<BoxStream<T>>,
}

impl<T> Chain<T> {
    pub(crate) fn new(streams: Vec<BoxStream<T>>) -> Chain<T> {
        let mut streams = streams.into_iter();
        Chain { current: streams.next(), streams }
    }
}

impl<T> Stream<T> for Chain<T> {
    fn next(&mut self) -> Option<Result<T>> {
        while let Some(stream) = &mut self.current {
            if let Some(element) = stream.next() {
                return Some(element);
            }
            self.current = self.streams.next();
        }
        None
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while let Some(stream) = &mut self.current {
            skipped += stream.skip(count - skipped)?;
            if skipped == count {
                break;
            }
            self.current = self.streams.next();
        }
        Ok(skipped)
    }
}
