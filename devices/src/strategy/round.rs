//! Where the replicas of a process meet: each brings its values, and goes when all have the mean.

use super::mesh::Mesh;
use super::values::{Reduce, Values};
use super::{Cluster, StrategyError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Meetings of a fixed number of replicas, one after the other. The last to come speaks with other processes.
#[derive(Debug)]
pub(super) struct Round<'a> {
    count: usize,
    cluster: Option<&'a Cluster>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// How many meetings have ended.
    number: u64,
    /// What each replica has brought to this one.
    brought: Vec<Option<Values>>,
    /// What the last one has come to.
    result: Result<Arc<Values>, StrategyError>,
    /// Whether a replica will never come again.
    has_left: bool,
    /// The other processes, from the first meeting on; or why there is no speaking with them any more.
    mesh: Option<Result<Mesh, StrategyError>>,
}

impl Round<'_> {
    pub(super) fn new(count: usize, cluster: Option<&Cluster>) -> Round<'_> {
        let result = Ok(Arc::new(Values::F32(Vec::new())));
        let state = State { number: 0, brought: vec![None; count], result, has_left: false, mesh: None };
        Round { count, cluster, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// What a replica holds for as long as it may still come.
    pub(super) fn leave_at_end(&self) -> impl Drop + '_ {
        Leaving { round: self }
    }

    /// Replaces the values of the replica at a place in this process by the mean over all replicas everywhere.
    pub(super) fn mean<R: Reduce>(&self, place: usize, values: &mut [R]) -> Result<(), StrategyError> {
        let mut state = self.lock();
        let number = state.number;
        state.brought[place] = Some(R::hold(values));
        if state.brought.iter().all(Option::is_some) {
            let brought: Vec<Values> = state.brought.iter_mut().filter_map(Option::take).collect();
            state.result = self.reduce(&brought, &mut state.mesh).map(Arc::new);
            state.number += 1;
            self.changed.notify_all();
        }
        while state.number == number {
            if state.has_left {
                return Err(StrategyError::Alone {
                    replica: self.cluster.map_or(0, Cluster::index) * self.count + place,
                });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // The next meeting cannot end before this replica has come to it.
        let mean = state.result.clone()?;
        drop(state);
        let mean = R::held(&mean).unwrap_or_default();
        values.copy_from_slice(mean);
        Ok(())
    }

    fn reduce(
        &self,
        brought: &[Values],
        mesh: &mut Option<Result<Mesh, StrategyError>>,
    ) -> Result<Values, StrategyError> {
        let Some(cluster) = self.cluster else { return Values::combined(brought, self.count as f64) };
        let local = Values::combined(brought, 1.0)?;
        let joined =
            mesh.get_or_insert_with(|| Mesh::join(cluster, self.count)).as_mut().map_err(|error| error.clone())?;
        let mean = joined.mean(&local, self.count * cluster.workers().len());
        if let Err(error) = &mean {
            *mesh = Some(Err(error.clone()));
        }
        mean
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the others, also when a replica panics.
struct Leaving<'a> {
    round: &'a Round<'a>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.round.lock().has_left = true;
        self.round.changed.notify_all();
    }
}
