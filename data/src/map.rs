//! The verbs `map`, `filter` and `interleave`, which call the user's functions. Errors and panics become errors of the element.

use crate::stream::{BoxStream, Open, Pass, Stream};
use crate::{DataError, Result};
use candle_core::random::{Draws, with_draws};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The result of the user's functions: `?` converts errors of candle and all others.
pub(crate) type Outcome<T> = ferrotune_state::Result<T>;

/// A user's function.
pub(crate) type Function<T, U> = Arc<dyn Fn(T) -> Outcome<U> + Send + Sync>;

/// The settings with which a verb calls user's functions in one pass.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    verb: &'static str,
    /// The seed of the random tensors that the functions make.
    seed: u64,
}

impl Calls {
    pub(crate) fn new(verb: &'static str, pass: Pass) -> Calls {
        Calls { verb, seed: pass.seed_of_functions() }
    }

    /// Calls a function for the element with this index. Its random numbers depend on no other element, and on no thread.
    pub(crate) fn call<U>(self, index: u64, function: impl FnOnce() -> Outcome<U>) -> Result<U> {
        // Each element can draw 2³² tensors of its own.
        let draws = Draws { seed: self.seed, drawn: index << 32 };
        match catch_unwind(AssertUnwindSafe(|| with_draws(draws, function))) {
            Ok(outcome) => outcome.map_err(|error| {
                let source = error.into_source();
                DataError::Element { verb: self.verb, index, source }
            }),
            Err(payload) => Err(DataError::panic(self.verb, index, &*payload)),
        }
    }
}

/// The values of a function for a stream's elements, computed in the thread that requests them.
pub(crate) struct Mapped<T, U> {
    pub(crate) stream: BoxStream<T>,
    pub(crate) function: Function<T, U>,
    pub(crate) calls: Calls,
    pub(crate) index: u64,
}

impl<T, U> Stream<U> for Mapped<T, U> {
    fn next(&mut self) -> Option<Result<U>> {
        let element = match self.stream.next()? {
            Ok(element) => element,
            Err(error) => return Some(Err(error)),
        };
        let index = self.index;
        self.index += 1;
        Some(self.calls.call(index, || (self.function)(element)))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = self.stream.skip(count)?;
        self.index += skipped;
        Ok(skipped)
    }
}

pub(crate) type Predicate<T> = Arc<dyn Fn(&T) -> Outcome<bool> + Send + Sync>;

/// The elements of a stream for which a function returns true.
pub(crate) struct Filtered<T> {
    pub(crate) stream: BoxStream<T>,
    pub(crate) predicate: Predicate<T>,
    pub(crate) calls: Calls,
    pub(crate) index: u64,
}

impl<T> Stream<T> for Filtered<T> {
    fn next(&mut self) -> Option<Result<T>> {
        loop {
            let element = match self.stream.next()? {
                Ok(element) => element,
                Err(error) => return Some(Err(error)),
            };
            let index = self.index;
            self.index += 1;
            match self.calls.call(index, || (self.predicate)(&element)) {
                Ok(true) => return Some(Ok(element)),
                Ok(false) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The elements of the datasets that a function makes from a stream's elements: `block` of each in turn, from `cycle` datasets at once.
pub(crate) struct Interleaved<T, U> {
    pub(crate) stream: BoxStream<T>,
    /// Returns a function that opens a dataset.
    pub(crate) function: Function<T, Open<U>>,
    pub(crate) cycle: usize,
    pub(crate) block: u64,
    pub(crate) calls: Calls,
    pub(crate) pass: Pass,
    /// The number of elements of `stream` that have been opened.
    pub(crate) index: u64,
    /// The open datasets' streams, the present one first, each with the number of elements that its block still has.
    pub(crate) open: VecDeque<(BoxStream<U>, u64)>,
}

impl<T, U: Send + 'static> Interleaved<T, U> {
    fn open_more(&mut self) -> Result<()> {
        while self.open.len() < self.cycle
            && let Some(element) = self.stream.next()
        {
            let element = element?;
            let open = self.calls.call(self.index, || (self.function)(element))?;
            self.open.push_back((open(self.pass.child(self.index))?, self.block));
            self.index += 1;
        }
        Ok(())
    }
}

impl<T, U: Send + 'static> Stream<U> for Interleaved<T, U> {
    fn next(&mut self) -> Option<Result<U>> {
        loop {
            if let Err(error) = self.open_more() {
                return Some(Err(error));
            }
            let (mut stream, left) = self.open.pop_front()?;
            if left == 0 {
                self.open.push_back((stream, self.block));
            } else if let Some(element) = stream.next() {
                self.open.push_front((stream, left - 1));
                return Some(element);
            }
        }
    }
}
