//! Rows of tensors, and images in files. Their choice and their order are known by number, without reading them. So batches take
//! their rows at once, skipped images are not read, and a dataset of rows can be sent to a trial.

use crate::batch::{Batches, Size};
use crate::columns::Table;
use crate::images::{self, ImageBatches, Images};
use crate::stream::{BoxStream, Listed, Numbers, Open, Pass, Stream};
use crate::verb::Verb;
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use ferrotune_state::{Pack, Share, ShareError, Shared, current_seed};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The numbered rows from which datasets choose.
#[derive(Clone)]
pub(crate) enum Origin {
    Tensors(Table),
    Images(Images),
}

impl Origin {
    fn len(&self) -> usize {
        match self {
            Origin::Tensors(table) => table.len(),
            Origin::Images(images) => images.len(),
        }
    }
}

/// Rows in the order that verbs give them.
#[derive(Clone)]
pub(crate) struct Rows {
    origin: Origin,
    /// The numbers of the rows before all verbs, or `None` for all rows.
    chosen: Option<Arc<[usize]>>,
    verbs: Vec<Verb>,
}

impl Rows {
    /// All rows of an origin, in their own order.
    pub(crate) fn all(origin: Origin) -> Rows {
        Rows { origin, chosen: None, verbs: Vec::new() }
    }

    /// The rows after one more verb.
    pub(crate) fn then(&self, verb: Verb) -> Rows {
        let mut rows = self.clone();
        rows.verbs.push(verb);
        rows
    }

    /// The numbers of the rows in this pass.
    fn numbers(&self, pass: Pass) -> Result<BoxStream<usize>> {
        let (all, chosen) = (0..self.origin.len(), self.chosen.clone());
        let open: Open<usize> = Arc::new(move |_| match &chosen {
            None => Ok(Box::new(Numbers(all.clone()))),
            Some(rows) => Ok(Box::new(Listed::new(Arc::clone(rows)))),
        });
        self.verbs.iter().fold(open, |open, verb| verb.apply(open))(pass)
    }

    /// Splits the rows into parts with these fractions of them, in an order that the seed decides.
    pub(crate) fn split(&self, fractions: &[f64], seed: Option<u64>) -> Result<Vec<Rows>> {
        let sum: f64 = fractions.iter().sum();
        let is_valid = fractions.iter().all(|fraction| (0. ..=1.).contains(fraction)) && sum <= 1. + 1e-9;
        if !is_valid {
            let reason = format!("the fractions {fractions:?} need to be between 0 and 1, and their sum at most 1");
            return Err(DataError::argument("split", reason));
        }
        let mut stream = self.numbers(Pass::new(0))?;
        let mut numbers = std::iter::from_fn(|| stream.next()).collect::<Result<Vec<usize>>>()?;
        numbers.shuffle(&mut Pcg64::seed_from_u64(seed.unwrap_or_else(current_seed)));
        let mut begin = 0;
        let mut until = 0.;
        let part = |fraction: &f64| {
            until += fraction;
            // Rounded, because sums such as 0.8 + 0.1 + 0.1 are not exact.
            let end = ((until * numbers.len() as f64).round() as usize).min(numbers.len());
            let chosen = Some(numbers[begin..end].into());
            begin = end;
            Rows { chosen, ..Rows::all(self.origin.clone()) }
        };
        Ok(fractions.iter().map(part).collect())
    }

    /// Packs the chosen rows and the verbs. Of images, only the paths are packed.
    pub(crate) fn pack(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let (columns, images) = match (&self.origin, &self.chosen) {
            (Origin::Tensors(table), None) => (table.columns().to_vec(), None),
            (Origin::Tensors(table), Some(chosen)) => (table.gather(chosen).map_err(failed)?, None),
            (Origin::Images(images), chosen) => (Vec::new(), Some(images.describe(chosen.as_deref()))),
        };
        columns.pack(name, pack)?;
        let description = Description { verbs: self.verbs.clone(), images };
        // The description is a tensor, because texts are in the header of the shared data, whose size is limited.
        let description = serde_json::to_vec(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let bytes = description.len();
        let description = Tensor::from_vec(description, bytes, &Device::Cpu).map_err(failed)?;
        description.pack(&format!("{name}.rows"), pack)
    }

    /// The rows that were packed under `name`.
    pub(crate) fn unpack(name: &str, shared: &Shared) -> std::result::Result<Rows, ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let columns: Vec<Tensor> = Vec::unpack(name, shared)?;
        let description = Tensor::unpack(&format!("{name}.rows"), shared)?.to_vec1::<u8>().map_err(failed)?;
        let Description { verbs, images } =
            serde_json::from_slice(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let origin = match images {
            Some(images) => Origin::Images(Images::described(images)),
            None => Origin::Tensors(Table::new(&columns).map_err(|error| failed(error.into()))?),
        };
        Ok(Rows { verbs, ..Rows::all(origin) })
    }

    /// Opens a stream of the tensors of each row.
    pub(crate) fn open(&self, pass: Pass) -> Result<BoxStream<Vec<Tensor>>> {
        let numbers = self.numbers(pass)?;
        Ok(match &self.origin {
            Origin::Tensors(table) => Box::new(RowStream { table: table.clone(), numbers }),
            Origin::Images(images) => Box::new(images.open(numbers)),
        })
    }

    /// Opens a stream of the tensors of each batch.
    pub(crate) fn batches(&self, size: Size, pass: Pass) -> Result<BoxStream<Vec<Tensor>>> {
        let (numbers, index) = (self.numbers(pass)?, 0);
        Ok(match &self.origin {
            Origin::Tensors(table) => {
                let table = table.clone();
                let batch = Arc::new(move |rows: Vec<usize>| table.gather(&rows));
                Box::new(Batches { stream: numbers, size, index, batch })
            }
            Origin::Images(images) => {
                Box::new(ImageBatches { images: images.open(numbers), size, len: self.len(), index })
            }
        })
    }

    /// The number of rows after all verbs, if it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        let before = self.chosen.as_ref().map_or(self.origin.len(), |rows| rows.len());
        self.verbs.iter().try_fold(before as u64, |before, verb| verb.len(Some(before)))
    }
}

/// The rows of a table whose numbers come from a stream.
struct RowStream {
    table: Table,
    numbers: BoxStream<usize>,
}

impl Stream<Vec<Tensor>> for RowStream {
    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        Some(self.numbers.next()?.and_then(|number| self.table.row(number)))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.numbers.skip(count)
    }
}

/// The description that is sent to a trial with the tensors.
#[derive(Serialize, Deserialize)]
struct Description {
    verbs: Vec<Verb>,
    images: Option<images::Description>,
}
