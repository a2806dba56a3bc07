//! Rows of tensors: which ones, and in what order, is known without the tensors. So batches take their rows at once, and a
//! dataset of rows travels to a trial.

use crate::Result;
use crate::columns::{Columns, Table};
use crate::dataset::Dataset;
use crate::stream::{BoxStream, Listed, Numbers, Open, Stream};
use crate::verb::Verb;
use ferrotune_trial::{Pack, Share, ShareError, Shared};
use std::sync::Arc;

/// Rows of a table, in the order that verbs give them.
pub(crate) struct Rows<T> {
    pub(crate) table: Table<T>,
    /// The rows before all verbs; `None` for all of the table.
    chosen: Option<Arc<[usize]>>,
    verbs: Vec<Verb>,
}

impl<T> Clone for Rows<T> {
    fn clone(&self) -> Rows<T> {
        Rows { table: self.table.clone(), chosen: self.chosen.clone(), verbs: self.verbs.clone() }
    }
}

impl<T> Rows<T> {
    pub(crate) fn all(table: Table<T>) -> Rows<T> {
        Rows { table, chosen: None, verbs: Vec::new() }
    }

    pub(crate) fn chosen(table: Table<T>, rows: Arc<[usize]>) -> Rows<T> {
        Rows { table, chosen: Some(rows), verbs: Vec::new() }
    }

    pub(crate) fn then(mut self, verb: Verb) -> Rows<T> {
        self.verbs.push(verb);
        self
    }

    /// How many there are, where that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        let before = self.chosen.as_ref().map_or(self.table.len(), |rows| rows.len());
        self.verbs.iter().try_fold(before as u64, |before, verb| verb.len(Some(before)))
    }

    /// What makes streams of their numbers.
    pub(crate) fn numbers(&self) -> Open<usize> {
        let (all, chosen) = (0..self.table.len(), self.chosen.clone());
        let open: Open<usize> = Arc::new(move |_| match &chosen {
            None => Ok(Box::new(Numbers(all.clone()))),
            Some(rows) => Ok(Box::new(Listed::new(Arc::clone(rows)))),
        });
        self.verbs.iter().fold(open, |open, verb| verb.apply(open))
    }
}

/// The rows of a table with these numbers.
pub(crate) struct RowStream<T> {
    pub(crate) table: Table<T>,
    pub(crate) numbers: BoxStream<usize>,
}

impl<T: Send + 'static> Stream<T> for RowStream<T> {
    fn next(&mut self) -> Option<Result<T>> {
        Some(self.numbers.next()?.and_then(|number| self.table.row(number)))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.numbers.skip(count)
    }
}

/// Trials map the tensors, and copy none; a part of a [`split`](Dataset::split) is packed without the other parts.
///
/// Fails after a verb that has functions or makes elements, such as [`Dataset::map`] and [`Dataset::batch`]: call it in the
/// objective.
impl<T: Columns> Share for Dataset<T> {
    fn pack(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let Some(rows) = self.rows() else {
            let reason = "only rows of tensors travel to a trial; call map, batch and what follows in the objective";
            return Err(failed(candle_core::Error::Msg(reason.to_owned())));
        };
        let columns = match &rows.chosen {
            None => rows.table.columns().to_vec(),
            Some(chosen) => rows.table.gather(chosen).map_err(failed)?,
        };
        columns.pack(name, pack)?;
        let verbs = serde_json::to_string(&rows.verbs).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        verbs.pack(&format!("{name}.verbs"), pack)
    }

    fn unpack(name: &str, shared: &Shared) -> std::result::Result<Dataset<T>, ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let columns = T::of_columns(Vec::unpack(name, shared)?);
        let verbs = String::unpack(&format!("{name}.verbs"), shared)?;
        let verbs = serde_json::from_str(&verbs).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let table = Table::new(columns).map_err(|error| failed(error.into()))?;
        Ok(Dataset::of_rows(Rows { verbs, ..Rows::all(table) }))
    }
}
