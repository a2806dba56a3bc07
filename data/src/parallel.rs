//! The verb `map` on several threads: the values have the order of the elements.
//!
//! The threads take elements from the input one at a time, under a lock, and call the function without the lock. Together they are
//! at most twice their number of elements ahead of the reader. They start with the first request for an element, and end when
//! the stream is dropped.

use crate::map::{Calls, Function};
use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// The values of a function for a stream's elements, computed by several threads.
pub(crate) struct Parallel<T, U> {
    shared: Arc<Shared<T, U>>,
    threads: usize,
    started: Vec<JoinHandle<()>>,
}

struct Shared<T, U> {
    function: Function<T, U>,
    calls: Calls,
    /// The largest number of elements that are taken and not yet read.
    most_ahead: u64,
    input: Mutex<Input<T>>,
    output: Mutex<Output<U>>,
    /// The signal that a value is ready, or that the end is known.
    ready: Condvar,
    /// The signal that the reader has taken a value, or has dropped the stream.
    room: Condvar,
}

struct Input<T> {
    stream: BoxStream<T>,
    /// The number of elements that were taken.
    taken: u64,
}

struct Output<U> {
    values: BTreeMap<u64, Result<U>>,
    /// The number of values that were read.
    read: u64,
    /// The index at which the values end. No element from there on is taken: the input ends there, or an earlier element failed.
    end: Option<u64>,
    is_dropped: bool,
}

impl<U> Output<U> {
    fn end_at(&mut self, index: u64) {
        self.end = Some(self.end.map_or(index, |end| end.min(index)));
    }
}

/// Locks a mutex. A thread that panics holds no lock: functions and streams are called in [`catch_unwind`].
fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static, U: Send + 'static> Parallel<T, U> {
    pub(crate) fn new(stream: BoxStream<T>, function: Function<T, U>, calls: Calls, threads: usize) -> Parallel<T, U> {
        let output = Output { values: BTreeMap::new(), read: 0, end: None, is_dropped: false };
        let shared = Shared {
            function,
            calls,
            most_ahead: 2 * threads as u64,
            input: Mutex::new(Input { stream, taken: 0 }),
            output: Mutex::new(output),
            ready: Condvar::new(),
            room: Condvar::new(),
        };
        Parallel { shared: Arc::new(shared), threads, started: Vec::new() }
    }

    fn start(&mut self) -> Result<()> {
        while self.started.len() < self.threads {
            let shared = Arc::clone(&self.shared);
            let thread = Builder::new().name("data-map".to_owned()).spawn(move || shared.work());
            self.started.push(thread.map_err(|source| DataError::Thread { verb: "map", source })?);
        }
        Ok(())
    }
}

impl<T, U> Shared<T, U> {
    fn work(&self) {
        while let Some((index, element)) = self.take() {
            let value = element.and_then(|element| self.calls.call(index, || (self.function)(element)));
            let mut output = lock(&self.output);
            if value.is_err() {
                output.end_at(index + 1);
                self.room.notify_all();
            }
            output.values.insert(index, value);
            self.ready.notify_all();
        }
    }

    /// The next element with its index; `None` if there are no more, or none may be taken.
    fn take(&self) -> Option<(u64, Result<T>)> {
        let mut input = lock(&self.input);
        let index = input.taken;
        let mut output = lock(&self.output);
        loop {
            if output.is_dropped || output.end.is_some_and(|end| index >= end) {
                return None;
            }
            if index < output.read + self.most_ahead {
                break;
            }
            output = self.room.wait(output).unwrap_or_else(PoisonError::into_inner);
        }
        drop(output);
        let element = catch_unwind(AssertUnwindSafe(|| input.stream.next()));
        let element = element.unwrap_or_else(|payload| Some(Err(DataError::panic("map", index, &*payload))));
        if element.is_none() {
            lock(&self.output).end_at(index);
            self.ready.notify_all();
        }
        input.taken += 1;
        element.map(|element| (index, element))
    }
}

impl<T: Send + 'static, U: Send + 'static> Stream<U> for Parallel<T, U> {
    fn next(&mut self) -> Option<Result<U>> {
        if let Err(error) = self.start() {
            return Some(Err(error));
        }
        let mut output = lock(&self.shared.output);
        loop {
            let index = output.read;
            if let Some(value) = output.values.remove(&index) {
                output.read += 1;
                self.shared.room.notify_all();
                return Some(value);
            }
            if output.end.is_some_and(|end| index >= end) {
                return None;
            }
            output = self.shared.ready.wait(output).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        if !self.started.is_empty() {
            return skip_one_by_one(self, count);
        }
        let mut input = lock(&self.shared.input);
        let skipped = input.stream.skip(count)?;
        input.taken += skipped;
        lock(&self.shared.output).read += skipped;
        Ok(skipped)
    }
}

impl<T, U> Drop for Parallel<T, U> {
    fn drop(&mut self) {
        lock(&self.shared.output).is_dropped = true;
        self.shared.room.notify_all();
        for thread in self.started.drain(..) {
            // A panic of the user's function is already in its value.
            let _ = thread.join();
        }
    }
}
