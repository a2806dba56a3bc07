//! The server that answers the other workers, in the worker that keeps the values.

use super::shelf::Shelf;
use super::{Answer, Greeting, Request, read_value};
use crate::strategy::wire::{self, CALL_TIME, receive, send};
use crate::strategy::{Cluster, StrategyError};
use rustix::net::{Shutdown, shutdown};
use std::io::{self, ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The server of a store, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    shelf: Arc<Shelf>,
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(cluster: &Cluster) -> Result<Server, StrategyError> {
        let listener = Arc::new(wire::listen(cluster)?);
        let shelf = Arc::new(Shelf::new(cluster.workers().len()));
        let desk = Arc::new(Desk {
            shelf: shelf.clone(),
            greeting: Greeting::of(cluster),
            arrival: cluster.connect_timeout(),
        });
        let door = listener.clone();
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || accept_all(&door, &desk));
        let thread = thread.map_err(|error| wire::cannot_listen(cluster, &error))?;
        Ok(Server { shelf, listener, thread: Some(thread) })
    }

    pub(super) fn shelf(&self) -> &Shelf {
        &self.shelf
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shelf.close();
        // On Linux the shutdown ends `accept`.
        if let Err(errno) = shutdown(&*self.listener, Shutdown::Both) {
            eprintln!("ferrotune: a store's port stays open: {errno}");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("ferrotune: the thread of a store has panicked");
        }
    }
}

/// The data that the thread of each connection needs.
#[derive(Debug)]
struct Desk {
    shelf: Arc<Shelf>,
    greeting: Greeting,
    /// The time that workers have to arrive.
    arrival: Duration,
}

/// Answers each connection in a thread of its own, because an answer may wait for a value.
fn accept_all(listener: &TcpListener, desk: &Arc<Desk>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
            // The listener was shut down.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return,
            Err(error) => {
                eprintln!("ferrotune: a store cannot accept a connection, and ends: {error}");
                return;
            }
        };
        let desk = desk.clone();
        let serving = std::thread::Builder::new().name("store answers".to_owned()).spawn(move || {
            // Any program may connect to a port. A worker that ends closes its connections, and finds the error itself.
            drop(desk.serve(stream));
        });
        if let Err(error) = serving {
            eprintln!("ferrotune: a store cannot answer a worker: {error}");
        }
    }
}

impl Desk {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let greeting: Greeting = receive(&mut stream, CALL_TIME)?;
        let request = receive(&mut stream, CALL_TIME)?;
        // The greeting is also sent to a worker of another cluster, so that it can report the difference.
        send(&mut stream, &self.greeting)?;
        let worker = greeting.index;
        if self.greeting.difference(&greeting, worker).is_some() {
            return Ok(());
        }
        match request {
            Request::Arrive => match self.shelf.arrive(worker, self.arrival) {
                None => send(&mut stream, &Answer::Done),
                Some(worker) => send(&mut stream, &Answer::Missing { worker }),
            },
            Request::Get { key, wait_ms } => match self.shelf.get(&key, Duration::from_millis(wait_ms)) {
                None => send(&mut stream, &Answer::Absent),
                Some(value) => {
                    send(&mut stream, &Answer::Value { bytes: value.len() as u64 })?;
                    stream.write_all(&value)
                }
            },
            Request::Put { key, bytes } => {
                let value = read_value(&mut stream, bytes)?;
                match self.shelf.put(worker, &key, value) {
                    Ok(()) => send(&mut stream, &Answer::Done),
                    Err(by) => send(&mut stream, &Answer::Taken { by }),
                }
            }
        }
    }
}
