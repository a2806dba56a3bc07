//! How a table travels to a trial: the numbers of its columns as tensors, and all else as one text.

use super::Table;
use super::column::{Column, ColumnKind, Values};
use candle_core::{Device, Tensor};
use ferrotune_state::{Pack, Share, ShareError, Shared};
use serde::{Deserialize, Serialize};

/// A table without the numbers of its rows.
#[derive(Serialize, Deserialize)]
struct Description {
    name: String,
    target: Option<usize>,
    columns: Vec<Described>,
}

#[derive(Serialize, Deserialize)]
struct Described {
    name: String,
    kind: ColumnKind,
    note: Option<String>,
    /// The words for no and yes, or the different texts.
    texts: Vec<String>,
}

impl Described {
    fn of(column: &Column) -> Described {
        let texts = match &column.values {
            Values::YesNo { words, .. } => words.to_vec(),
            Values::Texts { texts, .. } => texts.to_vec(),
            Values::Empty(_) | Values::Numbers(_) | Values::Dates(_) => Vec::new(),
        };
        Described { name: column.name.clone(), kind: column.kind(), note: column.note.clone(), texts }
    }

    fn column(self, rows: &Tensor) -> candle_core::Result<Column> {
        let texts = self.texts;
        let values = match self.kind {
            ColumnKind::Empty => Values::Empty(rows.elem_count()),
            ColumnKind::Number => Values::Numbers(rows.to_vec1::<f64>()?.into()),
            ColumnKind::Date => Values::Dates(rows.to_vec1::<i64>()?.into()),
            ColumnKind::YesNo => {
                let words = <[String; 2]>::try_from(texts);
                let words = words.map_err(|_| candle_core::Error::msg("yes and no do not have two words"))?;
                Values::YesNo { rows: rows.to_vec1::<u8>()?.into(), words }
            }
            kind @ (ColumnKind::Category | ColumnKind::Text) => {
                let is_category = kind == ColumnKind::Category;
                Values::Texts { rows: rows.to_vec1::<u32>()?.into(), texts: texts.into(), is_category }
            }
        };
        Ok(Column { name: self.name, values, note: self.note })
    }
}

/// A table travels to a trial, which has a copy of it. What a [`Prep`](crate::Prep) makes of it is a dataset of tensors, which
/// trials map without a copy.
impl Share for Table {
    fn pack(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        for (place, column) in self.columns.iter().enumerate() {
            column.values.tensor().map_err(failed)?.pack(&format!("{name}.{place}"), pack)?;
        }
        let columns = self.columns.iter().map(Described::of).collect();
        let description = Description { name: self.name.to_string(), target: self.target, columns };
        // The description is a tensor, because texts are in the header of the shared data, whose size is limited.
        let description = serde_json::to_vec(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let bytes = description.len();
        let description = Tensor::from_vec(description, bytes, &Device::Cpu).map_err(failed)?;
        description.pack(&format!("{name}.table"), pack)
    }

    fn unpack(name: &str, shared: &Shared) -> Result<Table, ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let description = Tensor::unpack(&format!("{name}.table"), shared)?.to_vec1::<u8>().map_err(failed)?;
        let Description { name: files, target, columns } =
            serde_json::from_slice(&description).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let mut read = Vec::new();
        for (place, column) in columns.into_iter().enumerate() {
            let rows = Tensor::unpack(&format!("{name}.{place}"), shared)?;
            read.push(column.column(&rows).map_err(failed)?);
        }
        let table = Table::of(&files, read).map_err(|error| failed(error.into()))?;
        Ok(Table { target, ..table })
    }
}
