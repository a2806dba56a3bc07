//! The verb `prefetch`: a thread makes elements before they are requested.

use crate::stream::{BoxStream, Stream, skip_one_by_one};
use crate::{DataError, Result};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The elements of a stream, of which up to `count` are made ahead.
pub(crate) struct Prefetched<T> {
    count: usize,
    phase: Phase<T>,
}

enum Phase<T> {
    /// No element has been requested.
    Idle(BoxStream<T>),
    /// The thread makes elements.
    Running { elements: Receiver<Result<T>>, thread: JoinHandle<()> },
    /// The thread could not be started.
    Failed,
}

impl<T: Send + 'static> Prefetched<T> {
    pub(crate) fn new(stream: BoxStream<T>, count: usize) -> Prefetched<T> {
        Prefetched { count, phase: Phase::Idle(stream) }
    }

    /// Sends the elements of a stream until the receiver is gone.
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
                // While the thread waits, it holds one element in addition to those in the channel.
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
            // After the last element the thread ends, which closes the channel.
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
            // The thread ends when it cannot send its next element. A panic of the stream is sent as an element.
            drop(elements);
            let _ = thread.join();
        }
    }
}
