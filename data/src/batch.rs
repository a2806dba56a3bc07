//! Batches, which combine several elements.

use crate::columns::Columns;
use crate::stream::{BoxStream, Stream};
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use std::sync::Arc;

/// Elements that can be combined into batches.
///
/// Tensors are stacked in a new first dimension, numbers become a tensor, strings a `Vec`, and tuples are batched member
/// by member.
#[diagnostic::on_unimplemented(
    message = "elements of type `{Self}` cannot be batched",
    note = "tensors, numbers, strings, and tuples of them can; use Dataset::map to turn an element into tensors"
)]
pub trait Batch: Sized + Send + 'static {
    /// The type of a batch.
    type Batched: Send + 'static;

    /// Combines at least one element into a batch.
    ///
    /// Fails if candle cannot stack the tensors.
    fn batch(elements: Vec<Self>) -> candle_core::Result<Self::Batched>;

    /// Combines elements into a batch. Tensors of different sizes are padded with zeros at their ends, to the greatest size in
    /// each dimension. Numbers and strings are not padded.
    fn padded_batch(elements: Vec<Self>) -> candle_core::Result<Self::Batched> {
        Self::batch(elements)
    }

    /// Makes a batch from the tensors that hold its rows. Only elements that are [`Columns`] have such batches.
    #[doc(hidden)]
    fn of_columns(_: Vec<Tensor>) -> Option<Self::Batched> {
        None
    }
}

impl Batch for Tensor {
    type Batched = Tensor;

    fn batch(elements: Vec<Tensor>) -> candle_core::Result<Tensor> {
        Tensor::stack(&elements, 0)
    }

    fn padded_batch(elements: Vec<Tensor>) -> candle_core::Result<Tensor> {
        let dimensions = elements.first().map_or(0, Tensor::rank);
        let size = |dimension| elements.iter().filter_map(move |tensor| tensor.dims().get(dimension)).max().copied();
        let greatest: Vec<usize> = (0..dimensions).filter_map(size).collect();
        let pad = |tensor: &Tensor| {
            let missing = |(dimension, greatest): (usize, &usize)| {
                Some((dimension, greatest - tensor.dims().get(dimension)?)).filter(|(_, missing)| *missing > 0)
            };
            let mut missing = greatest.iter().enumerate().filter_map(missing);
            missing
                .try_fold(tensor.clone(), |tensor, (dimension, missing)| tensor.pad_with_zeros(dimension, 0, missing))
        };
        Tensor::stack(&elements.iter().map(pad).collect::<candle_core::Result<Vec<_>>>()?, 0)
    }

    fn of_columns(columns: Vec<Tensor>) -> Option<Tensor> {
        Some(Columns::of_columns(columns))
    }
}

macro_rules! numbers {
    ($($kind:ty)*) => {$(
        impl Batch for $kind {
            type Batched = Tensor;

            fn batch(elements: Vec<$kind>) -> candle_core::Result<Tensor> {
                let count = elements.len();
                Tensor::from_vec(elements, count, &Device::Cpu)
            }
        }
    )*};
}

numbers!(u8 u32 i64 f32 f64);

impl Batch for String {
    type Batched = Vec<String>;

    fn batch(elements: Vec<String>) -> candle_core::Result<Vec<String>> {
        Ok(elements)
    }
}

macro_rules! tuples {
    ($(($($index:tt $kind:ident $list:ident),+))*) => {$(
        impl<$($kind: Batch),+> Batch for ($($kind,)+) {
            type Batched = ($($kind::Batched,)+);

            fn batch(elements: Vec<Self>) -> candle_core::Result<Self::Batched> {
                $(let mut $list = Vec::with_capacity(elements.len());)+
                for element in elements {
                    $($list.push(element.$index);)+
                }
                Ok(($($kind::batch($list)?,)+))
            }

            fn padded_batch(elements: Vec<Self>) -> candle_core::Result<Self::Batched> {
                $(let mut $list = Vec::with_capacity(elements.len());)+
                for element in elements {
                    $($list.push(element.$index);)+
                }
                Ok(($($kind::padded_batch($list)?,)+))
            }

            fn of_columns(columns: Vec<Tensor>) -> Option<Self::Batched> {
                let mut columns = columns.into_iter();
                Some(($($kind::of_columns(vec![columns.next()?])?,)+))
            }
        }
    )*};
}

tuples! {
    (0 A a, 1 B b)
    (0 A a, 1 B b, 2 C c)
    (0 A a, 1 B b, 2 C c, 3 D d)
    (0 A a, 1 B b, 2 C c, 3 D d, 4 E e)
    (0 A a, 1 B b, 2 C c, 3 D d, 4 E e, 5 F f)
}

/// The number of elements in a batch, and whether a smaller last batch is dropped.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) elements: usize,
    pub(crate) drops_remainder: bool,
}

impl Size {
    /// The number of batches that are made from this number of elements.
    pub(crate) fn batches(self, elements: u64) -> u64 {
        let size = self.elements as u64;
        if self.drops_remainder { elements / size } else { elements.div_ceil(size) }
    }

    /// Skips the elements of some batches, and returns the number of skipped batches.
    pub(crate) fn skip<X>(self, count: u64, stream: &mut (impl Stream<X> + ?Sized)) -> Result<u64> {
        Ok(self.batches(stream.skip(count.saturating_mul(self.elements as u64))?))
    }

    /// The elements of a stream's next batch, if there is one.
    fn collect<X>(self, stream: &mut BoxStream<X>) -> Option<Result<Vec<X>>> {
        // The size may be greater than the dataset, so the reserved memory has a limit.
        let mut elements = Vec::with_capacity(self.elements.min(4096));
        while elements.len() < self.elements {
            match stream.next() {
                Some(Ok(element)) => elements.push(element),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        let is_whole = elements.len() == self.elements;
        (is_whole || !elements.is_empty() && !self.drops_remainder).then_some(Ok(elements))
    }
}

/// Batches of a stream's elements.
pub(crate) struct Batches<X, B> {
    pub(crate) stream: BoxStream<X>,
    pub(crate) size: Size,
    /// The index of the next batch.
    pub(crate) index: u64,
    pub(crate) batch: Arc<dyn Fn(Vec<X>) -> candle_core::Result<B> + Send + Sync>,
}

impl<X, B> Stream<B> for Batches<X, B> {
    fn next(&mut self) -> Option<Result<B>> {
        let elements = match self.size.collect(&mut self.stream)? {
            Ok(elements) => elements,
            Err(error) => return Some(Err(error)),
        };
        let index = self.index;
        self.index += 1;
        Some((self.batch)(elements).map_err(|source| DataError::Batch { index, source }))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = self.size.skip(count, &mut *self.stream)?;
        self.index += skipped;
        Ok(skipped)
    }
}

/// Makes a batch of elements of type `T` from the tensors that hold its rows.
pub(crate) fn of_columns<T: Batch>(columns: Vec<Tensor>) -> T::Batched {
    T::of_columns(columns).expect("only tensors and tuples of them are rows, and both have a batch of columns")
}
