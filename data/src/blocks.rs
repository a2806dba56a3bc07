//! Rows that are read from files block by block. A batch takes its rows in pieces, not one by one. A resumed pass skips whole
//! blocks without reading them if the numbers of rows in the blocks are known.

use crate::Result;
use crate::batch::Size;
use crate::reader::{Files, Readers, tensor};
use crate::stream::{BoxStream, Stream};
use crate::{DataError, reader};
use candle_core::Tensor;
use ferrotune_reader::{Block, Request, Source};
use std::sync::Arc;

/// A source whose rows are read from files.
pub(crate) struct Blocks(Arc<Files>);

impl Blocks {
    /// Opens the rows of a source. Fails if that is not possible.
    pub(crate) fn of(source: Source) -> Result<Blocks> {
        let (files, _) = Files::open(source)?;
        Ok(Blocks(Arc::new(files)))
    }

    /// Opens a stream of the tensors of each row.
    pub(crate) fn open(&self) -> BoxStream<Vec<Tensor>> {
        Box::new(BlockRows(Rows::new(self)))
    }

    /// Opens a stream of the tensors of each batch.
    pub(crate) fn batches(&self, size: Size) -> BoxStream<Vec<Tensor>> {
        Box::new(BlockBatches { rows: Rows::new(self), size, index: 0 })
    }

    /// The number of rows, if it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.0.rows.as_ref().map(|rows| rows.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows)))
    }
}

/// The arrays of a source's blocks, in order.
pub(crate) struct Arrays {
    readers: Readers,
    /// The largest number of readers.
    ahead: u64,
    /// The number of blocks, if it is known.
    len: Option<u64>,
    /// The number of the next block to request.
    next: u64,
}

impl Arrays {
    /// Uses several readers if the number of blocks is known. Otherwise it uses one, because blocks must be requested in turn.
    pub(crate) fn new(files: &Arc<Files>) -> Arrays {
        let len = files.rows.as_ref().map(|rows| rows.len() as u64);
        let ahead = len.map_or(1, |len| len.min(reader::cores() as u64).max(1));
        Arrays { readers: Readers::new(Arc::clone(files), ahead as usize), ahead, len, next: 0 }
    }

    /// The arrays of the next block.
    pub(crate) fn next(&mut self) -> Result<Option<Block>> {
        let may_ask = |next| self.len.is_none_or(|len| next < len);
        while self.readers.waiting() < self.ahead && may_ask(self.next) {
            self.readers.ask(&Request::Block(self.next))?;
            self.next += 1;
        }
        if self.readers.waiting() == 0 {
            return Ok(None);
        }
        let block = self.readers.take()?;
        if block.is_none() && self.len.is_some() {
            return Err(self.readers.changed());
        }
        // The reader works on its next block while the caller uses this block.
        if block.is_some() && may_ask(self.next) {
            self.readers.ask(&Request::Block(self.next))?;
            self.next += 1;
        }
        Ok(block)
    }
}

/// The rows of blocks, several rows at once.
struct Rows {
    arrays: Arrays,
    files: Arc<Files>,
    /// The number of the next block that arrives.
    coming: usize,
    /// The present block, and its next row.
    block: Option<(Vec<Tensor>, usize)>,
    /// The number of rows to skip at the beginning of the next blocks.
    left_out: u64,
}

impl Rows {
    fn new(Blocks(files): &Blocks) -> Rows {
        let files = Arc::clone(files);
        Rows { arrays: Arrays::new(&files), files, coming: 0, block: None, left_out: 0 }
    }

