//! Named values that all workers of a cluster share. PJRT's plugins use them to find the devices of other processes, and to exchange
//! other data between processes, such as the name of a communicator.
//!
//! The first worker keeps the values. The others read and write them over TCP, with one connection for each request, so that a
//! request that waits for a value blocks no other one. There is no authentication, as between the workers of a strategy.

mod serve;
mod shelf;

use super::wire::{self, CALL_TIME, PAUSE, connect, receive, send};
use super::{Cluster, StrategyError};
use serde::{Deserialize, Serialize};
use serve::Server;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest value, in bytes.
const LONGEST_VALUE: u64 = 256 << 20;
const VERSION: u32 = 1;
/// The worker that keeps the values.
const KEEPER: usize = 0;

/// Named values, which every worker of a cluster can store once and read. The first worker keeps them until it drops this store.
///
/// ```
/// use ferrotune_devices::{Cluster, Store};
/// use std::time::Duration;
///
/// let store = Store::open(&Cluster::new(["127.0.0.1:0"], 0)?)?;      // a cluster of one worker, at any free port
/// store.put(b"name", b"value")?;
/// assert_eq!(store.get(b"name", Duration::from_secs(1))?, b"value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Store {
    cluster: Cluster,
    /// The server, in the worker that keeps the values.
    server: Option<Server>,
    /// The number of agreements so far, see [`Store::agree`].
    agreements: AtomicU64,
}

/// The reason why a value cannot be stored or read. Workers are identified by their number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The value was not stored in time.
    #[error(
        "worker {worker} has waited {:.1} s for the value of `{key}`, which no worker has stored; does one of them hang, or run \
         something else?", waited.as_secs_f64()
    )]
    Late {
        /// The worker that waits.
        worker: usize,
        /// The value's name.
        key: String,
        /// The time that the worker has waited.
        waited: Duration,
    },
    /// The value is not stored now.
    #[error("worker {worker} finds no value of `{key}`")]
    Absent {
        /// The worker that asks.
        worker: usize,
        /// The value's name.
        key: String,
    },
    /// A value with this name is stored already.
    #[error(
        "worker {worker} cannot store `{key}`, which worker {by} has stored before; start all workers anew, together"
    )]
    Taken {
        /// The worker that stores.
        worker: usize,
        /// The value's name.
        key: String,
        /// The worker that has stored the other value.
        by: usize,
    },
    /// The worker that keeps the values does not answer.
    #[error(
        "worker {worker} cannot ask worker 0 ({address}) about `{key}`: {reason}; worker 0 must run as long as the others"
    )]
    Unreachable {
        /// The worker that asks.
        worker: usize,
        /// The value's name.
        key: String,
        /// The address of the worker that keeps the values.
        address: String,
        /// The system's reason.
        reason: String,
    },
    /// Two workers differ in something that must be the same.
    #[error("worker {worker} and worker {other} differ in {what}; all workers must do the same in the same order")]
    Differs {
        /// This worker.
        worker: usize,
        /// The first worker that differs from this one.
        other: usize,
        /// A description of the difference.
        what: String,
    },
}

/// The first message of a connection, from both sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Greeting {
    /// Version of the protocol of stores.
    ferrotune_store: u32,
    workers: Vec<String>,
    index: usize,
}

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// The report that this worker has arrived; the answer comes once all workers have arrived.
    Arrive,
    /// A request for a value, which the answer waits for.
    Get { key: Vec<u8>, wait_ms: u64 },
    /// A request to store a value of so many bytes, which follow.
    Put { key: Vec<u8>, bytes: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Done,
    /// A value of so many bytes, which follow.
    Value {
        bytes: u64,
    },
    Absent,
    Taken {
        by: usize,
    },
    /// The number of a worker that did not arrive.
    Missing {
        worker: usize,
    },
}

impl Store {
    /// Opens the store together with the other workers, and waits until all have arrived.
    ///
    /// # Errors
    /// If this is the first worker and it cannot listen at its address, or another worker is missing or has another
    /// description of the cluster.
    pub fn open(cluster: &Cluster) -> Result<Store, StrategyError> {
        let server = if cluster.index() == KEEPER { Some(Server::start(cluster)?) } else { None };
        let store = Store { cluster: cluster.clone(), server, agreements: AtomicU64::new(0) };
        match store.arrive()? {
            None => Ok(store),
            Some(worker) => Err(store.missing(worker, "it did not call worker 0".to_owned())),
        }
    }

