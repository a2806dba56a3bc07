//! Arrays that candle fills part by part, as in `Tensor::cat`. They become one concatenation instead of a copy of the array for each part.

use crate::graph::{Array as _, Node, Op};
use candle_core::external::Slot;
use std::sync::{Arc, OnceLock, Weak};

/// The place of a part in an array that is read as a matrix of `rows` × `width`: all rows, from `column` on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) column: usize,
}

/// An array read as a matrix, some columns of which are new.
pub(crate) struct Parts {
    rows: usize,
    width: usize,
    /// The first column and the matrix of each part. The parts do not overlap.
    parts: Vec<(usize, Arc<Node>)>,
    /// The array whose elements remain in the columns without a part.
    under: Arc<Node>,
    /// The node of the whole array, once it was requested; later requests get the same node.
    whole: OnceLock<Arc<Node>>,
    /// The storage that refers to this array.
    storage: OnceLock<Weak<Slot>>,
}

impl Parts {
    /// The array `under` with `source` as the part at this place.
    pub(crate) fn new(under: &Arc<Node>, place: Place, source: &Arc<Node>) -> Parts {
        let Place { rows, width, column } = place;
        Parts::of(rows, width, vec![(column, source.clone())], under)
    }

    /// Whether a part at this place fits the matrix and overlaps no other part.
    pub(crate) fn has_room(&self, place: Place, source: &Arc<Node>) -> bool {
        let (start, end) = (place.column, place.column + source.dims[1]);
        (self.rows, self.width) == (place.rows, place.width)
            && self.parts.iter().all(|(column, part)| column + part.dims[1] <= start || end <= *column)
    }

    /// Whether elements without a part are arbitrary.
    pub(crate) fn is_over_uninit(&self) -> bool {
        self.under.op == Op::Uninit
    }

    /// This array with one more part.
    pub(crate) fn with(&self, column: usize, source: &Arc<Node>) -> Parts {
        let mut parts = self.parts.clone();
        parts.push((column, source.clone()));
        Parts::of(self.rows, self.width, parts, &self.under)
    }

    fn of(rows: usize, width: usize, parts: Vec<(usize, Arc<Node>)>, under: &Arc<Node>) -> Parts {
        Parts { rows, width, parts, under: under.clone(), whole: OnceLock::new(), storage: OnceLock::new() }
    }

    pub(crate) fn node(&self) -> Arc<Node> {
        self.whole.get_or_init(|| self.concatenated()).clone()
    }

    /// Records the storage that refers to this array.
    pub(crate) fn set_storage(&self, slot: &Arc<Slot>) {
        self.storage.get_or_init(|| Arc::downgrade(slot));
    }

    fn concatenated(&self) -> Arc<Node> {
        let mut parts = self.parts.clone();
        parts.sort_by_key(|(column, _)| *column);
        let under = self.under.reshape(&[self.rows, self.width]);
        let gap = |start: usize, end: usize| under.slice(&[0, start], &[self.rows, end]);
        let (mut pieces, mut filled) = (Vec::new(), 0);
        for (column, part) in parts {
            if column > filled {
                pieces.push(gap(filled, column));
            }
            filled = column + part.dims[1];
            pieces.push(part);
        }
        if filled < self.width {
            pieces.push(gap(filled, self.width));
        }
        match pieces.as_slice() {
            [piece] => piece.clone(),
            _ => {
                let whole = Node::new(Op::Concatenate(1), pieces, &[self.rows, self.width], self.under.element);
                if let Some(slot) = self.storage.get().and_then(Weak::upgrade) {
                    whole.set_storage(&slot);
                }
                whole
            }
        }
    }
}