    /// The next rows of one block, at most `at_most`; `None` after the last row.
    fn next(&mut self, at_most: usize) -> Result<Option<Vec<Tensor>>> {
        loop {
            if let Some((columns, row)) = &mut self.block {
                let rows = columns.first().map_or(0, |column| column.dims()[0]);
                let skipped = (self.left_out).min((rows - *row) as u64);
                *row += skipped as usize;
                self.left_out -= skipped;
                let count = at_most.min(rows - *row);
                if count > 0 {
                    let taken = columns.iter().map(|column| column.narrow(0, *row, count)).collect();
                    *row += count;
                    return Ok(Some(unread(taken)?));
                }
            }
            let Some(arrays) = self.arrays.next()? else { return Ok(None) };
            let columns: Vec<Tensor> = arrays.iter().map(tensor).collect::<Result<_>>()?;
            let rows = columns.first().map_or(0, |column| column.dims()[0]) as u64;
            if self.files.rows.as_ref().is_some_and(|known| known[self.coming] != rows) {
                return Err(self.arrays.readers.changed());
            }
            self.coming += 1;
            self.block = Some((columns, 0));
        }
    }

    /// Skips rows. Before the first read, it does not read blocks of which all rows are skipped.
    fn skip(&mut self, count: u64) -> Result<u64> {
        let Some(known) = self.files.rows.as_ref().filter(|_| self.arrays.readers.is_untouched()) else {
            let mut left = count;
            while left > 0 {
                let Some(rows) = self.next(left.min(1 << 20) as usize)? else { break };
                left -= rows.first().map_or(0, |column| column.dims()[0]) as u64;
            }
            return Ok(count - left);
        };
        // An earlier call may have skipped rows of the next block.
        let mut left = u128::from(self.left_out) + u128::from(count);
        self.left_out = 0;
        for rows in &known[self.coming..] {
            if u128::from(*rows) > left {
                self.left_out = left as u64; // it is less than `rows`
                return Ok(count);
            }
            left -= u128::from(*rows);
            self.coming += 1;
            self.arrays.next += 1;
        }
        Ok(count - left as u64) // the rows that an earlier call skipped are fewer than those of their block
    }
}

fn unread<X>(result: candle_core::Result<X>) -> Result<X> {
    result.map_err(|error| DataError::Unread { reason: error.to_string() })
}

/// A stream of single rows.
struct BlockRows(Rows);

impl Stream<Vec<Tensor>> for BlockRows {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        let columns = self.0.next(1).transpose()?;
        Some(columns.and_then(|columns| unread(columns.iter().map(|column| column.get(0)).collect())))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.0.skip(count)
    }
}

/// A stream of batches of rows.
struct BlockBatches {
    rows: Rows,
    size: Size,
    /// The index of the next batch.
    index: u64,
}

impl BlockBatches {
    /// The pieces of blocks that make the next batch.
    fn pieces(&mut self) -> Result<Vec<Vec<Tensor>>> {
        let (mut pieces, mut rows) = (Vec::new(), 0);
        while rows < self.size.elements
            && let Some(piece) = self.rows.next(self.size.elements - rows)?
        {
            rows += piece.first().map_or(0, |column| column.dims()[0]);
            pieces.push(piece);
        }
        if rows < self.size.elements && self.size.drops_remainder {
            pieces.clear();
        }
        Ok(pieces)
    }
}

impl Stream<Vec<Tensor>> for BlockBatches {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        let mut pieces = match self.pieces() {
            Ok(pieces) if pieces.is_empty() => return None,
            Ok(pieces) => pieces,
            Err(error) => return Some(Err(error)),
        };
        let index = self.index;
        self.index += 1;
        let columns = if pieces.len() == 1 {
            Ok(pieces.remove(0))
        } else {
            let column = |number: usize| {
                let parts: Vec<&Tensor> = pieces.iter().map(|piece| &piece[number]).collect();
                Tensor::cat(&parts, 0)
            };
            (0..pieces[0].len()).map(column).collect()
        };
        Some(columns.map_err(|source| DataError::Batch { index, source }))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let rows = self.rows.skip(count.saturating_mul(self.size.elements as u64))?;
        let skipped = self.size.batches(rows);
        self.index += skipped;
        Ok(skipped)
    }
}
