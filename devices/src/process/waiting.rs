//! Threads that wait for the device, so that the service of a client goes on.

use crate::memory::Room;
use crate::pjrt::Transfer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Wait = Box<dyn FnOnce() + Send>;

/// A thread that waits, and further ones where it is busy.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    thread: Mutex<Option<Sender<Wait>>>,
    is_busy: Arc<AtomicBool>,
}

impl Waiting {
    /// Calls a function that waits.
    pub(super) fn run(&self, wait: impl FnOnce() + Send + 'static) {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            std::thread::spawn(wait);
            return;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = thread.get_or_insert_with(|| {
            let (sender, waits) = channel::<Wait>();
            std::thread::spawn(move || waits.into_iter().for_each(|wait| wait()));
            sender
        });
        let is_busy = self.is_busy.clone();
        let wait = Box::new(move || {
            wait();
            is_busy.store(false, Ordering::Release);
        });
        if let Err(unsent) = sender.send(wait) {
            // The thread has ended by a panic of an earlier wait.
            *thread = None;
            std::thread::spawn(unsent.0);
        }
    }
}

/// Whether a transfer ends at once or in a moment. Another thread, which would wait for it, needs longer to wake up.
pub(super) fn ends_soon(transfer: &Transfer<Room>) -> bool {
    const MOMENT: Duration = Duration::from_micros(30);
    let begun = Instant::now();
    loop {
        // Who waits for a transfer that has failed gets its error.
        if transfer.is_ready().unwrap_or(true) {
            return true;
        }
        if begun.elapsed() > MOMENT {
            return false;
        }
        std::thread::yield_now();
    }
}
