//! The verb `cache`: the first whole pass keeps its elements in memory, and later passes read them from there.

use crate::Result;
use crate::stream::{BoxStream, Listed, Open, Pass, Stream};
use std::sync::{Arc, OnceLock};

/// The kept elements, which are set at the end of a whole pass.
pub(crate) type Kept<T> = Arc<OnceLock<Arc<[T]>>>;

/// Opens streams of the kept elements, or streams of `open` that keep their elements.
pub(crate) fn cached<T: Clone + Send + Sync + 'static>(open: Open<T>, kept: Kept<T>) -> Open<T> {
    Arc::new(move |pass: Pass| match kept.get() {
        Some(elements) => Ok(Box::new(Listed::new(Arc::clone(elements)))),
        None => Ok(Box::new(Caching { stream: open(pass)?, elements: Some(Vec::new()), kept: Arc::clone(&kept) })),
    })
}

struct Caching<T> {
    stream: BoxStream<T>,
    /// The elements so far; `None` after the end.
    elements: Option<Vec<T>>,
    kept: Kept<T>,
}

impl<T: Clone + Send + Sync> Stream<T> for Caching<T> {
    fn next(&mut self) -> Option<Result<T>> {
        match self.stream.next() {
            Some(Ok(element)) => {
                self.elements.as_mut()?.push(element.clone());
                Some(Ok(element))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                if let Some(elements) = self.elements.take() {
                    // Another pass may have kept the same elements meanwhile.
                    self.kept.get_or_init(|| elements.into());
                }
                None
            }
        }
    }
}
