//! [`Prep`] makes the features of a model from the columns of a table, as scikit-learn's `ColumnTransformer` does: it fills gaps, scales
//! numbers, and encodes categories and dates. Everything is fitted to the part for training alone.

mod encoder;
mod file;
mod fit;
mod options;
mod target;

pub use options::{DatePart, Fill, PrepOptions, Scale};

use crate::dataset::Dataset;
use crate::tabular::{Table, Value, near};
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use encoder::{Encoder, Known};
use ferrotune_display::{Bundle, Show, table};
use file::Saved;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Debug, Formatter};
use target::Target;

/// The features of a model from the columns of a [`Table`].
///
/// | kind | features |
/// |---|---|
/// | number | one, scaled to the mean 0 and the standard deviation 1; a gap is the median |
/// | category | one for each category of the part for training, or a single one if there are more than 20; all are 0 for a category that this part does not have; a gap is the most frequent category |
/// | yes/no | one, 0 or 1; a gap is the more frequent word |
/// | date | the days since 1970, scaled, and one feature for each month, each weekday, and, where there are times of the day, each hour; a gap is the median |
///
/// A column with gaps in the part for training has one more feature, which is 1 where the value is missing. [`Prep::options`] changes each
/// of these. The values are those of scikit-learn's `SimpleImputer`, `StandardScaler` and `OneHotEncoder`.
///
/// `%%tune` can capture a `Prep`, a checkpoint can save it, and [`Prep::save`] writes a file.
///
/// ```
/// use ferrotune_data::{Prep, Table};
/// let houses = Table::from_columns([
///     ("rooms", vec![3.into(), 5.into(), None::<f64>.into(), 4.into()]),
///     ("city", vec!["Oslo".into(), "Bergen".into(), "Oslo".into(), "Oslo".into()]),
///     ("price", vec![310.into(), 480.into(), 295.into(), 400.into()]),
/// ])?
/// .with_target("price")?;
/// let prep = Prep::fit(&houses)?;
/// assert_eq!(prep.names(), ["rooms", "rooms is missing", "city=Bergen", "city=Oslo"]);
/// let train = prep.apply(&houses)?; // rows of f32 of shape (4), and prices of f32
/// assert_eq!(train.len(), Some(4));
/// let row = prep.row([("rooms", 4.into()), ("city", "Oslo".into())])?;
/// assert_eq!(row.to_vec2::<f32>()?, [[0.0, 0.0, 0.0, 1.0]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "Saved", try_from = "Saved")]
pub struct Prep {
    encoders: Vec<Encoder>,
    target: Option<Target>,
    /// The names of the features.
    names: Vec<String>,
}

impl Prep {
    /// Fits to the part for training.
    ///
    /// Fails if the table has no rows, if a column has only gaps, or if a column is text: such a column must be dropped, be taken as a
    /// category, or be the target.
    pub fn fit(train: &Table) -> Result<Prep> {
        Prep::options().fit(train)
    }

    /// The options of a fit, which begin with the defaults.
    pub fn options() -> PrepOptions {
        PrepOptions::default()
    }

    fn of(encoders: Vec<Encoder>, target: Option<Target>) -> Prep {
        let names = encoders.iter().flat_map(Encoder::names).collect();
        Prep { encoders, target, names }
    }

    /// The number of features.
    pub fn width(&self) -> usize {
        self.names.len()
    }

    /// The names of the features, in their order: `rooms`, `rooms is missing`, `city=Oslo`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names of the classes, if the target has classes: the class with the number `i` is `classes()[i]`.
    pub fn classes(&self) -> Option<&[String]> {
        match &self.target {
            Some(Target::Classes { names, .. }) => Some(names),
            Some(Target::Number { .. }) | None => None,
        }
    }

    /// The rows of a table as a dataset: features of f32 of shape (width), and targets, which are numbers of f32 or classes of u32.
    ///
    /// Fails if the `Prep` was fitted without a target, if the table lacks a column, or if a column has another kind. Columns that the
    /// fit did not have are left out.
    pub fn apply(&self, table: &Table) -> Result<Dataset<(Tensor, Tensor)>> {
        Dataset::from_tensors((self.features(table)?, self.targets(table)?))
    }

