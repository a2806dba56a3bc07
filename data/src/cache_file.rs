//! The verb `cache_in`: all elements in a file, which is made once and then mapped by every process that needs it.

use crate::columns::Columns;
use crate::dataset::Dataset;
use crate::{Batch, DataError, Result};
use candle_core::{DType, Tensor};
use ferrotune_state::Shared;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The number of elements that are made at once.
const ROWS: usize = 64;

impl<T: Columns + Batch<Batched = T>> Dataset<T> {
    /// The same elements, from a file: as rows of tensors, which can be shuffled, split and captured by `%%tune` without
    /// making an element again. The file has the layout of safetensors, with the tensors `0`, `1` and so on. An existing file
    /// is used unchanged: delete it after a change of the verbs before this one.
    ///
    /// If several trials need the same file at once, one of them makes it and the others wait. All of them map the file: its
    /// elements are in memory once, and the system may take that memory back. Randomness of earlier verbs happens only once: shuffle
    /// after this verb.
    ///
    /// Fails if an element fails, if elements differ in shape or dtype, or if the file cannot be written or is not of
    /// this type. A dataset without an end fills the disk.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_data::Dataset;
    /// # let folder = std::env::temp_dir().join(format!("cache-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let rows = Dataset::from_tensors(Tensor::arange(0f32, 1000., &Device::Cpu)?)?;
    /// let squares = rows.map(2, |row| Ok(row.sqr()?)).cache_in(folder.join("squares"))?;
    /// let [train, valid] = squares.split([0.8, 0.2], 7)?;
    /// assert_eq!((train.len(), valid.len()), (Some(800), Some(200)));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn cache_in(&self, file: impl AsRef<Path>) -> Result<Dataset<T>> {
        let file = file.as_ref();
        if !file.exists() {
            let path = with_ending(file, "partial");
            let partial = locked(&path).map_err(|error| unwritten(file, error))?;
            // Another process may have made the file meanwhile.
            let made = if file.exists() { Ok(()) } else { self.write(file, &partial) };
            if made.is_err() || file.exists() {
                fs::remove_file(&path).map_err(|error| unwritten(file, error))?;
                made?;
            } else {
                fs::rename(&path, file).map_err(|error| unwritten(file, error))?;
            }
        }
        let shared = Shared::open(file).map_err(|error| unread(file, error))?;
        if shared.tensor(&T::COLUMNS.to_string()).is_ok() {
            return Err(unread(file, format!("its elements have more than {} tensors", T::COLUMNS)));
        }
        let columns = (0..T::COLUMNS).map(|column| shared.tensor(&column.to_string()));
        let columns = columns.collect::<std::result::Result<Vec<Tensor>, _>>().map_err(|error| unread(file, error))?;
        Dataset::from_tensors(<T as Columns>::of_columns(columns))
    }

    #[track_caller]
    fn write(&self, file: &Path, partial: &File) -> Result<()> {
        let mut columns: Vec<Column> = Vec::new();
        for batch in self.batch(ROWS, false).epoch(0) {
            let tensors = batch?.into_columns();
            if columns.is_empty() {
                let column = |(index, tensor)| Column::new(tensor, &with_ending(file, &format!("column-{index}")));
                columns = tensors
                    .iter()
                    .enumerate()
                    .map(column)
                    .collect::<io::Result<_>>()
                    .map_err(|error| unwritten(file, error))?;
            }
            columns.iter_mut().zip(&tensors).try_for_each(|(column, tensor)| column.add(tensor, file))?;
        }
        if columns.is_empty() {
            return Err(DataError::argument("cache_in", "the dataset has no elements"));
        }
        assemble(columns, partial).map_err(|error| unwritten(file, error))
    }
}

/// The file at this path, locked by this process. Opens the path again if another process has renamed or removed the opened file.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        // The file may have bytes of a process that has ended.
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let own = file.metadata()?;
        match fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (own.dev(), own.ino()) => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

fn unwritten(file: &Path, error: impl Display) -> DataError {
    DataError::Unread { reason: format!("the cache {} cannot be written: {error}", file.display()) }
}

fn unread(file: &Path, error: impl Display) -> DataError {
    let reason = format!("the cache {} does not fit: {error}; delete it if another dataset made it", file.display());
    DataError::Unread { reason }
}

/// A column: a tensor whose rows are collected in a file without a name.
struct Column {
    dtype: DType,
    row: Vec<usize>,
    rows: usize,
    file: BufWriter<File>,
}

impl Column {
    /// Makes a column with a file at `path`, and removes the file's name at once. No other process uses `path`, because this
    /// process holds the lock. A file that a killed process left at `path` is emptied.
    fn new(tensor: &Tensor, path: &Path) -> io::Result<Column> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        fs::remove_file(path)?;
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Column { dtype: tensor.dtype(), row: tensor.dims()[1..].to_vec(), rows: 0, file })
    }

    fn add(&mut self, tensor: &Tensor, cache: &Path) -> Result<()> {
        let (dtype, row) = (tensor.dtype(), &tensor.dims()[1..]);
        if dtype != self.dtype || row != self.row {
            let rows = self.rows;
            let reason = format!(
                "element {rows} or one after it is {dtype:?} of shape {row:?}, and the first is {:?} of shape {:?}",
                self.dtype, self.row
            );
            return Err(DataError::argument("cache_in", reason));
        }
        self.rows += tensor.dims()[0];
        tensor.write_bytes(&mut self.file).map_err(|error| unwritten(cache, error))
    }

    fn bytes(&self) -> usize {
        self.row.iter().product::<usize>() * self.rows * self.dtype.size_in_bytes()
    }
}

/// Writes the columns one after another. The columns with the widest numbers come first, so that all numbers are aligned.
fn assemble(columns: Vec<Column>, mut whole: &File) -> io::Result<()> {
    let mut columns: Vec<(usize, Column)> = columns.into_iter().enumerate().collect();
    columns.sort_by_key(|(_, column)| std::cmp::Reverse(column.dtype.size_in_bytes()));
    let mut header = serde_json::Map::new();
    let mut begin = 0;
    for (name, column) in &columns {
        let end = begin + column.bytes();
        let shape: Vec<usize> = [column.rows].into_iter().chain(column.row.iter().copied()).collect();
        let dtype = column.dtype.as_str().to_uppercase();
        header.insert(name.to_string(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
        begin = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(64), b' ');
    whole.set_len(0)?;
    whole.write_all(&(header.len() as u64).to_le_bytes())?;
    whole.write_all(&header)?;
    for (_, column) in columns {
        let mut file = column.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        io::copy(&mut file, &mut whole)?;
    }
    whole.sync_all()
}
