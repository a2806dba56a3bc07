//! Workers that reduce values together over TCP. Each is connected with each, owns an equal part of the values, sums it,
//! and sends its mean to the others. So every number is summed in one place and in the order of the workers, the
//! result is the same in every bit on all of them, and each connection carries the least possible: 2/N of the values each
//! way.
//!
//! When a worker is lost, all others end with an error that names it: each finds the closed connection itself, or receives the
//! farewell of a worker that found it first. There is no authentication: like TensorFlow's, a cluster needs a private network.

mod frame;
mod join;
mod peer;

use super::values::{Reduce, set_mean};
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
    /// Buffers for the values that each of the other workers sends, which are used again in every step.
    memory: Vec<Vec<f64>>,
    /// The number of reductions so far.
    step: u64,
    /// The farewell that the other workers receive at the end.
    farewell: Farewell,
}

/// One of the two phases of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Each worker receives its part of all workers' values.
    Scatter = 0,
    /// Each worker receives the means of all parts.
    Gather = 1,
}

impl Mesh {
    /// Connects with all workers, each of which has `replicas` replicas.
    pub(super) fn join(cluster: &Cluster, replicas: usize) -> Result<Mesh, StrategyError> {
        let peers = join::join(cluster, replicas)?;
        let farewell = Farewell { culprit: cluster.index(), reason: "it has ended its part".to_owned() };
        Ok(Mesh { cluster: cluster.clone(), peers, memory: Vec::new(), step: 0, farewell })
    }

    /// Replaces values, which are the sums over this worker's replicas, by the mean over the `count` replicas of all workers.
    /// After an error the mesh cannot be used any more.
    pub(super) fn mean<R: Reduce>(&mut self, values: &mut [R], count: usize) -> Result<(), StrategyError> {
        let reduced = self.reduce(values, count);
        if let Err(error) = &reduced {
            self.farewell = Farewell::of(error, self.cluster.index());
        }
        self.step += 1;
        reduced
    }

    fn reduce<R: Reduce>(&mut self, values: &mut [R], count: usize) -> Result<(), StrategyError> {
        let (workers, own, length) = (self.cluster.workers().len(), self.cluster.index(), values.len());
        let part = |worker: usize| part_of(length, workers, worker);
        let head = |step, phase| Head::new(step, phase as u8, size_of::<R>(), length);
        let mut memory = std::mem::take(&mut self.memory);
        memory.resize_with(workers - 1, Vec::new);
        memory.iter_mut().for_each(|memory| memory.resize(part(own).len(), 0.0));
        let outgoing: Vec<&[u8]> =
            self.peers.iter().map(|peer| bytemuck::cast_slice(&values[part(peer.worker)])).collect();
        let bytes = part(own).len() * size_of::<R>();
        let incoming = memory.iter_mut().map(|memory| &mut bytemuck::cast_slice_mut(memory)[..bytes]).collect();
        self.exchange(head(self.step, Phase::Scatter), &outgoing, incoming)?;
        let others: Vec<&[R]> = memory.iter().map(|memory| &bytemuck::cast_slice(memory)[..part(own).len()]).collect();
        set_mean(&mut values[part(own)], own, &others, count as f64);
        self.memory = memory;
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(values);
        let mut means: Vec<&mut [u8]> = Vec::with_capacity(workers);
        for worker in 0..workers {
            means.push(rest.split_off_mut(..part(worker).len() * size_of::<R>()).unwrap_or_default());
        }
        let own_mean: &[u8] = means.remove(own);
        self.exchange(head(self.step, Phase::Gather), &vec![own_mean; workers - 1], means)
    }

    /// Sends bytes to each of the other workers, and fills `incoming` with the bytes of each, in the order of the workers.
    fn exchange(&mut self, head: Head, outgoing: &[&[u8]], mut incoming: Vec<&mut [u8]>) -> Result<(), StrategyError> {
        for ((peer, outgoing), incoming) in self.peers.iter_mut().zip(outgoing).zip(&incoming) {
            peer.begin(head, outgoing.len(), incoming.len());
        }
        let exchanged = self.go_on(outgoing, &mut incoming);
        if exchanged.is_err() {
            self.peers.iter_mut().zip(outgoing).for_each(|(peer, outgoing)| peer.keep_rest(outgoing));
        }
        exchanged
    }

    fn go_on(&mut self, outgoing: &[&[u8]], incoming: &mut [&mut [u8]]) -> Result<(), StrategyError> {
        let deadline = Instant::now() + self.cluster.step_timeout();
        loop {
            for ((peer, outgoing), incoming) in self.peers.iter_mut().zip(outgoing).zip(&mut *incoming) {
                peer.go_on(outgoing, incoming)?;
            }
            if self.peers.iter().all(PeerConnection::is_done) {
                return Ok(());
            }
            self.wait(deadline)?;
        }
    }

    /// Waits until a connection can send or receive.
    fn wait(&self, deadline: Instant) -> Result<(), StrategyError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting: Vec<_> = self.peers.iter().filter(|peer| !peer.is_done()).map(poll_entry).collect();
        match poll(&mut waiting, Some(&timespec(left))) {
            Ok(0) => Err(self.silent()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(StrategyError::Cluster { reason: format!("cannot wait for the workers: {errno}") }),
        }
    }

    /// The error that names all workers that have not sent or received everything. A worker that hangs is always among them; the
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
    // The conversion cannot overflow, because no timeout is longer than a year.
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

/// The range of `length` values that a worker owns; the sizes differ by at most one.
fn part_of(length: usize, workers: usize, worker: usize) -> Range<usize> {
    length * worker / workers..length * (worker + 1) / workers
}

#[cfg(target_endian = "big")]
compile_error!("workers exchange their values in little-endian order");

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
