//! Connects the workers with each other: each listens at its own address, connects to the workers before it in the list, and accepts
//! connections from those after it.

use super::super::wire::{self, CALL_TIME, PAUSE, connect, receive, send};
use super::super::{Cluster, StrategyError};
use super::frame::Farewell;
use super::peer::PeerConnection;
use super::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// The first message of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Greeting {
    /// Version of the protocol between workers.
    ferrotune_workers: u32,
    workers: Vec<String>,
    index: usize,
    replicas: usize,
}

const VERSION: u32 = 1;

/// Connections with all other workers, in their order.
pub(super) fn join(cluster: &Cluster, replicas: usize) -> Result<Vec<PeerConnection>, StrategyError> {
    let own = cluster.index();
    let workers = cluster.workers().to_vec();
    let greeting = Greeting { ferrotune_workers: VERSION, workers, index: own, replicas };
    let mut gathering = Gathering {
        cluster,
        greeting,
        deadline: Instant::now() + cluster.connect_timeout(),
        peers: cluster.workers().iter().map(|_| None).collect(),
        answers: vec!["there was no answer".to_owned(); cluster.workers().len()],
    };
    let listener = wire::listen(cluster)?;
    listener.set_nonblocking(true).map_err(|error| wire::cannot_listen(cluster, &error))?;
    let gathered = gathering.gather(&listener);
    let mut peers: Vec<PeerConnection> = gathering.peers.into_iter().flatten().collect();
    if let Err(error) = &gathered {
        let farewell = Farewell::of(error, own);
        peers.iter_mut().for_each(|peer| peer.part(&farewell));
    }
    gathered.map(|()| peers)
}

struct Gathering<'a> {
    cluster: &'a Cluster,
    greeting: Greeting,
    deadline: Instant,
    peers: Vec<Option<PeerConnection>>,
    /// The last answer of each worker.
    answers: Vec<String>,
}

impl Gathering<'_> {
    /// Waits until all workers are connected.
    fn gather(&mut self, listener: &TcpListener) -> Result<(), StrategyError> {
        loop {
            self.answer_all(listener)?;
            (0..self.cluster.index()).try_for_each(|worker| self.call(worker))?;
            let Some(worker) = self.missing() else { return Ok(()) };
            if self.left().is_zero() {
                let (seconds, reason) = (self.cluster.connect_timeout().as_secs(), self.answers[worker].clone());
                return Err(StrategyError::Missing { worker, address: self.cluster.address(worker), seconds, reason });
            }
            let mut called = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            if let Err(errno) = poll(&mut called, Some(&timespec(PAUSE)))
                && errno != rustix::io::Errno::INTR
            {
                return Err(wire::cannot_listen(self.cluster, &errno.into()));
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn missing(&self) -> Option<usize> {
        (0..self.peers.len()).find(|worker| *worker != self.cluster.index() && self.peers[*worker].is_none())
    }

    /// Connects to a worker, unless it is connected already.
    fn call(&mut self, worker: usize) -> Result<(), StrategyError> {
        if self.peers[worker].is_some() {
            return Ok(());
        }
        let called = connect(&self.cluster.workers()[worker]).and_then(|mut stream| {
            send(&mut stream, &self.greeting)?;
            // The other worker may be busy with others now. If this worker gave up, the other one would still take it for connected.
            receive::<Greeting>(&mut stream, self.left().max(CALL_TIME)).map(|greeting| (greeting, stream))
        });
        match called {
            Ok((greeting, stream)) => {
                if let Some(reason) = self.difference(&greeting, worker) {
                    return Err(StrategyError::Stranger { worker, address: self.cluster.address(worker), reason });
                }
                self.add_peer(worker, stream)
            }
            Err(error) => {
                self.answers[worker] = error.to_string();
                Ok(())
            }
        }
    }

    /// Answers all waiting connections. A connection that is not from a worker of this cluster is dropped: any program may connect to
    /// a port.
    fn answer_all(&mut self, listener: &TcpListener) -> Result<(), StrategyError> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(wire::cannot_listen(self.cluster, &error)),
            };
            let greeted = stream
                .set_nonblocking(false)
                .and_then(|()| receive::<Greeting>(&mut stream, CALL_TIME))
                .and_then(|greeting| {
                    // The greeting is also sent to a worker of another cluster, so that it can report the difference.
                    send(&mut stream, &self.greeting).map(|()| greeting)
                });
            let Ok(greeting) = greeted else { continue };
            // Only workers after this one in the list connect to it.
            if !(self.cluster.index() + 1..self.peers.len()).contains(&greeting.index) {
                continue;
            }
            match self.difference(&greeting, greeting.index) {
                None => self.add_peer(greeting.index, stream)?,
                Some(reason) => self.answers[greeting.index] = reason,
            }
        }
    }

    fn add_peer(&mut self, worker: usize, stream: TcpStream) -> Result<(), StrategyError> {
        let peer = PeerConnection::new(worker, self.cluster.workers().into(), stream).map_err(|error| {
            StrategyError::Gone { worker, address: self.cluster.address(worker), reason: error.to_string() }
        })?;
        self.peers[worker] = Some(peer);
        Ok(())
    }

    /// The difference between a worker that should be `worker` and what this worker expects; none if they agree.
    fn difference(&self, other: &Greeting, worker: usize) -> Option<String> {
        let own = &self.greeting;
        let is_same_version = other.ferrotune_workers == own.ferrotune_workers;
        let replicas = || {
            let differ = other.replicas != own.replicas;
            differ.then(|| format!("it has {} replicas where this one has {}", other.replicas, own.replicas))
        };
        wire::difference(is_same_version, &own.workers, (&other.workers, other.index), worker).or_else(replicas)
    }
}
