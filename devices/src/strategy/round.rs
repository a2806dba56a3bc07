//! Where replicas meet: each brings its values, and goes when all have the mean.

use super::StrategyError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Meetings of a fixed number of replicas, one after the other.
#[derive(Debug)]
pub(super) struct Round {
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// How many meetings have ended.
    number: u64,
    /// What each replica has brought to this one.
    brought: Vec<Option<Vec<f32>>>,
    /// What the last one has come to.
    result: Result<Arc<Vec<f32>>, StrategyError>,
    /// Whether a replica will never come again.
    has_left: bool,
}

impl Round {
    pub(super) fn new(count: usize) -> Round {
        let state = State { number: 0, brought: vec![None; count], result: Ok(Arc::default()), has_left: false };
        Round { count, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// What a replica holds for as long as it may still come.
    pub(super) fn leave_at_end(&self) -> impl Drop + '_ {
        Leaving { round: self }
    }

    pub(super) fn mean(&self, replica: usize, values: &mut [f32]) -> Result<(), StrategyError> {
        let mut state = self.lock();
        let number = state.number;
        state.brought[replica] = Some(values.to_vec());
        if state.brought.iter().all(Option::is_some) {
            let brought: Vec<Vec<f32>> = state.brought.iter_mut().filter_map(Option::take).collect();
            state.result = mean_of(&brought).map(Arc::new);
            state.number += 1;
            self.changed.notify_all();
        }
        while state.number == number {
            if state.has_left {
                return Err(StrategyError::Alone { replica });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // The next meeting cannot end before this replica has come to it.
        let mean = state.result.clone()?;
        drop(state);
        values.copy_from_slice(&mean);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the others, also when a replica panics.
struct Leaving<'a> {
    round: &'a Round,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.round.lock().has_left = true;
        self.round.changed.notify_all();
    }
}

/// Summed in the order of the replicas and in double precision, so that it does not depend on who came first.
fn mean_of(brought: &[Vec<f32>]) -> Result<Vec<f32>, StrategyError> {
    let first = brought.first().map_or(0, Vec::len);
    if let Some(other) = brought.iter().map(Vec::len).find(|length| *length != first) {
        return Err(StrategyError::Lengths { first, other });
    }
    let mean = |index: usize| {
        let sum: f64 = brought.iter().map(|values| f64::from(values[index])).sum();
        (sum / brought.len() as f64) as f32
    };
    Ok((0..first).map(mean).collect())
}
