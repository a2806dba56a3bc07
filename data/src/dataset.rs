//! Datasets, with their verbs.

mod sources;
mod transformations;

use crate::Result;
use crate::columns::{Columns, FromColumns, OfColumns};
use crate::description::description;
use crate::iter::Iter;
use crate::rows::Rows;
use crate::source::ColumnSource;
use crate::stream::{Open, Pass};
use crate::verb::Verb;
use candle_core::Tensor;
use ferrotune_state::{Pack, Share, ShareError, Shared};
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sequence of elements for any number of passes, with the verbs of [tf.data](https://www.tensorflow.org/guide/data).
///
/// A verb makes a new dataset and computes nothing. Elements are made when they are requested, and a mistake in a verb's
/// arguments is the error of the first element. Every `for batch in &dataset` is a new pass with a new shuffle; the
/// first pass has the number 0. `for batch in dataset` is the last pass, and consumes the dataset. An error ends the pass.
///
/// ```
/// use ferrotune_data::Dataset;
/// let squares = Dataset::from_iter(0..10_u32).map(2, |x| Ok(x * x)).filter(|x| Ok(x % 2 == 0)).batch(3, false);
/// let batches: Vec<Vec<u32>> = squares.iter().map(|batch| Ok(batch?.to_vec1()?)).collect::<Result<_, Box<dyn std::error::Error>>>()?;
/// assert_eq!(batches, [vec![0, 4, 16], vec![36, 64]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Dataset<T> {
    elements: Elements<T>,
    len: Option<u64>,
    /// Whether a thread makes its elements in advance.
    prefetches: bool,
    /// Whether a few reads make its first elements, without a call of the user's functions and without filling a buffer.
    has_preview: bool,
    /// The number of the next pass.
    passes: AtomicU64,
}

/// The origin of a dataset's elements.
enum Elements<T> {
    /// Elements that consist of tensors: rows, images, or elements from files.
    Columns(Arc<ColumnSource>, OfColumns<T>),
    /// All other elements, as streams.
    Made(Open<T>),
}

impl<T> Clone for Elements<T> {
    fn clone(&self) -> Elements<T> {
        match self {
            Elements::Columns(source, of_columns) => Elements::Columns(Arc::clone(source), *of_columns),
            Elements::Made(open) => Elements::Made(Arc::clone(open)),
        }
    }
}

/// A dataset with the same elements, which counts its own passes from here on.
impl<T> Clone for Dataset<T> {
    fn clone(&self) -> Dataset<T> {
        let passes = AtomicU64::new(self.passes.load(Ordering::Relaxed));
        Dataset { elements: self.elements.clone(), passes, ..*self }
    }
}

