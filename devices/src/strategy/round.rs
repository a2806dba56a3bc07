//! The meeting point of the replicas of a process in every step: each contributes its values, and waits for the mean.

use super::mesh::Mesh;
use super::values::{Reduce, Values};
use super::{Cluster, StrategyError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A series of steps of a fixed number of replicas. The last replica to arrive in a step exchanges values with the other
/// processes.
#[derive(Debug)]
pub(super) struct Round<'a> {
    count: usize,
    cluster: Option<&'a Cluster>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The number of steps that have ended.
    number: u64,
    /// The values that each replica has contributed to this step.
    contributed: Vec<Option<Values>>,
    /// The result of the last step.
    result: Result<Arc<Values>, StrategyError>,
    /// Whether a replica has ended, so that no later step can complete.
    has_left: bool,
    /// The connections with the other processes, from the first step on; or the error after which they cannot be used any more.
    mesh: Option<Result<Mesh, StrategyError>>,
}

impl Round<'_> {
    pub(super) fn new(count: usize, cluster: Option<&Cluster>) -> Round<'_> {
        let result = Ok(Arc::default());
        let state = State { number: 0, contributed: vec![None; count], result, has_left: false, mesh: None };
        Round { count, cluster, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A guard that each replica holds until it ends.
    pub(super) fn leave_at_end(&self) -> impl Drop + '_ {
        Leaving { round: self }
    }

    /// Replaces the values of the replica with this index in this process by the mean over all replicas of all processes.
    pub(super) fn mean<R: Reduce>(&self, place: usize, values: &mut [R]) -> Result<(), StrategyError> {
        let mut state = self.lock();
        if self.count == 1 {
            return self.across(&mut state.mesh, values);
        }
        let number = state.number;
        state.contributed[place] = Some(R::hold(values));
        if state.contributed.iter().all(Option::is_some) {
            let contributed: Vec<Values> = state.contributed.iter_mut().filter_map(Option::take).collect();
            state.result = self.reduce(contributed, &mut state.mesh).map(Arc::new);
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
        // The next step cannot end without this replica, so the result is still that of this step.
        let mean = state.result.clone()?;
        drop(state);
        let mean = R::held(&mean).unwrap_or_default();
        values.copy_from_slice(mean);
        Ok(())
    }

    fn reduce(
        &self,
        contributed: Vec<Values>,
        mesh: &mut Option<Result<Mesh, StrategyError>>,
    ) -> Result<Values, StrategyError> {
        let Some(_) = self.cluster else { return Values::combined(contributed, self.count as f64) };
        let mut values = Values::combined(contributed, 1.0)?;
        match &mut values {
            Values::F32(values) => self.across(mesh, values)?,
            Values::F64(values) => self.across(mesh, values)?,
        }
        Ok(values)
    }

    /// Replaces values, the sums over this process, by the mean over the replicas of all processes, if there are other processes.
    fn across<R: Reduce>(
        &self,
        mesh: &mut Option<Result<Mesh, StrategyError>>,
        values: &mut [R],
    ) -> Result<(), StrategyError> {
        let Some(cluster) = self.cluster else { return Ok(()) };
        let joined =
            mesh.get_or_insert_with(|| Mesh::join(cluster, self.count)).as_mut().map_err(|error| error.clone())?;
        let mean = joined.mean(values, self.count * cluster.workers().len());
        if let Err(error) = &mean {
            *mesh = Some(Err(error.clone()));
        }
        mean
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that records on drop that a replica has ended, also after a panic.
struct Leaving<'a> {
    round: &'a Round<'a>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.round.lock().has_left = true;
        self.round.changed.notify_all();
    }
}
