//! Rows of tensors, and images in files: which ones, and in what order, is known without them. So batches take their rows at
//! once, images that are left out are not read, and a dataset of rows travels to a trial.

use crate::Result;
use crate::columns::{Columns, Table};
use crate::dataset::Dataset;
use crate::images::{self, Images};
use crate::stream::{BoxStream, Listed, Numbers, Open, Pass, Stream};
use crate::verb::Verb;
use candle_core::{Device, Tensor};
use ferrotune_trial::{Pack, Share, ShareError, Shared};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is chosen from by number.
pub(crate) enum Origin<T> {
    Tensors(Table<T>),
    Images(Images<T>),
}

impl<T> Clone for Origin<T> {
    fn clone(&self) -> Origin<T> {
        match self {
            Origin::Tensors(table) => Origin::Tensors(table.clone()),
            Origin::Images(images) => Origin::Images(images.clone()),
        }
    }
}

impl<T> Origin<T> {
    fn len(&self) -> usize {
        match self {
            Origin::Tensors(table) => table.len(),
            Origin::Images(images) => images.len(),
        }
    }
}

/// Rows, in the order that verbs give them.
pub(crate) struct Rows<T> {
    pub(crate) origin: Origin<T>,
    /// The rows before all verbs; `None` for all of them.
    chosen: Option<Arc<[usize]>>,
    verbs: Vec<Verb>,
}

impl<T> Clone for Rows<T> {
    fn clone(&self) -> Rows<T> {
        Rows { origin: self.origin.clone(), chosen: self.chosen.clone(), verbs: self.verbs.clone() }
    }
}

impl<T> Rows<T> {
    pub(crate) fn all(origin: Origin<T>) -> Rows<T> {
        Rows { origin, chosen: None, verbs: Vec::new() }
    }

    pub(crate) fn chosen(origin: Origin<T>, rows: Arc<[usize]>) -> Rows<T> {
        Rows { origin, chosen: Some(rows), verbs: Vec::new() }
    }

    pub(crate) fn then(mut self, verb: Verb) -> Rows<T> {
        self.verbs.push(verb);
        self
    }

    /// How many there are, where that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        let before = self.chosen.as_ref().map_or(self.origin.len(), |rows| rows.len());
        self.verbs.iter().try_fold(before as u64, |before, verb| verb.len(Some(before)))
    }

    /// What makes streams of their numbers.
    pub(crate) fn numbers(&self) -> Open<usize> {
        let (all, chosen) = (0..self.origin.len(), self.chosen.clone());
        let open: Open<usize> = Arc::new(move |_| match &chosen {
            None => Ok(Box::new(Numbers(all.clone()))),
            Some(rows) => Ok(Box::new(Listed::new(Arc::clone(rows)))),
        });
        self.verbs.iter().fold(open, |open, verb| verb.apply(open))
    }

    /// The stream of the rows themselves.
    pub(crate) fn open(&self, pass: Pass) -> Result<BoxStream<T>>
    where
        T: Send + 'static,
    {
        let numbers = self.numbers()(pass)?;
        Ok(match &self.origin {
            Origin::Tensors(table) => Box::new(RowStream { table: table.clone(), numbers }),
            Origin::Images(images) => Box::new(images.open(numbers)),
        })
    }
}

/// The rows of a table with these numbers.
struct RowStream<T> {
    table: Table<T>,
    numbers: BoxStream<usize>,
}

impl<T: Send + 'static> Stream<T> for RowStream<T> {
    fn next(&mut self) -> Option<Result<T>> {
        Some(self.numbers.next()?.and_then(|number| self.table.row(number)))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.numbers.skip(count)
    }
}

/// What travels beside the tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    verbs: Vec<Verb>,
    images: Option<images::Description>,
}

/// Trials map the tensors, and copy none; a part of a [`split`](Dataset::split) is packed without the other parts. Of
/// images, the paths travel.
///
/// Fails after a verb that has functions or makes elements, such as [`Dataset::map`] and [`Dataset::batch`]: call it in the
/// objective.
impl<T: Columns> Share for Dataset<T> {
    fn pack(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let Some(rows) = self.rows() else {
            let reason = "only rows of tensors and images travel to a trial; call map, batch and what follows in the objective, and \
                          read in place of stream";
            return Err(failed(candle_core::Error::Msg(reason.to_owned())));
        };
        let (columns, images) = match (&rows.origin, &rows.chosen) {
            (Origin::Tensors(table), None) => (table.columns().to_vec(), None),
            (Origin::Tensors(table), Some(chosen)) => (table.gather(chosen).map_err(failed)?, None),
            (Origin::Images(images), chosen) => (Vec::new(), Some(images.describe(chosen.as_deref()))),
        };
        columns.pack(name, pack)?;
        let description = Description { verbs: rows.verbs.clone(), images };
        // A tensor, since texts are in the header of the shared data, which has an end.
        let description = serde_json::to_vec(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let bytes = description.len();
        let description = Tensor::from_vec(description, bytes, &Device::Cpu).map_err(failed)?;
        description.pack(&format!("{name}.rows"), pack)
    }

    fn unpack(name: &str, shared: &Shared) -> std::result::Result<Dataset<T>, ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let columns: Vec<Tensor> = Vec::unpack(name, shared)?;
        let description = Tensor::unpack(&format!("{name}.rows"), shared)?.to_vec1::<u8>().map_err(failed)?;
        let Description { verbs, images } =
            serde_json::from_slice(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let origin = match images {
            Some(images) => Origin::Images(Images::described(images)),
            None => {
                let table = Table::new(T::of_columns(columns)).map_err(|error| failed(error.into()))?;
                Origin::Tensors(table)
            }
        };
        Ok(Dataset::of_rows(Rows { verbs, ..Rows::all(origin) }))
    }
}
