//! Tables in files. Their columns become tensors.

use crate::blocks::Blocks;
use crate::columns::Columns;
use crate::dataset::Dataset;
use crate::reader::Reader;
use crate::source::ColumnSource;
use crate::tabular::TableOptions;
use crate::{Batch, Result};
use candle_core::Tensor;
use ferrotune_reader::{Format, Group, Kind, Source};
use std::marker::PhantomData;

/// Tables of text with a header and with commas between the values. `files` is a path, an address such as
/// `s3://bucket/houses.csv`, or a pattern such as `parts/*.csv.gz`; files that end in `.gz` or `.zst` are decompressed.
///
/// `.features` is for files of numbers. `.target` reads a [`Table`](crate::Table) of numbers, texts, dates and gaps, of which
/// [`Prep`](crate::Prep) makes features.
///
/// ```no_run
/// let houses = ferrotune_data::csv("houses.csv").features(["rooms", "age"]).label("price").read()?;
/// let [train, valid] = houses.split([0.8, 0.2], 7)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn csv(files: &str) -> TableFiles<()> {
    TableFiles::new(Format::Csv { delimiter: b',' }, files)
}

/// Apache Parquet files: `files` is a path, an address such as `s3://bucket/trips.parquet`, or a pattern such as
/// `trips/*.parquet`. Only the requested columns are read, and as many processes as candle has threads read row groups.
///
/// ```no_run
/// let trips = ferrotune_data::parquet("trips/*.parquet").features(["distance", "passengers"]).label("fare").stream()?;
/// for batch in &trips.batch(1024, false) {
///     let (features, fares) = batch?; // f32 of shape (1024, 2) and (1024)
/// #   let _ = (features, fares);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parquet(files: &str) -> TableFiles<()> {
    TableFiles::new(Format::Parquet, files)
}

/// Apache Arrow's files and streams, such as those of `Dataset.save_to_disk` of Hugging Face, of Polars' `write_ipc` and of
/// pandas' `to_feather`: `files` is a path, an address such as `s3://bucket/trips.arrow`, or a pattern such as
/// `trips/*.arrow`. Buffers may be compressed with LZ4 or Zstandard. Only the requested columns are decoded, and as
/// many processes as candle has threads read record batches. Only one process reads an address, because the numbers of rows
/// would have to be fetched first.
///
/// ```no_run
/// let trips = ferrotune_data::arrow("trips/*.arrow").features(["distance", "passengers"]).class("kind").stream()?;
/// for batch in &trips.batch(1024, false) {
///     let (features, kinds) = batch?; // f32 of shape (1024, 2) and u32 of shape (1024)
/// #   let _ = (features, kinds);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn arrow(files: &str) -> TableFiles<()> {
    TableFiles::new(Format::Arrow, files)
}

/// Lines of JSON with an object for each row, such as `{"rooms": 3, "city": "Oslo"}`, for a [`Table`](crate::Table): `files` is a
/// path, an address, or a pattern such as `houses/*.jsonl.gz`. A key that a row does not have is a gap. All lines are read at
/// once. [`json_lines`](crate::json_lines) has the values of other lines.
///
/// ```no_run
/// let houses = ferrotune_data::json_table("houses.jsonl").target("sold")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn json_table(files: &str) -> TableFiles<()> {
    TableFiles::new(Format::JsonLines, files)
}

/// Tables with the same columns, and the choice of the columns to read. Opens no file before [`TableFiles::read`],
/// [`TableFiles::stream`] or [`TableFiles::columns`].
#[derive(Clone, Debug)]
pub struct TableFiles<T> {
    format: Format,
    files: String,
    groups: Vec<Group>,
    missing: Option<f32>,
    of_columns: PhantomData<fn(Vec<Tensor>) -> T>,
}

impl TableFiles<()> {
    fn new(format: Format, files: &str) -> TableFiles<()> {
        let (files, groups) = (files.to_owned(), Vec::new());
        TableFiles { format, files, groups, missing: None, of_columns: PhantomData }
    }

