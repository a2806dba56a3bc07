//! The values of a store, and the workers that have arrived. This module uses no network.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Shelf {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The values by name, each with the worker that has stored it.
    values: HashMap<Vec<u8>, (usize, Vec<u8>)>,
    has_arrived: Vec<bool>,
    /// Whether the shelf is closed, so that nobody waits for an answer any more.
    is_closed: bool,
}

impl Shelf {
    pub(super) fn new(workers: usize) -> Shelf {
        let state = State { values: HashMap::new(), has_arrived: vec![false; workers], is_closed: false };
        Shelf { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Closes the shelf, which ends the waits of all threads.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Stores a value, unless there is a value with this name; then the error is the worker that has stored the present value.
    pub(super) fn put(&self, worker: usize, key: &[u8], value: Vec<u8>) -> Result<(), usize> {
        let mut state = self.lock();
        if let Some((by, _)) = state.values.get(key) {
            return Err(*by);
        }
        state.values.insert(key.to_vec(), (worker, value));
        self.changed.notify_all();
        Ok(())
    }

    /// A value, if it is stored within this time.
    pub(super) fn get(&self, key: &[u8], wait: Duration) -> Option<Vec<u8>> {
        self.wait(wait, |state| state.values.get(key).map(|(_, value)| value.clone()))
    }

    /// Records that a worker has arrived, and waits for all workers; returns a worker that does not arrive in time, if there is one.
    pub(super) fn arrive(&self, worker: usize, wait: Duration) -> Option<usize> {
        if let Some(place) = self.lock().has_arrived.get_mut(worker) {
            *place = true;
        }
        self.changed.notify_all();
        let missing = |state: &State| state.has_arrived.iter().position(|has_arrived| !has_arrived);
        match self.wait(wait, |state| missing(state).is_none().then_some(())) {
            Some(()) => None,
            None => missing(&self.lock()),
        }
    }

    /// Waits until `find` returns a value, and returns that value; none if the time is over or the shelf is closed first.
    fn wait<T>(&self, wait: Duration, find: impl Fn(&State) -> Option<T>) -> Option<T> {
        // A deadline beyond the range of the clock is no deadline.
        let deadline = Instant::now().checked_add(wait);
        let mut state = self.lock();
        loop {
            let found = find(&state);
            if found.is_some() || state.is_closed {
                return found;
            }
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
