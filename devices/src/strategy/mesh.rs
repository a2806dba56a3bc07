//! Workers that reduce together over TCP: each is linked with each, owns an equal part of the values, sums it, and gives
//! the mean of it to the others. So every number is summed in one place and in the order of the workers, the result is
//! the same in every bit on all of them, and each link carries as little as it can: 2/N of the values each way.
//!
//! A worker that is lost ends all the others with its name: each sees the closed connection itself, or is told by one
//! that saw it first. Nobody is asked who they are: a cluster belongs into a network of one's own, as TensorFlow's does.

mod frame;
mod join;
mod link;

use super::values::Values;
use super::{Cluster, StrategyError};
use frame::{Farewell, Head};
use link::Link;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// The other workers, linked for as long as one scope runs.
#[derive(Debug)]
pub(super) struct Mesh {
    cluster: Cluster,
    links: Vec<Link>,
    /// How many reductions there have been.
    step: u64,
    /// What the others hear at the end.
    farewell: Farewell,
}

/// Half of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Each worker gets its part of everybody's values.
    Scatter = 0,
    /// Each worker gets the means of everybody's part.
    Gather = 1,
}

impl Mesh {
    /// Waits for all workers, of which each has `replicas` replicas.
    pub(super) fn join(cluster: &Cluster, replicas: usize) -> Result<Mesh, StrategyError> {
        let links = join::join(cluster, replicas)?;
        let farewell = Farewell { culprit: cluster.index(), reason: "it has ended its part".to_owned() };
        Ok(Mesh { cluster: cluster.clone(), links, step: 0, farewell })
    }

    /// The mean over `count` replicas, of which those of each worker are in its `local` sum. After an error there is no
    /// going on.
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

    /// Sends something to each of the others and gets from each, in their order, `expected` values.
    fn exchange(
        &mut self,
        phase: Phase,
        local: &Values,
        outgoing: impl Fn(usize) -> Vec<u8>,
        expected: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<u8>>, StrategyError> {
        let element_bytes = local.element_bytes();
        let head = Head::new(self.step, phase as u8, element_bytes, local.len());
        for link in &mut self.links {
            link.begin(head, &outgoing(link.worker), expected(link.worker) * element_bytes);
        }
        let deadline = Instant::now() + self.cluster.step_timeout();
        loop {
            for link in &mut self.links {
                link.go_on()?;
            }
            if self.links.iter().all(Link::is_done) {
                return Ok(self.links.iter_mut().map(Link::take).collect());
            }
            self.wait(deadline)?;
        }
    }

    /// Until a link can go on.
    fn wait(&self, deadline: Instant) -> Result<(), StrategyError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting: Vec<_> = self.links.iter().filter(|link| !link.is_done()).map(poll_entry).collect();
        match poll(&mut waiting, Some(&timespec(left))) {
            Ok(0) => Err(self.silent()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(StrategyError::Cluster { reason: format!("cannot wait for the workers: {errno}") }),
        }
    }

    /// All that have not sent what they must, or have not taken what they get: one that hangs is always among them, and
    /// those that wait for it may be.
    fn silent(&self) -> StrategyError {
        let missing = self.links.iter().filter(|link| !link.is_done()).map(|link| link.worker);
        let named = missing.map(|worker| format!("worker {worker} ({})", self.cluster.address(worker)));
        let workers = named.collect::<Vec<_>>().join(", ");
        StrategyError::Silent { workers, seconds: self.cluster.step_timeout().as_secs() }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.links.iter_mut().for_each(|link| link.part(&self.farewell));
    }
}

fn poll_entry(link: &Link) -> PollFd<'_> {
    let mut events = PollFlags::empty();
    events.set(PollFlags::IN, link.awaits());
    events.set(PollFlags::OUT, link.sends());
    PollFd::from_borrowed_fd(link.stream.as_fd(), events)
}

fn timespec(duration: Duration) -> Timespec {
    // No limit is longer than a year.
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

/// The values that a worker owns, of `length`: as many as the others, or one more.
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
