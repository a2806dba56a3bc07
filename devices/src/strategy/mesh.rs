//! Workers that reduce values together over TCP. Each is connected with each, owns an equal part of the values, sums it,
//! and sends the mean of it to the others. So every number is summed in one place and in the order of the workers, the
//! result is the same in every bit on all of them, and each connection carries the least possible: 2/N of the values each
//! way.
//!
//! When a worker is lost, all others end with an error that names it: each sees the closed connection itself, or hears of
//! it from a worker that saw it first. There is no authentication: like TensorFlow's, a cluster needs a private network.

mod frame;
mod join;
mod peer;

use super::values::Values;
use super::{Cluster, StrategyError};
use frame::{Farewell, Head};
use peer::PeerConnection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// The connections with the other workers, for the duration of one scope.
#[derive(Debug)]
pub(super) struct Mesh {
    cluster: Cluster,
    peers: Vec<PeerConnection>,
    /// How many reductions there have been.
    step: u64,
    /// What the others are sent at the end.
    farewell: Farewell,
}

/// Half of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Each worker receives its part of all workers' values.
    Scatter = 0,
    /// Each worker receives the means of all parts.
    Gather = 1,
}

impl Mesh {
    /// Connects with all workers; each has `replicas` replicas.
    pub(super) fn join(cluster: &Cluster, replicas: usize) -> Result<Mesh, StrategyError> {
        let peers = join::join(cluster, replicas)?;
        let farewell = Farewell { culprit: cluster.index(), reason: "it has ended its part".to_owned() };
        Ok(Mesh { cluster: cluster.clone(), peers, step: 0, farewell })
    }

    /// The mean over `count` replicas; `local` is the sum of those of this worker. After an error the mesh cannot be used any
    /// more.
    pub(super) fn mean(&mut self, local: &Values, count: usize) -> Result<Values, StrategyError> {
        let mean = self.reduce(local, count);
        if let Err(error) = &mean {
            self.farewell = Farewell::of(error, self.cluster.index());
        }
        self.step += 1;
        mean
    }

    fn reduce(&mut self, local: &Values, count: usize) -> Result<Values, StrategyError> {
        let (workers, own) = (self.cluster.workers().len(), self.cluster.index());
        let part = |worker: usize| part_of(local.len(), workers, worker);
        let others =
            self.exchange(Phase::Scatter, local, |worker| local.to_bytes(part(worker)), |_| part(own).len())?;
        let own_part = local.like(&local.to_bytes(part(own)));
        let mut parts: Vec<Values> = others.iter().map(|bytes| local.like(bytes)).collect();
        parts.insert(own, own_part);
        let mean = Values::combined(&parts, count as f64)?;
        let bytes = mean.to_bytes(0..mean.len());
        let mut means = self.exchange(Phase::Gather, local, |_| bytes.clone(), |worker| part(worker).len())?;
        means.insert(own, bytes);
        Ok(local.like(&means.concat()))
    }

    /// Sends bytes to each of the others, and returns `expected` values from each, in their order.
    fn exchange(
        &mut self,
        phase: Phase,
        local: &Values,
        outgoing: impl Fn(usize) -> Vec<u8>,
        expected: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<u8>>, StrategyError> {
        let element_bytes = local.element_bytes();
        let head = Head::new(self.step, phase as u8, element_bytes, local.len());
        for peer in &mut self.peers {
            peer.begin(head, &outgoing(peer.worker), expected(peer.worker) * element_bytes);
        }
        let deadline = Instant::now() + self.cluster.step_timeout();
        loop {
            for peer in &mut self.peers {
                peer.go_on()?;
            }
            if self.peers.iter().all(PeerConnection::is_done) {
                return Ok(self.peers.iter_mut().map(PeerConnection::take).collect());
            }
            self.wait(deadline)?;
        }
    }

    /// Waits until a connection can continue.
    fn wait(&self, deadline: Instant) -> Result<(), StrategyError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting: Vec<_> = self.peers.iter().filter(|peer| !peer.is_done()).map(poll_entry).collect();
        match poll(&mut waiting, Some(&timespec(left))) {
            Ok(0) => Err(self.silent()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(StrategyError::Cluster { reason: format!("cannot wait for the workers: {errno}") }),
        }
    }

    /// The error that names all workers that have not sent or received everything. One that hangs is always among them; the
    /// others may be waiting for it.
    fn silent(&self) -> StrategyError {
        let missing = self.peers.iter().filter(|peer| !peer.is_done()).map(|peer| peer.worker);
        let named = missing.map(|worker| format!("worker {worker} ({})", self.cluster.address(worker)));
        let workers = named.collect::<Vec<_>>().join(", ");
        StrategyError::Silent { workers, seconds: self.cluster.step_timeout().as_secs() }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.part(&self.farewell));
    }
}

fn poll_entry(peer: &PeerConnection) -> PollFd<'_> {
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, peer.awaits());
    events.set(PollFlags::OUT, peer.sends());
    PollFd::from_borrowed_fd(peer.stream.as_fd(), events)
}

fn timespec(duration: Duration) -> Timespec {
    // No timeout is longer than a year.
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

/// The range of `length` values that a worker owns; the sizes differ by at most one.
fn part_of(length: usize, workers: usize, worker: usize) -> Range<usize> {
    length * worker / workers..length * (worker + 1) / workers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_values_once() {
        for (length, workers) in [(0, 3), (1, 3), (7, 3), (9, 3), (100, 7)] {
            let parts: Vec<_> = (0..workers).flat_map(|worker| part_of(length, workers, worker)).collect();
            assert_eq!(parts, (0..length).collect::<Vec<_>>());
        }
    }
}
