//! The constructors of datasets from tensors, iterators and other datasets.

use super::Dataset;
use crate::columns::{Columns, Table};
use crate::map::Calls;
use crate::rows::{Origin, Rows};
use crate::stream::{BoxStream, Chain, Open, Pass, Stream};
use crate::{DataError, Result};
use std::sync::Arc;

impl<T: Columns> Dataset<T> {
    /// A dataset with one element for each row: element `i` is row `i` of a tensor, or the tuple of row `i` of each tensor.
    ///
    /// Copies nothing. [`Dataset::batch`] takes all rows of a batch at once, and consecutive rows are a view.
    ///
    /// Fails if a tensor has no dimensions, or if the tensors have different numbers of rows.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_data::Dataset;
    /// let inputs = Tensor::arange(0f32, 6., &Device::Cpu)?.reshape((3, 2))?;
    /// let labels = Tensor::new(&[0u32, 1, 1], &Device::Cpu)?;
    /// let dataset = Dataset::from_tensors((inputs, labels))?;
    /// let (input, label) = dataset.iter().last().expect("there are three elements")?;
    /// assert_eq!(input.to_vec1::<f32>()?, [4., 5.]);
    /// assert_eq!(label.to_scalar::<u32>()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_tensors(tensors: T) -> Result<Dataset<T>> {
        Ok(Dataset::of_rows(Rows::all(Origin::Tensors(Table::new(&tensors.into_columns())?))))
    }

    /// Splits a dataset of tensors into parts, whose sizes are these fractions of the dataset. The elements are in an order that the seed
    /// decides, as in [`Dataset::shuffle`]. No element is in two parts.
    ///
    /// Fails if a fraction is negative, if the fractions' sum is above 1, if the dataset repeats for ever, or after a verb that
    /// makes elements: split before [`Dataset::map`] and [`Dataset::batch`].
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_data::Dataset;
    /// let digits = Dataset::from_tensors(Tensor::arange(0u32, 100, &Device::Cpu)?)?;
    /// let [train, valid, test] = digits.split([0.8, 0.1, 0.1], 7)?;
    /// assert_eq!([train.len(), valid.len(), test.len()], [Some(80), Some(10), Some(10)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split<const N: usize>(&self, fractions: [f64; N], seed: impl Into<Option<u64>>) -> Result<[Dataset<T>; N]> {
        let verb = "split";
        let Some(rows) = self.rows() else {
            return Err(DataError::argument(
                verb,
                "only rows of tensors and images can be split; split before map and batch, and read a table with read",
            ));
        };
        if self.len().is_none() {
            return Err(DataError::argument(verb, "the dataset repeats for ever; split before repeat_forever"));
        }
        let mut parts = rows.split(&fractions, seed.into())?.into_iter();
        Ok(fractions.map(|_| Dataset::of_rows(parts.next().expect("there is a part for each fraction"))))
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// A dataset of the items of an iterator, which is cloned for each pass: a range, a `Vec`, or an iterator that adapters make
    /// from them.
    #[expect(clippy::should_implement_trait, reason = "FromIterator takes iterators that cannot be cloned")]
    pub fn from_iter<I>(items: I) -> Dataset<T>
    where
        I: IntoIterator<Item = T> + Clone + Send + Sync + 'static,
        I::IntoIter: Send + 'static,
    {
        let len = match items.clone().into_iter().size_hint() {
            (low, Some(high)) if low == high => Some(low as u64),
            _ => None,
        };
        let open = move |pass| {
            let calls = Calls::new("from_iter", pass);
            Ok(Box::new(Items { items: items.clone().into_iter(), calls, index: 0 }) as BoxStream<T>)
        };
        Dataset::made(Arc::new(open), len)
    }

    /// The elements of this dataset, and then those of the other dataset.
    pub fn concat(&self, other: &Dataset<T>) -> Dataset<T> {
        let opens = [self.opener(), other.opener()];
        let len = self.len.and_then(|len| len.checked_add(other.len?));
        let open = move |pass: Pass| {
            let streams = (0..).zip(&opens).map(|(index, open)| open(pass.input(index)));
            Ok(Box::new(Chain::new(streams.collect::<Result<_>>()?)) as BoxStream<T>)
        };
        Dataset { has_preview: self.has_preview, ..Dataset::made(Arc::new(open), len) }
    }

    /// Pairs of an element of this dataset and an element of the other dataset. The shorter dataset decides the number of pairs.
    pub fn zip<U: Send + 'static>(&self, other: &Dataset<U>) -> Dataset<(T, U)> {
        let (left, right) = (self.opener(), other.opener());
        let len = match [self.len, other.len] {
            [Some(left), Some(right)] => Some(left.min(right)),
            _ => None,
        };
        let open: Open<(T, U)> =
            Arc::new(move |pass| Ok(Box::new(Zipped { left: left(pass.input(0))?, right: right(pass.input(1))? })));
        Dataset { has_preview: self.has_preview && other.has_preview, ..Dataset::made(open, len) }
    }
}

struct Items<I> {
    items: I,
    calls: Calls,
    index: u64,
}

impl<T, I: Iterator<Item = T> + Send> Stream<T> for Items<I> {
    fn next(&mut self) -> Option<Result<T>> {
        let index = self.index;
        self.index += 1;
        self.calls.call(index, || Ok(self.items.next())).transpose()
    }
}

struct Zipped<T, U> {
    left: BoxStream<T>,
    right: BoxStream<U>,
}

impl<T, U> Stream<(T, U)> for Zipped<T, U> {
    fn next(&mut self) -> Option<Result<(T, U)>> {
        let pair = (self.left.next()?, self.right.next()?);
        Some(match pair {
            (Ok(left), Ok(right)) => Ok((left, right)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        })
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        Ok(self.left.skip(count)?.min(self.right.skip(count)?))
    }
}