    /// The features of all rows: f32 of shape (rows, width). The table needs no target.
    ///
    /// Fails if the table lacks a column, or if a column has another kind.
    pub fn features(&self, table: &Table) -> Result<Tensor> {
        let (rows, width) = (table.len(), self.width());
        let mut features = vec![0_f32; rows * width];
        let mut from = 0;
        for encoder in &self.encoders {
            let column = table.column(&encoder.column)?;
            let own = encoder.names().len();
            for (row, value) in encoder.known(column)?.into_iter().enumerate() {
                let begin = row * width + from;
                self.encode(encoder, value, &mut features[begin..begin + own], || format!("row {row}"))?;
            }
            from += own;
        }
        tensor(features, rows, width)
    }

    /// The targets of all rows: f32 or, for classes, u32, of shape (rows).
    ///
    /// Fails if the `Prep` was fitted without a target, or if a target is missing, of another kind, or of another class.
    pub fn targets(&self, table: &Table) -> Result<Tensor> {
        let Some(target) = &self.target else {
            let reason = "the Prep was fitted without a target; read the table with `.target`, or call `.features`";
            return Err(DataError::table(table.name(), reason));
        };
        target.tensor(table)
    }

    /// The features of one row: f32 of shape (1, width). A column that is not given is a gap.
    ///
    /// Fails if there is no such column, naming the most similar one, if a column is given twice, or if a value has another type.
    /// The target may be given, and is left out.
    pub fn row<'a>(&self, values: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Tensor> {
        let mut given: Vec<(&str, Value)> = Vec::new();
        for (name, value) in values {
            let is_target = self.target.as_ref().is_some_and(|target| target.column() == name);
            if !is_target && !self.encoders.iter().any(|encoder| encoder.column == name) {
                let names: Vec<&str> = self.encoders.iter().map(|encoder| encoder.column.as_str()).collect();
                return Err(DataError::table("the row", format!("there is no column `{name}`{}", near(name, &names))));
            }
            if given.iter().any(|(other, _)| *other == name) {
                return Err(DataError::column(name, "it is given twice; give it once"));
            }
            given.push((name, value));
        }
        let mut features = vec![0_f32; self.width()];
        let mut from = 0;
        for encoder in &self.encoders {
            let value = given.iter().find(|(name, _)| *name == encoder.column).map(|(_, value)| value);
            let known = value.map_or(Ok(Known::Gap), |value| encoder.known_value(value))?;
            let own = encoder.names().len();
            self.encode(encoder, known, &mut features[from..from + own], || "the row".to_owned())?;
            from += own;
        }
        tensor(features, 1, self.width())
    }

    /// Numbers that a model predicts, in the unit of the target: reverses [`PrepOptions::scaled_target`]. Without that option, they are
    /// as they were.
    ///
    /// Fails if the target has classes, or if there is none.
    pub fn inverse(&self, predicted: &Tensor) -> Result<Tensor> {
        let Some(Target::Number { scaling, column }) = &self.target else {
            return Err(DataError::table(
                "Prep::inverse",
                "the target is no number; `classes` has the names of classes",
            ));
        };
        predicted.affine(scaling.by, scaling.shift).map_err(|error| DataError::column(column, error.to_string()))
    }

    /// Writes the features of a value, with the flag of a gap.
    fn encode(&self, encoder: &Encoder, value: Known, features: &mut [f32], place: impl Fn() -> String) -> Result<()> {
        let (values, flag) = features.split_at_mut(features.len() - usize::from(encoder.has_flag));
        flag.fill(f32::from(u8::from(value == Known::Gap)));
        let failed = |reason: String| Err(DataError::column(&encoder.column, reason));
        if encoder.encode(value, values).is_none() {
            return failed(format!("{} has no value, and nothing fills it; give {}", place(), encoder.takes()));
        }
        if values.iter().any(|value| !value.is_finite()) {
            return failed(format!("{} is too large for f32; scale the column, or write it in a larger unit", place()));
        }
        Ok(())
    }
}

fn tensor(features: Vec<f32>, rows: usize, width: usize) -> Result<Tensor> {
    let tensor = Tensor::from_vec(features, (rows, width), &Device::Cpu);
    tensor.map_err(|error| DataError::table("Prep", error.to_string()))
}

/// Shows a line for each column: how it becomes features, and how many.
impl Show for Prep {
    fn bundle(&self) -> Bundle {
        let row = |encoder: &Encoder| {
            let flag = if encoder.has_flag { "; a feature is 1 for a gap" } else { "" };
            vec![encoder.column.clone(), encoder.names().len().to_string(), format!("{}{flag}", encoder.description())]
        };
        table(&["column", "features", "how"], &self.encoders.iter().map(row).collect::<Vec<_>>())
    }
}

impl Debug for Prep {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "Prep of {} columns with {} features", self.encoders.len(), self.names.len())
    }
}
