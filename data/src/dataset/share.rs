//! Datasets that a trial uses: their rows travel to its process.

use super::Dataset;
use crate::columns::Columns;
use crate::rows::Rows;
use ferrotune_state::{Pack, Share, ShareError, Shared};

/// Trials map the tensors without a copy. A part of a [`split`](Dataset::split) is packed without the other parts. For
/// images, only the paths are sent.
///
/// Fails after a verb that has functions or makes elements, such as [`Dataset::map`] and [`Dataset::batch`]: call such verbs in the
/// objective.
impl<T: Columns> Share for Dataset<T> {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        match self.rows() {
            Some(rows) => rows.pack(name, pack),
            None => Err(made(name)),
        }
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Dataset<T>, ShareError> {
        Rows::unpack(name, shared).map(Dataset::of_rows)
    }
}

fn made(name: &str) -> ShareError {
    let reason = "only rows of tensors and images travel to a trial; call map, batch and what follows in the objective, and \
                  read in place of stream";
    ShareError::Tensor { name: name.to_owned(), source: candle_core::Error::Msg(reason.to_owned()) }
}
