//! The iterator of a dataset, with its position, which a checkpoint saves.

use crate::Result;
use crate::description::description;
use crate::stream::{BoxStream, Open, Pass};
use ferrotune_profile::{self as profile, Source};
use ferrotune_state::{Pack, Restore, Save, ShareError, Shared, share_fields};
use std::fmt::{self, Debug, Formatter};
use std::mem;
use std::process;

/// A position in a dataset's passes: the pass, and the next element in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of the pass.
    pub epoch: u64,
    /// The number of elements of the pass before the next element.
    pub element: u64,
}

share_fields!(Position { epoch, element });

/// The elements of a dataset, pass after pass: after the `None` that ends a pass, the iterator continues with the next pass.
///
/// A checkpoint saves its position, and a trial that resumes continues with the element after the last one before the checkpoint:
///
/// ```no_run
/// # use ferrotune_state::{Restore, Result, Save};
/// # struct Trial;
/// # impl Trial {
/// #     fn restore(&self, _: impl Restore) -> Result<bool> { Ok(false) }
/// #     fn epochs(&self, count: u64) -> std::ops::Range<u64> { 0..count }
/// #     fn report(&self, _: u64, _: [(&str, f64); 1]) -> Result<()> { Ok(()) }
/// #     fn checkpoint(&self, _: impl Save) -> Result<()> { Ok(()) }
/// # }
/// # fn objective(trial: &Trial, vars: candle_nn::VarMap, train: ferrotune_data::Dataset<candle_core::Tensor>) -> Result<()> {
/// let mut batches = train.epoch(0);
/// trial.restore((&vars, &mut batches))?;
/// for epoch in trial.epochs(20) {
///     for batch in &mut batches {
///         let loss = batch?.sqr()?.mean_all()?;
/// #       let _ = loss;
///     }
///     trial.report(epoch, [("loss", 0.5)])?;
///     trial.checkpoint((&vars, &batches))?;
/// }
/// # Ok(()) }
/// ```
///
/// Dropping the iterator ends the threads that make elements. In a copy of the process, such as the one with which a notebook
/// continues after a crash, the iterator starts new threads and continues at its position.
pub struct Iter<T> {
    /// Opens the elements of a pass.
    open: Open<T>,
    /// The number of elements in a pass, if it is known.
    len: Option<u64>,
    position: Position,
    phase: Phase<T>,
    /// The user's loop that requests the elements.
    source: Source,
}

enum Phase<T> {
    /// The stream of the pass is not open.
    Closed,
    /// The stream is open in the process with this id. Threads of another process do not exist in this one.
    Open { stream: BoxStream<T>, process: u32 },
    /// An element has failed, and the pass ends.
    Failed,
}

impl<T: Send + 'static> Iter<T> {
    #[track_caller]
    pub(crate) fn new(open: Open<T>, len: Option<u64>, epoch: u64) -> Iter<T> {
        Iter { open, len, position: Position { epoch, element: 0 }, phase: Phase::Closed, source: Source::here() }
    }

    /// The same iterator of elements that a thread makes in advance.
    pub(crate) fn prefetched(mut self) -> Iter<T> {
        self.source.prefetches = true;
        self
    }

    /// The position of the next element.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Moves to another position; the next element is the one there.
    pub fn seek(&mut self, position: Position) {
        self.close();
        self.position = position;
    }

    fn open(&mut self) -> Result<&mut BoxStream<T>> {
        if matches!(self.phase, Phase::Open { process, .. } if process != process::id()) {
            self.close();
        }
        if let Phase::Closed = self.phase {
            let mut stream = (self.open)(Pass::new(self.position.epoch))?;
            stream.skip(self.position.element)?;
            self.phase = Phase::Open { stream, process: process::id() };
        }
        match &mut self.phase {
            Phase::Open { stream, .. } => Ok(stream),
            Phase::Closed | Phase::Failed => unreachable!("it has just been opened, and a failed pass is not"),
        }
    }
}

impl<T> Iter<T> {
    fn close(&mut self) {
        if let Phase::Open { stream, process } = mem::replace(&mut self.phase, Phase::Closed)
            && process != process::id()
        {
            // A drop would wait for ever for threads that do not exist in this process.
            mem::forget(stream);
        }
    }

    fn end_pass(&mut self) {
        self.close();
        self.position = Position { epoch: self.position.epoch + 1, element: 0 };
    }
}

impl<T: Send + 'static> Iterator for Iter<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        profile::batch(self.source, || self.element())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len.map(|len| len.saturating_sub(self.position.element) as usize);
        (0, left)
    }
}

impl<T: Send + 'static> Iter<T> {
    fn element(&mut self) -> Option<Result<T>> {
        if let Phase::Failed = self.phase {
            self.end_pass();
            return None;
        }
        match self.open().map(|stream| stream.next()) {
            Ok(Some(Ok(element))) => {
                self.position.element += 1;
                Some(Ok(element))
            }
            Ok(None) => {
                self.end_pass();
                None
            }
            Ok(Some(Err(error))) | Err(error) => {
                self.close();
                self.phase = Phase::Failed;
                Some(Err(error))
            }
        }
    }
}

impl<T> Drop for Iter<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> Debug for Iter<T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Position { epoch, element } = self.position;
        write!(formatter, "Iter at element {element} of epoch {epoch} of {}", description::<T>(self.len))
    }
}

impl<T> Save for &Iter<T> {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        (&self.position).save(name, pack)
    }
}

impl<T: Send + 'static> Restore for &mut Iter<T> {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        let mut position = Position::default();
        (&mut position).restore(name, saved)?;
        self.seek(position);
        Ok(())
    }
}
