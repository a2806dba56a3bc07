//! The sources of elements that consist of tensors.

use crate::Result;
use crate::batch::Size;
use crate::blocks::Blocks;
use crate::rows::Rows;
use crate::stream::{BoxStream, Pass};
use candle_core::Tensor;

/// A source of the tensors of elements.
pub(crate) enum ColumnSource {
    /// Numbered rows, whose order verbs can change without reading them.
    Rows(Rows),
    /// Rows that are read one after another.
    Blocks(Blocks),
}

impl ColumnSource {
    /// Opens a stream of the tensors of each element.
    pub(crate) fn open(&self, pass: Pass) -> Result<BoxStream<Vec<Tensor>>> {
        match self {
            ColumnSource::Rows(rows) => rows.open(pass),
            ColumnSource::Blocks(blocks) => Ok(blocks.open()),
        }
    }

    /// Opens a stream of the tensors of each batch.
    pub(crate) fn batches(&self, size: Size, pass: Pass) -> Result<BoxStream<Vec<Tensor>>> {
        match self {
            ColumnSource::Rows(rows) => rows.batches(size, pass),
            ColumnSource::Blocks(blocks) => Ok(blocks.batches(size)),
        }
    }

    /// The number of elements, if it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            ColumnSource::Rows(rows) => rows.len(),
            ColumnSource::Blocks(blocks) => blocks.len(),
        }
    }

    /// The source as numbered rows, unless its rows are read one after another.
    pub(crate) fn rows(&self) -> Option<&Rows> {
        match self {
            ColumnSource::Rows(rows) => Some(rows),
            ColumnSource::Blocks(_) => None,
        }
    }
}