impl<T> Debug for Dataset<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&description::<T>(self.len))
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// The number of elements in a pass, if it is known without making them: not after [`Dataset::filter`],
    /// [`Dataset::interleave`] and [`Dataset::repeat_forever`], nor for an iterator that does not know its length.
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// Whether a pass has no elements, if that is known.
    pub fn is_empty(&self) -> Option<bool> {
        self.len.map(|len| len == 0)
    }

    /// The elements of the next pass, and then of the passes after it. The iterator's [`Position`](crate::Position) can be
    /// saved in a checkpoint.
    #[track_caller]
    pub fn iter(&self) -> Iter<T> {
        self.epoch(self.passes.fetch_add(1, Ordering::Relaxed))
    }

    /// The elements of the pass with this number. Every call returns the same elements in the same order.
    #[track_caller]
    pub fn epoch(&self, number: u64) -> Iter<T> {
        let iter = Iter::new(self.opener(), self.len, number);
        if self.prefetches { iter.prefetched() } else { iter }
    }

    pub(crate) fn made(open: Open<T>, len: Option<u64>) -> Dataset<T> {
        Dataset::of(Elements::Made(open), len)
    }

    fn of(elements: Elements<T>, len: Option<u64>) -> Dataset<T> {
        let has_preview = matches!(elements, Elements::Columns(..));
        Dataset { elements, len, prefetches: false, has_preview, passes: AtomicU64::new(0) }
    }

    /// A function that opens streams of all elements.
    fn opener(&self) -> Open<T> {
        match &self.elements {
            Elements::Columns(source, of_columns) => {
                let (source, of_columns) = (Arc::clone(source), *of_columns);
                Arc::new(move |pass| Ok(Box::new(FromColumns { columns: source.open(pass)?, of_columns })))
            }
            Elements::Made(open) => Arc::clone(open),
        }
    }

    fn then(&self, verb: Verb) -> Dataset<T> {
        let elements = match &self.elements {
            Elements::Columns(source, of_columns) if let Some(rows) = source.rows() => {
                Elements::Columns(Arc::new(ColumnSource::Rows(rows.then(verb))), *of_columns)
            }
            _ => Elements::Made(verb.apply(self.opener())),
        };
        let dataset = Dataset::of(elements, verb.len(self.len));
        let has_preview = dataset.has_preview || (self.has_preview && verb.begins_at_once());
        Dataset { has_preview, ..dataset }
    }

    /// The numbered rows, unless elements are read or made one after another.
    fn rows(&self) -> Option<&Rows> {
        match &self.elements {
            Elements::Columns(source, _) => source.rows(),
            Elements::Made(_) => None,
        }
    }
}

impl<T: Columns> Dataset<T> {
    /// The tensors of the first elements of pass 0, at most `count`, for a display. `None` if that needs a call of a user's function
    /// or a full buffer: after [`Dataset::map`], [`Dataset::filter`], [`Dataset::interleave`] and
    /// [`Dataset::from_iter`], and for elements that are not rows after [`Dataset::shuffle`], [`Dataset::skip`] and
    /// [`Dataset::shard`]. Does not count as a pass.
    ///
    /// Fails like the pass itself, for example if a file is missing.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// # use ferrotune_data::Dataset;
    /// let numbers = Dataset::from_tensors(Tensor::arange(0u32, 100, &Device::Cpu)?)?;
    /// let first = numbers.preview(2)?.expect("they are rows");
    /// assert_eq!(first[1][0].to_scalar::<u32>()?, 1);
    /// assert!(numbers.map(1, |number| Ok(number)).preview(2)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preview(&self, count: usize) -> Result<Option<Vec<Vec<Tensor>>>> {
        if !self.has_preview {
            return Ok(None);
        }
        let mut stream = (self.opener())(Pass::new(0))?;
        let elements = std::iter::from_fn(|| stream.next()).take(count);
        elements.map(|element| element.map(T::into_columns)).collect::<Result<_>>().map(Some)
    }

    pub(crate) fn of_columns(source: ColumnSource) -> Dataset<T> {
        let len = source.len();
        Dataset::of(Elements::Columns(Arc::new(source), T::of_columns), len)
    }

    pub(crate) fn of_rows(rows: Rows) -> Dataset<T> {
        Dataset::of_columns(ColumnSource::Rows(rows))
    }
}

impl<T: Send + 'static> IntoIterator for &Dataset<T> {
    type Item = Result<T>;
    type IntoIter = Iter<T>;

    #[track_caller]
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}

/// Returns the elements of the next pass, as the iterator of a reference does.
impl<T: Send + 'static> IntoIterator for Dataset<T> {
    type Item = Result<T>;
    type IntoIter = Iter<T>;

    #[track_caller]
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}

/// The rows of a dataset that a trial uses travel to its process. Trials map the tensors without a copy. A part of a
/// [`split`](Dataset::split) is packed without the other parts. For images, only the paths are sent.
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

/// The error about a dataset whose elements are made.
fn made(name: &str) -> ShareError {
    let reason = "only rows of tensors and images travel to a trial; call map, batch and what follows in the objective, and \
                  read in place of stream";
    ShareError::Tensor { name: name.to_owned(), source: candle_core::Error::Msg(reason.to_owned()) }
}