    /// Sets the byte between the values of a CSV file, such as `b';'` or `b'\t'`. The other formats have no such byte, and ignore it.
    pub fn delimiter(mut self, delimiter: u8) -> TableFiles<()> {
        if let Format::Csv { delimiter: present } = &mut self.format {
            *present = delimiter;
        }
        self
    }

    /// The names of the columns in the files.
    ///
    /// Fails if there is no such file.
    pub fn columns(&self) -> Result<Vec<String>> {
        Ok(Reader::start(self.source())?.1.columns)
    }

    /// The options of a [`Table`](crate::Table), before the user has said anything about its columns.
    pub(crate) fn options(&self) -> TableOptions {
        TableOptions::new(self.format, &self.files, self.missing.is_some())
    }

    /// Reads the columns with these names as a row of f32.
    pub fn features<S: AsRef<str>>(self, columns: impl IntoIterator<Item = S>) -> TableFiles<Tensor> {
        self.with(Some(texts(columns)), Kind::Matrix)
    }

    /// Reads all columns that are not a label as a row of f32.
    pub fn all_features(self) -> TableFiles<Tensor> {
        self.with(None, Kind::Matrix)
    }
}

impl TableFiles<Tensor> {
    /// Reads the column to predict as a number of f32.
    pub fn label(self, column: &str) -> TableFiles<(Tensor, Tensor)> {
        self.with(Some(vec![column.to_owned()]), Kind::Numbers)
    }

    /// Reads the column to predict as a class of u32: whole numbers from 0 on.
    pub fn class(self, column: &str) -> TableFiles<(Tensor, Tensor)> {
        self.with(Some(vec![column.to_owned()]), Kind::Classes(None))
    }

    /// Reads the column to predict as a class of u32: the place of its text among these names. Any other text is an error.
    pub fn class_of<S: AsRef<str>>(
        self,
        column: &str,
        names: impl IntoIterator<Item = S>,
    ) -> TableFiles<(Tensor, Tensor)> {
        self.with(Some(vec![column.to_owned()]), Kind::Classes(Some(texts(names))))
    }
}

/// Owned texts from texts of any kind, also behind a reference: `["a", "b"]` and `&["a", "b"]`.
fn texts<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Vec<String> {
    texts.into_iter().map(|text| text.as_ref().to_owned()).collect()
}

impl<T> TableFiles<T> {
    /// Sets the value for a number that is missing or NaN, such as `f32::NAN`. Without it, such a number is an error.
    pub fn missing(self, value: f32) -> TableFiles<T> {
        TableFiles { missing: Some(value), ..self }
    }

    fn with<U>(mut self, columns: Option<Vec<String>>, kind: Kind) -> TableFiles<U> {
        self.groups.push(Group { columns, kind });
        let TableFiles { format, files, groups, missing, .. } = self;
        TableFiles { format, files, groups, missing, of_columns: PhantomData }
    }

    fn source(&self) -> Source {
        let (format, groups, missing) = (self.format, self.groups.clone(), self.missing.map(f32::to_bits));
        Source::Table { format, files: self.files.clone(), groups, missing }
    }
}

impl<T: Columns + Batch<Batched = T>> TableFiles<T> {
    /// Reads all rows into memory: they can be shuffled, split and captured by `%%tune` like rows of tensors.
    ///
    /// Fails if a file or a column does not exist, or if a value does not fit its column.
    pub fn read(&self) -> Result<Dataset<T>> {
        Dataset::from_tensors(self.stream()?.to_tensors()?)
    }

    /// The rows in the order of the files, with only some of them in memory. [`Dataset::batch`] takes all rows of a
    /// batch at once if it is the first verb.
    ///
    /// Fails if a file or a column does not exist. A value that does not fit its column is an error instead
    /// of the rows that are read with it: those of its row group, or some ten thousand of a CSV file.
    pub fn stream(&self) -> Result<Dataset<T>> {
        Ok(Dataset::of_columns(ColumnSource::Blocks(Blocks::of(self.source())?)))
    }
}
