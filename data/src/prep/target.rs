//! The column to predict: numbers as f32, or classes as u32.

use super::encoder::Scaling;
use super::fit::scaling;
use super::options::Scale;
use crate::tabular::{Column, Table, Values};
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// A fitted target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Target {
    Number { column: String, scaling: Scaling },
    Classes { column: String, names: Vec<String> },
}

impl Target {
    pub(super) fn fit(column: &Column, is_scaled: bool) -> Result<Target> {
        let name = column.name().to_owned();
        Ok(match &column.values {
            Values::Numbers(rows) => {
                let scale = if is_scaled { Scale::Standard } else { Scale::Unscaled };
                Target::Number { column: name, scaling: scaling(scale, rows) }
            }
            _ if is_scaled => {
                return Err(DataError::column(&name, "a target of classes is not scaled; leave out `scaled_target`"));
            }
            Values::YesNo { words, .. } => Target::Classes { column: name, names: words.to_vec() },
            Values::Texts { texts, .. } => Target::Classes { column: name, names: texts.to_vec() },
            Values::Dates(_) | Values::Empty(_) => unreachable!("`with_target` has refused dates and gaps"),
        })
    }

    pub(super) fn column(&self) -> &str {
        match self {
            Target::Number { column, .. } | Target::Classes { column, .. } => column,
        }
    }

    /// The targets of all rows: f32 or u32 of shape (rows).
    pub(super) fn tensor(&self, table: &Table) -> Result<Tensor> {
        // A table that was read without a target may have its column.
        let table = table.with_target(self.column())?;
        let column = table.column(self.column())?;
        let rows = column.values.len();
        let tensor = match (self, &column.values) {
            (Target::Number { scaling, .. }, Values::Numbers(numbers)) => {
                let numbers: Vec<f32> = numbers.iter().map(|number| scaling.of(*number) as f32).collect();
                if let Some(row) = numbers.iter().position(|number| !number.is_finite()) {
                    let reason = format!(
                        "row {row} is too large for f32; write it in a larger unit, or call `.scaled_target()`"
                    );
                    return Err(DataError::column(self.column(), reason));
                }
                Tensor::from_vec(numbers, rows, &Device::Cpu)
            }
            (Target::Classes { names, .. }, Values::YesNo { .. } | Values::Texts { .. }) => {
                let class = |row: usize| {
                    let text = column.values.text(row).unwrap_or_default();
                    let class = names.iter().position(|name| *name == text);
                    class.map(|class| class as u32).ok_or_else(|| {
                        let reason =
                            format!("row {row} has the class `{text}`, which the fit did not have; fit again with it");
                        DataError::column(self.column(), reason)
                    })
                };
                Tensor::from_vec((0..rows).map(class).collect::<Result<Vec<u32>>>()?, rows, &Device::Cpu)
            }
            _ => {
                let was = if let Target::Number { .. } = self { "numbers" } else { "classes" };
                let reason = format!(
                    "its kind is {} here and was {was} in the fit; read the table in the same way",
                    column.kind()
                );
                return Err(DataError::column(self.column(), reason));
            }
        };
        tensor.map_err(|error| DataError::column(self.column(), error.to_string()))
    }
}
