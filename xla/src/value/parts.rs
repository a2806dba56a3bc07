//! Arrays that candle fills part by part, as in `Tensor::cat`: one concatenation in place of a copy of all for each part.

use crate::graph::{Array as _, Node, Op};
use std::sync::{Arc, OnceLock};

/// Where a part lies in an array that is read as a matrix: from a column on, in all rows.
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
    /// The first column of each part, and its matrix. They do not overlap.
    parts: Vec<(usize, Arc<Node>)>,
    /// Where no part lies.
    under: Arc<Node>,
    /// The whole, once it was asked for: who asks twice gets the same node.
    whole: OnceLock<Arc<Node>>,
}

impl Parts {
    /// `under` with `source` in its place.
    pub(crate) fn new(under: &Arc<Node>, place: Place, source: &Arc<Node>) -> Parts {
        let Place { rows, width, column } = place;
        Parts { rows, width, parts: vec![(column, source.clone())], under: under.clone(), whole: OnceLock::new() }
    }

    /// Whether a part of this matrix can lie there beside the others.
    pub(crate) fn has_room(&self, place: Place, source: &Arc<Node>) -> bool {
        let (start, end) = (place.column, place.column + source.dims[1]);
        (self.rows, self.width) == (place.rows, place.width)
            && self.parts.iter().all(|(column, part)| column + part.dims[1] <= start || end <= *column)
    }

    /// The same with one more part.
    pub(crate) fn with(&self, column: usize, source: &Arc<Node>) -> Parts {
        let mut parts = self.parts.clone();
        parts.push((column, source.clone()));
        Parts { parts, under: self.under.clone(), whole: OnceLock::new(), ..*self }
    }

    pub(crate) fn node(&self) -> Arc<Node> {
        self.whole.get_or_init(|| self.concatenated()).clone()
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
            _ => Node::new(Op::Concatenate(1), pieces, &[self.rows, self.width], self.under.element),
        }
    }
}