    /// The workers that share the values.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Stores a value for all workers.
    ///
    /// # Errors
    /// If a worker has stored a value with this name, or the first worker does not answer.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let own = self.cluster.index();
        let taken = |by| StoreError::Taken { worker: own, key: name(key), by };
        if let Some(server) = &self.server {
            return server.shelf().put(own, key, value.to_vec()).map_err(taken);
        }
        let request = Request::Put { key: key.to_vec(), bytes: value.len() as u64 };
        match self.ask(&request, value, CALL_TIME).map_err(|error| self.unreachable(key, &error))? {
            (Answer::Taken { by }, _) => Err(taken(by)),
            (Answer::Done, _) => Ok(()),
            (other, _) => Err(self.unreachable(key, &unexpected(&other))),
        }
    }

    /// The value with this name; waits until a worker has stored it. A time that no clock reaches is endless.
    ///
    /// # Errors
    /// If no worker stores the value within this time, or the first worker does not answer.
    pub fn get(&self, key: &[u8], wait: Duration) -> Result<Vec<u8>, StoreError> {
        let begin = Instant::now();
        let late = || StoreError::Late { worker: self.cluster.index(), key: name(key), waited: begin.elapsed() };
        self.find(key, wait)?.ok_or_else(late)
    }

    /// The value with this name, if it is stored now.
    ///
    /// # Errors
    /// If the value is not stored, or the first worker does not answer.
    pub fn get_now(&self, key: &[u8]) -> Result<Vec<u8>, StoreError> {
        let absent = || StoreError::Absent { worker: self.cluster.index(), key: name(key) };
        self.find(key, Duration::ZERO)?.ok_or_else(absent)
    }

    /// Makes sure that all workers have the same next `thing`, such as a program. `own` identifies the thing of this worker. All workers
    /// must call this equally often, in the same order.
    ///
    /// # Errors
    /// If a worker has another thing, or does not call this before the cluster's timeout of a step.
    pub fn agree(&self, thing: &str, own: &[u8]) -> Result<(), StoreError> {
        let worker = self.cluster.index();
        let what = format!("{thing} {}", self.agreements.fetch_add(1, Ordering::Relaxed) + 1);
        let key = |worker: usize| format!("ferrotune/{what}/{worker}").into_bytes();
        self.put(&key(worker), own)?;
        let deadline = Instant::now() + self.cluster.step_timeout();
        for other in (0..self.cluster.workers().len()).filter(|other| *other != worker) {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.get(&key(other), left)? != own {
                return Err(StoreError::Differs { worker, other, what });
            }
        }
        Ok(())
    }

    fn find(&self, key: &[u8], wait: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(server) = &self.server {
            return Ok(server.shelf().get(key, wait));
        }
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Get { key: key.to_vec(), wait_ms };
        match self.ask(&request, &[], wait.saturating_add(CALL_TIME)).map_err(|error| self.unreachable(key, &error))? {
            (Answer::Value { .. }, value) => Ok(Some(value)),
            (Answer::Absent, _) => Ok(None),
            (other, _) => Err(self.unreachable(key, &unexpected(&other))),
        }
    }

    /// Reports that this worker has arrived, and returns a worker that has not arrived at the deadline, if there is one.
    fn arrive(&self) -> Result<Option<usize>, StrategyError> {
        let limit = self.cluster.connect_timeout();
        if let Some(server) = &self.server {
            return Ok(server.shelf().arrive(KEEPER, limit));
        }
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut stranger = None;
            let answer = self.ask_checked(&Request::Arrive, &[], left + CALL_TIME, &mut stranger);
            if let Some(reason) = stranger {
                return Err(StrategyError::Stranger { worker: KEEPER, address: self.cluster.address(KEEPER), reason });
            }
            match answer {
                Ok((Answer::Done, _)) => return Ok(None),
                Ok((Answer::Missing { worker }, _)) => return Ok(Some(worker)),
                Ok((other, _)) => return Err(self.missing(KEEPER, unexpected(&other).to_string())),
                Err(error) if left.is_zero() => return Err(self.missing(KEEPER, error.to_string())),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn ask(&self, request: &Request, value: &[u8], limit: Duration) -> io::Result<(Answer, Vec<u8>)> {
        let mut stranger = None;
        let answer = self.ask_checked(request, value, limit, &mut stranger);
        stranger.map_or(answer, |reason| Err(io::Error::other(reason)))
    }

    /// Sends a request to the worker that keeps the values. Sets `stranger` to the difference between that worker and the expected one.
    fn ask_checked(
        &self,
        request: &Request,
        value: &[u8],
        limit: Duration,
        stranger: &mut Option<String>,
    ) -> io::Result<(Answer, Vec<u8>)> {
        let mut stream = connect(&self.cluster.workers()[KEEPER])?;
        let own = Greeting::of(&self.cluster);
        send(&mut stream, &own)?;
        send(&mut stream, request)?;
        stream.write_all(value)?;
        *stranger = own.difference(&receive(&mut stream, CALL_TIME)?, KEEPER);
        let answer = receive(&mut stream, limit)?;
        let bytes = if let Answer::Value { bytes } = answer { bytes } else { 0 };
        Ok((answer, read_value(&mut stream, bytes)?))
    }

    fn unreachable(&self, key: &[u8], error: &io::Error) -> StoreError {
        let (worker, address) = (self.cluster.index(), self.cluster.address(KEEPER));
        StoreError::Unreachable { worker, key: name(key), address, reason: error.to_string() }
    }

    fn missing(&self, worker: usize, reason: String) -> StrategyError {
        let seconds = self.cluster.connect_timeout().as_secs();
        StrategyError::Missing { worker, address: self.cluster.address(worker), seconds, reason }
    }
}

impl Greeting {
    fn of(cluster: &Cluster) -> Greeting {
        Greeting { ferrotune_store: VERSION, workers: cluster.workers().to_vec(), index: cluster.index() }
    }

    /// The difference between a worker that should be `worker` and what this worker expects; none if they agree.
    fn difference(&self, other: &Greeting, worker: usize) -> Option<String> {
        let is_same_version = other.ferrotune_store == self.ferrotune_store;
        wire::difference(is_same_version, &self.workers, (&other.workers, other.index), worker)
    }
}

fn read_value(stream: &mut TcpStream, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > LONGEST_VALUE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a value has {bytes} bytes")));
    }
    let mut value = Vec::new();
    stream.take(bytes).read_to_end(&mut value)?;
    if value.len() as u64 == bytes { Ok(value) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn unexpected(answer: &Answer) -> io::Error {
    io::Error::other(format!("it answers {answer:?}"))
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
