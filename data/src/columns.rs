//! Elements that are rows of tensors: a tensor, or a tuple of tensors.

use crate::stream::{BoxStream, Stream};
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use std::sync::Arc;

/// Elements that consist of tensors: a tensor, or a tuple of two to six tensors.
///
/// In the tensors of a dataset, element `i` consists of row `i` of each tensor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a tensor nor a tuple of tensors",
    note = "Dataset::from_iter takes elements of any type"
)]
pub trait Columns: Sized + Send + 'static {
    /// The number of tensors in an element.
    #[doc(hidden)]
    const COLUMNS: usize;

    /// Returns the tensors, in the order of the tuple.
    fn into_columns(self) -> Vec<Tensor>;

    /// Makes an element from as many tensors as [`Columns::into_columns`] returns.
    #[doc(hidden)]
    fn of_columns(columns: Vec<Tensor>) -> Self;
}

impl Columns for Tensor {
    const COLUMNS: usize = 1;

    fn into_columns(self) -> Vec<Tensor> {
        vec![self]
    }

    fn of_columns(mut columns: Vec<Tensor>) -> Tensor {
        columns.swap_remove(0)
    }
}

macro_rules! tuples {
    ($(($($index:tt $kind:ident),+))*) => {$(
        impl Columns for ($($kind,)+) {
            const COLUMNS: usize = [$($index),+].len();

            fn into_columns(self) -> Vec<Tensor> {
                vec![$(self.$index),+]
            }

            fn of_columns(columns: Vec<Tensor>) -> Self {
                let mut columns = columns.into_iter();
                ($(columns.next().expect(concat!("a row has as many tensors as its table, more than ", $index)),)+)
            }
        }
    )*};
}

tuples! {
    (0 Tensor, 1 Tensor)
    (0 Tensor, 1 Tensor, 2 Tensor)
    (0 Tensor, 1 Tensor, 2 Tensor, 3 Tensor)
    (0 Tensor, 1 Tensor, 2 Tensor, 3 Tensor, 4 Tensor)
    (0 Tensor, 1 Tensor, 2 Tensor, 3 Tensor, 4 Tensor, 5 Tensor)
}

/// A function that makes an element from its tensors. All other work on a dataset of rows is the same for all types of elements, so
/// that it is compiled here and not in each cell.
pub(crate) type OfColumns<T> = fn(Vec<Tensor>) -> T;

/// A stream that makes elements from their tensors.
pub(crate) struct FromColumns<T> {
    pub(crate) columns: BoxStream<Vec<Tensor>>,
    pub(crate) of_columns: OfColumns<T>,
}

impl<T> Stream<T> for FromColumns<T> {
    fn next(&mut self) -> Option<Result<T>> {
        Some(self.columns.next()?.map(self.of_columns))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.columns.skip(count)
    }
}

/// Tensors with the same number of rows.
#[derive(Clone)]
pub(crate) struct Table {
    columns: Arc<[Tensor]>,
    rows: usize,
}

impl Table {
    /// Checks the tensors. Fails if they have no dimensions, or different numbers of rows.
    pub(crate) fn new(columns: &[Tensor]) -> Result<Table> {
        let verb = "from_tensors";
        let mut rows = None;
        for (index, column) in columns.iter().enumerate() {
            let Some(length) = column.dims().first() else {
                return Err(DataError::argument(verb, format!("tensor {index} has no dimensions, and so no rows")));
            };
            if *rows.get_or_insert(*length) != *length {
                let [first, this] = [rows.unwrap_or_default(), *length];
                let reason = format!("tensor 0 has {first} rows and tensor {index} has {this}; they need equally many");
                return Err(DataError::argument(verb, reason));
            }
        }
        // Without this, each row would keep the history of its tensor's operations.
        let columns = columns.iter().map(Tensor::detach).collect();
        Ok(Table { columns, rows: rows.unwrap_or_default() })
    }

    pub(crate) fn columns(&self) -> &[Tensor] {
        &self.columns
    }

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn row(&self, index: usize) -> Result<Vec<Tensor>> {
        let row = |column: &Tensor| column.get(index);
        let columns: candle_core::Result<Vec<Tensor>> = self.columns.iter().map(row).collect();
        columns.map_err(|source| DataError::Row { index, source })
    }

    /// The tensors of several rows. Rows that follow each other are a view, without a copy.
    pub(crate) fn gather(&self, rows: &[usize]) -> candle_core::Result<Vec<Tensor>> {
        let first = rows.first().copied().unwrap_or_default();
        if rows.iter().enumerate().all(|(offset, row)| *row == first + offset) {
            return self.columns.iter().map(|column| column.narrow(0, first, rows.len())).collect();
        }
        let indexes: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        let indexes = Tensor::from_vec(indexes, rows.len(), &Device::Cpu)?;
        self.columns.iter().map(|column| column.index_select(&indexes.to_device(column.device())?, 0)).collect()
    }
}
