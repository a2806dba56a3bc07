//! How workers find each other: each listens at its own address, calls those before it and is called by those behind it.

use super::super::{Cluster, StrategyError};
use super::frame::Farewell;
use super::link::Link;
use super::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// How long a host may take to answer a call, and a caller to say who it is.
const CALL_TIME: Duration = Duration::from_secs(2);
/// Between calls to one that is not there yet.
const PAUSE: Duration = Duration::from_millis(50);
/// A greeting is a list of addresses.
const LONGEST_GREETING: u32 = 1 << 20;

/// What workers say first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Greeting {
    /// Version of what goes over links.
    ferrotune_workers: u32,
    workers: Vec<String>,
    index: usize,
    replicas: usize,
}

const VERSION: u32 = 1;

/// Links with all others, in their order.
pub(super) fn join(cluster: &Cluster, replicas: usize) -> Result<Vec<Link>, StrategyError> {
    let own = cluster.index();
    let workers = cluster.workers().to_vec();
    let greeting = Greeting { ferrotune_workers: VERSION, workers, index: own, replicas };
    let mut gathering = Gathering {
        cluster,
        greeting,
        deadline: Instant::now() + cluster.connect_timeout(),
        links: cluster.workers().iter().map(|_| None).collect(),
        heard: vec!["nothing was heard of it".to_owned(); cluster.workers().len()],
    };
    let listener = TcpListener::bind(&cluster.workers()[own]).map_err(|error| gathering.deaf(&error))?;
    if is_hidden(&cluster.workers()[own], &listener) {
        let reason =
            "this host's name leads to its loopback address, which others cannot reach; give its network address";
        return Err(gathering.deaf(&io::Error::other(reason)));
    }
    listener.set_nonblocking(true).map_err(|error| gathering.deaf(&error))?;
    let gathered = gathering.gather(&listener);
    let mut links: Vec<Link> = gathering.links.into_iter().flatten().collect();
    if let Err(error) = &gathered {
        let farewell = Farewell::of(error, own);
        links.iter_mut().for_each(|link| link.part(&farewell));
    }
    gathered.map(|()| links)
}

/// Whether a worker that is named by its host listens where only that host can hear: many systems have their own name
/// lead to 127.0.1.1.
fn is_hidden(address: &str, listener: &TcpListener) -> bool {
    let is_meant = address.parse::<SocketAddr>().is_ok() || address.starts_with("localhost:");
    !is_meant && listener.local_addr().is_ok_and(|at| at.ip().is_loopback())
}

struct Gathering<'a> {
    cluster: &'a Cluster,
    greeting: Greeting,
    deadline: Instant,
    links: Vec<Option<Link>>,
    /// Of each worker, what was heard last.
    heard: Vec<String>,
}

impl Gathering<'_> {
    /// Until all are there.
    fn gather(&mut self, listener: &TcpListener) -> Result<(), StrategyError> {
        loop {
            self.answer_all(listener)?;
            (0..self.cluster.index()).try_for_each(|worker| self.call(worker))?;
            let Some(worker) = self.missing() else { return Ok(()) };
            if self.left().is_zero() {
                let (seconds, reason) = (self.cluster.connect_timeout().as_secs(), self.heard[worker].clone());
                return Err(StrategyError::Missing { worker, address: self.cluster.address(worker), seconds, reason });
            }
            let mut called = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            if let Err(errno) = poll(&mut called, Some(&timespec(PAUSE)))
                && errno != rustix::io::Errno::INTR
            {
                return Err(self.deaf(&errno.into()));
            }
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn deaf(&self, error: &io::Error) -> StrategyError {
        let worker = self.cluster.index();
        StrategyError::Listen { worker, address: self.cluster.address(worker), reason: error.to_string() }
    }

    fn missing(&self) -> Option<usize> {
        (0..self.links.len()).find(|worker| *worker != self.cluster.index() && self.links[*worker].is_none())
    }

    /// Calls a worker that was not reached yet.
    fn call(&mut self, worker: usize) -> Result<(), StrategyError> {
        if self.links[worker].is_some() {
            return Ok(());
        }
        let called = connect(&self.cluster.workers()[worker]).and_then(|mut stream| {
            say(&mut stream, &self.greeting)?;
            // It may be calling others at this moment, and takes a caller that gives up for one that has come.
            hear(&mut stream, self.left().max(CALL_TIME)).map(|greeting| (greeting, stream))
        });
        match called {
            Ok((greeting, stream)) => {
                if let Some(reason) = self.difference(&greeting, worker) {
                    return Err(StrategyError::Stranger { worker, address: self.cluster.address(worker), reason });
                }
                self.link(worker, stream)
            }
            Err(error) => {
                self.heard[worker] = error.to_string();
                Ok(())
            }
        }
    }

    /// Answers whoever has called. What is no worker of ours is left alone: a port may be called by anybody.
    fn answer_all(&mut self, listener: &TcpListener) -> Result<(), StrategyError> {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(self.deaf(&error)),
            };
            let greeted =
                stream.set_nonblocking(false).and_then(|()| hear(&mut stream, CALL_TIME)).and_then(|greeting| {
                    // Also to one that does not belong here, so that it can say why.
                    say(&mut stream, &self.greeting).map(|()| greeting)
                });
            let Ok(greeting) = greeted else { continue };
            // Only those behind us call.
            if !(self.cluster.index() + 1..self.links.len()).contains(&greeting.index) {
                continue;
            }
            match self.difference(&greeting, greeting.index) {
                None => self.link(greeting.index, stream)?,
                Some(reason) => self.heard[greeting.index] = reason,
            }
        }
    }

    fn link(&mut self, worker: usize, stream: TcpStream) -> Result<(), StrategyError> {
        let link = Link::new(worker, self.cluster.workers().into(), stream).map_err(|error| StrategyError::Gone {
            worker,
            address: self.cluster.address(worker),
            reason: error.to_string(),
        })?;
        self.links[worker] = Some(link);
        Ok(())
    }

    /// In what a worker that should be `worker` differs from us.
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

/// To the first of an address' hosts that answers.
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

fn say(stream: &mut TcpStream, greeting: &Greeting) -> io::Result<()> {
    let text = serde_json::to_vec(greeting)?;
    stream.set_write_timeout(Some(CALL_TIME))?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

fn hear(stream: &mut TcpStream, limit: Duration) -> io::Result<Greeting> {
    stream.set_read_timeout(Some(limit))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_GREETING {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is no worker"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(Into::into)
}
