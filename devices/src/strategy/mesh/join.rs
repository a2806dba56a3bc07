//! How workers find each other: each listens at its own address, connects to those before it in the list, and accepts
//! connections from those after it.

use super::super::{Cluster, StrategyError};
use super::frame::Farewell;
use super::peer::PeerConnection;
use super::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// How long a host may take to accept a connection, and its peer to send a greeting.
const CALL_TIME: Duration = Duration::from_secs(2);
/// The time between attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest greeting, in bytes; it is a list of addresses.
const LONGEST_GREETING: u32 = 1 << 20;

/// What workers send first.
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
    let listener = TcpListener::bind(&cluster.workers()[own]).map_err(|error| gathering.cannot_listen(&error))?;
    if is_hidden(&cluster.workers()[own], &listener) {
        let reason =
            "this host's name leads to its loopback address, which others cannot reach; give its network address";
        return Err(gathering.cannot_listen(&io::Error::other(reason)));
    }
    listener.set_nonblocking(true).map_err(|error| gathering.cannot_listen(&error))?;
    let gathered = gathering.gather(&listener);
    let mut peers: Vec<PeerConnection> = gathering.peers.into_iter().flatten().collect();
    if let Err(error) = &gathered {
        let farewell = Farewell::of(error, own);
        peers.iter_mut().for_each(|peer| peer.part(&farewell));
    }
    gathered.map(|()| peers)
}

/// Whether a worker that is named by its host name listens only on the loopback network: on many systems their own name
/// resolves to 127.0.1.1.
fn is_hidden(address: &str, listener: &TcpListener) -> bool {
    let is_intended = address.parse::<SocketAddr>().is_ok() || address.starts_with("localhost:");
    !is_intended && listener.local_addr().is_ok_and(|at| at.ip().is_loopback())
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
                return Err(self.cannot_listen(&errno.into()));
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn cannot_listen(&self, error: &io::Error) -> StrategyError {
        let worker = self.cluster.index();
        StrategyError::Listen { worker, address: self.cluster.address(worker), reason: error.to_string() }
    }

    fn missing(&self) -> Option<usize> {
        (0..self.peers.len()).find(|worker| *worker != self.cluster.index() && self.peers[*worker].is_none())
    }

    /// Connects to a worker that is not connected yet.
    fn call(&mut self, worker: usize) -> Result<(), StrategyError> {
        if self.peers[worker].is_some() {
            return Ok(());
        }
        let called = connect(&self.cluster.workers()[worker]).and_then(|mut stream| {
            send(&mut stream, &self.greeting)?;
            // The other worker may be busy with others now. If this one gave up, it would still take it for connected.
            receive(&mut stream, self.left().max(CALL_TIME)).map(|greeting| (greeting, stream))
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

    /// Answers all waiting connections. One that is not from a worker of this cluster is dropped: any program may connect to
    /// a port.
    fn answer_all(&mut self, listener: &TcpListener) -> Result<(), StrategyError> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(self.cannot_listen(&error)),
            };
            let greeted =
                stream.set_nonblocking(false).and_then(|()| receive(&mut stream, CALL_TIME)).and_then(|greeting| {
                    // Sent also to a worker of another cluster, so that it can report the difference.
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

    /// How a worker that should be `worker` differs from what this one expects.
    fn difference(&self, other: &Greeting, worker: usize) -> Option<String> {
        let own = &self.greeting;
        if other.ferrotune_workers != own.ferrotune_workers {
            Some("it runs another version of ferrotune".to_owned())
        } else if other.workers != own.workers {
            Some(format!("it knows the workers {:?}", other.workers))
        } else if other.index != worker {
            Some(format!("it is worker {}", other.index))
        } else if other.replicas != own.replicas {
            Some(format!("it has {} replicas where this one has {}", other.replicas, own.replicas))
        } else {
            None
        }
    }
}

/// Connects to the first of an address' hosts that answers.
fn connect(address: &str) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(ErrorKind::NotFound, "its name is unknown");
    for host in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&host, CALL_TIME) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn send(stream: &mut TcpStream, greeting: &Greeting) -> io::Result<()> {
    let text = serde_json::to_vec(greeting)?;
    stream.set_write_timeout(Some(CALL_TIME))?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

fn receive(stream: &mut TcpStream, limit: Duration) -> io::Result<Greeting> {
    stream.set_read_timeout(Some(limit))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_GREETING {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not a worker"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(Into::into)
}
