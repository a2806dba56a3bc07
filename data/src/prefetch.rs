//! `prefetch`: one thread makes elements before they are asked for.

use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The elements of a stream, of which as many as `count` are made ahead.
pub(crate) struct Prefetched<T> {
    count: usize,
    phase: Phase<T>,
}

enum Phase<T> {
    /// Nothing has been asked for.
    Idle(BoxStream<T>),
    /// The thread makes elements.
    Running { elements: Receiver<Result<T>>, thread: JoinHandle<()> },
    /// No thread could be started.
    Failed,
}

impl<T: Send + 'static> Prefetched<T> {
    pub(crate) fn new(stream: BoxStream<T>, count: usize) -> Prefetched<T> {
        Prefetched { count, phase: Phase::Idle(stream) }
    }

    /// Sends the elements of a stream until nobody receives them.
    fn work(mut stream: BoxStream<T>, sender: SyncSender<Result<T>>) {
        for index in 0.. {
            let next = catch_unwind(AssertUnwindSafe(|| stream.next()));
            let element = next.unwrap_or_else(|payload| Some(Err(DataError::panic("prefetch", index, &*payload))));
            let Some(element) = element else { return };
            let is_last = element.is_err();
            if sender.send(element).is_err() || is_last {
                return;
            }
        }
    }

    fn start(&mut self) -> Result<()> {
        match mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Idle(stream) => {
                // The thread has one more element in its hands while it waits.
                let (sender, elements) = sync_channel(self.count - 1);
                let thread = Builder::new().name("data-prefetch".to_owned()).spawn(move || Self::work(stream, sender));
                let thread = thread.map_err(|source| DataError::Thread { verb: "prefetch", source })?;
                self.phase = Phase::Running { elements, thread };
            }
            phase => self.phase = phase,
        }
        Ok(())
    }
}

impl<T: Send + 'static> Stream<T> for Prefetched<T> {
    fn next(&mut self) -> Option<Result<T>> {
        if let Err(error) = self.start() {
            return Some(Err(error));
        }
        match &self.phase {
            // After the last element the thread has ended, and with it the channel.
            Phase::Running { elements, .. } => elements.recv().ok(),
            Phase::Idle(_) | Phase::Failed => None,
        }
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        match &mut self.phase {
            Phase::Idle(stream) => stream.skip(count),
            _ => skip_one_by_one(self, count),
        }
    }
}

impl<T> Drop for Prefetched<T> {
    fn drop(&mut self) {
        if let Phase::Running { elements, thread } = mem::replace(&mut self.phase, Phase::Failed) {
            // The thread ends when nobody receives its next element. What it could panic with is an element.
            drop(elements);
            let _ = thread.join();
        }
    }
}
