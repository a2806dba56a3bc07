//! The verbs that turn one dataset into another.

use super::{Dataset, Elements};
use crate::batch::{self, Batch, Batches, Size};
use crate::cache::cached;
use crate::columns::FromColumns;
use crate::map::{Calls, Filtered, Function, Interleaved, Mapped, Outcome, Predicate};
use crate::parallel::Parallel;
use crate::prefetch::Prefetched;
use crate::stream::{BoxStream, Open, Pass};
use crate::verb::Verb;
use crate::{DataError, Result};
use std::sync::Arc;

impl<T: Send + 'static> Dataset<T> {
    /// The value of a function for each element, computed by `parallelism` threads. The values have the
    /// order of the elements. With 1, the thread that requests an element computes it.
    ///
    /// A panic in the function is an error. Elements that a resumed [`Iter`](crate::Iter) skips are not computed, so
    /// the function must not depend on earlier elements. Random tensors that it makes on the CPU, such as for augmentation,
    /// depend only on the seed (`ferrotune::seed`), the pass and the element.
    pub fn map<U: Send + 'static>(
        &self,
        parallelism: usize,
        function: impl Fn(T) -> Outcome<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let function: Function<T, U> = Arc::new(function);
        self.open_with("map", parallelism, move |stream, pass| {
            let (function, calls) = (Arc::clone(&function), Calls::new("map", pass));
            match parallelism {
                1 => Box::new(Mapped { stream, function, calls, index: 0 }),
                threads => Box::new(Parallel::new(stream, function, calls, threads)),
            }
        })
    }

    /// The elements for which a function returns true.
    pub fn filter(&self, predicate: impl Fn(&T) -> Outcome<bool> + Send + Sync + 'static) -> Dataset<T> {
        let predicate: Predicate<T> = Arc::new(predicate);
        let filtered = self.open_with("filter", 1, move |stream, pass| {
            let (predicate, calls) = (Arc::clone(&predicate), Calls::new("filter", pass));
            Box::new(Filtered { stream, predicate, calls, index: 0 })
        });
        Dataset { len: None, ..filtered }
    }

    /// The elements of several datasets, which a function makes from the elements. `cycle` datasets are open at once, and each in
    /// turn gives `block` elements. When a dataset has ended, the next one replaces it.
    pub fn interleave<U: Send + 'static>(
        &self,
        cycle: usize,
        block: usize,
        function: impl Fn(T) -> Outcome<Dataset<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let function: Function<T, Open<U>> = Arc::new(move |element| Ok(function(element)?.opener()));
        let interleaved = self.open_with("interleave", cycle.min(block), move |stream, pass| {
            let (function, calls) = (Arc::clone(&function), Calls::new("interleave", pass));
            let (pass, open) = (pass.input(1), Default::default());
            Box::new(Interleaved { stream, function, cycle, block: block as u64, calls, pass, index: 0, open })
        });
        Dataset { len: None, ..interleaved }
    }

    /// Elements in a random order: the next one is any of the `buffer` elements that follow. The same seed gives the same
    /// order, and each pass has a different order. `None` is the seed of the process or of the trial
    /// (`ferrotune::seed`). Only a buffer of at least [`Dataset::len`] elements makes every order equally
    /// likely.
    ///
    /// Rows of tensors are shuffled by their numbers, so that a large buffer costs nothing. For other elements the buffer
    /// is in memory. Call it before [`Dataset::map`], so that elements that a resumed pass skips are not computed.
    ///
    /// After it, [`Dataset::take`] and [`Dataset::skip`] choose different elements in each pass, so that validation would get
    /// elements of the training. Make parts with [`Dataset::split`], or shuffle with [`Dataset::shuffle_once`] before.
    pub fn shuffle(&self, buffer: usize, seed: impl Into<Option<u64>>) -> Dataset<T> {
        self.then(Verb::Shuffle { buffer, seed: seed.into() })
    }

    /// Elements in a random order that is the same in each pass, so that [`Dataset::take`] and [`Dataset::skip`] after it
    /// are disjoint parts. The order is that of pass 0 of [`Dataset::shuffle`]. `None` is the present seed of the process or of the
    /// trial.
    ///
    /// ```
    /// # use ferrotune_data::Dataset;
    /// let shuffled = Dataset::from_iter(0..100_u32).shuffle_once(100, 7);
    /// let (valid, train) = (shuffled.take(20), shuffled.skip(20).shuffle(80, 7));
    /// let held_out: Vec<u32> = valid.epoch(0).collect::<Result<_, _>>()?;
    /// assert!(train.epoch(5).all(|number| number.is_ok_and(|number| !held_out.contains(&number))));
    /// # Ok::<(), ferrotune_data::DataError>(())
    /// ```
    pub fn shuffle_once(&self, buffer: usize, seed: impl Into<Option<u64>>) -> Dataset<T> {
        self.then(Verb::once(buffer, seed.into()))
    }

    /// All elements `count` times. An earlier shuffle has a new order in each repetition.
    pub fn repeat(&self, count: u64) -> Dataset<T> {
        self.then(Verb::Repeat(count))
    }

    /// All elements, repeated without an end.
    pub fn repeat_forever(&self) -> Dataset<T> {
        self.then(Verb::RepeatForever)
    }

    /// The first elements, at most `count`. After [`Dataset::shuffle`] they differ from pass to pass.
    pub fn take(&self, count: u64) -> Dataset<T> {
        self.then(Verb::Take(count))
    }

    /// The elements after the first `count`. After [`Dataset::shuffle`] they differ from pass to pass.
    pub fn skip(&self, count: u64) -> Dataset<T> {
        self.then(Verb::Skip(count))
    }

    /// Every `count`-th element, beginning with element `index`: the share of one of `count` workers.
    pub fn shard(&self, index: u64, count: u64) -> Dataset<T> {
        self.then(Verb::Shard { index, count })
    }

    /// The same elements, made by a thread that is up to `count` elements ahead. As the last verb, it makes the next
    /// batch while a step computes.
    pub fn prefetch(&self, count: usize) -> Dataset<T> {
        let dataset = self.open_with("prefetch", count, move |stream, _| Box::new(Prefetched::new(stream, count)));
        Dataset { prefetches: true, has_preview: self.has_preview, ..dataset }
    }

    /// The same elements, which the first whole pass keeps in memory for all later passes. Randomness of earlier verbs happens only
    /// once: shuffle after this verb.
    pub fn cache(&self) -> Dataset<T>
    where
        T: Clone + Sync,
    {
        let has_preview = self.has_preview;
        Dataset { has_preview, ..Dataset::made(cached(self.opener(), Arc::default()), self.len) }
    }

    /// Batches of `size` elements. The last batch has fewer elements if the dataset ends; with `drop_remainder` it is dropped.
    ///
    /// Tensors get a new first dimension; see [`Batch`]. Their shapes and dtypes must be equal.
    pub fn batch(&self, size: usize, drop_remainder: bool) -> Dataset<T::Batched>
    where
        T: Batch,
    {
        let size = Size { elements: size, drops_remainder: drop_remainder };
        match &self.elements {
            Elements::Columns(source, _) => {
                let source = Arc::clone(source);
                self.batched("batch", size, move |pass| {
                    let columns = source.batches(size, pass)?;
                    Ok(Box::new(FromColumns { columns, of_columns: batch::of_columns::<T> }))
                })
            }
            Elements::Made(open) => self.batches("batch", open, size, T::batch),
        }
    }

    /// All elements of pass 0 as one batch, such as for validation.
    ///
    /// Fails if there are no elements, or if their shapes or dtypes differ. For a dataset without an end it never returns.
    #[track_caller]
    pub fn to_tensors(&self) -> Result<T::Batched>
    where
        T: Batch,
    {
        let none = || DataError::argument("to_tensors", "the dataset has no elements");
        self.batch(usize::MAX, false).epoch(0).next().ok_or_else(none)?
    }

    /// Batches, as of [`Dataset::batch`], of tensors with different sizes. The tensors are filled up with zeros at their ends to the
    /// greatest size of the batch in each dimension.
    pub fn padded_batch(&self, size: usize, drop_remainder: bool) -> Dataset<T::Batched>
    where
        T: Batch,
    {
        let size = Size { elements: size, drops_remainder: drop_remainder };
        self.batches("padded_batch", &self.opener(), size, T::padded_batch)
    }

    fn batches<B: Send + 'static>(
        &self,
        verb: &'static str,
        open: &Open<T>,
        size: Size,
        batch: fn(Vec<T>) -> candle_core::Result<B>,
    ) -> Dataset<B> {
        let open = Arc::clone(open);
        self.batched(verb, size, move |pass| {
            Ok(Box::new(Batches { stream: open(pass)?, size, index: 0, batch: Arc::new(batch) }))
        })
    }

    /// A dataset of batches of this dataset's elements.
    fn batched<B: Send + 'static>(
        &self,
        verb: &'static str,
        size: Size,
        open: impl Fn(Pass) -> Result<BoxStream<B>> + Send + Sync + 'static,
    ) -> Dataset<B> {
        let len = self.len.filter(|_| size.elements > 0).map(|len| size.batches(len));
        let open: Open<B> = Arc::new(move |pass| {
            at_least_one(verb, size.elements)?;
            open(pass)
        });
        Dataset { has_preview: self.has_preview, ..Dataset::made(open, len) }
    }

    /// A dataset with the same number of elements, whose streams `wrap` makes from this dataset's. Opening one fails if `count` is 0.
    fn open_with<U: Send + 'static>(
        &self,
        verb: &'static str,
        count: usize,
        wrap: impl Fn(BoxStream<T>, Pass) -> BoxStream<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let open = self.opener();
        let open: Open<U> = Arc::new(move |pass| {
            at_least_one(verb, count)?;
            Ok(wrap(open(pass.input(0))?, pass))
        });
        Dataset::made(open, self.len)
    }
}

fn at_least_one(verb: &'static str, count: usize) -> Result<()> {
    if count == 0 { Err(DataError::argument(verb, "0 is too few; give at least 1")) } else { Ok(()) }
}
