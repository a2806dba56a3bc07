//! Several processes: the helper's questions about other processes, which become calls of the key-value store that the caller of
//! `PJRT_Client_Create` gives.

use crate::abi::{Arguments, made, slice};
use crate::error::Failure;
use crate::helper::{number, read_frame, write_frame};
use serde_json::{Value, json};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Takes its structure, gives an error or null.
type Callback = unsafe extern "C" fn(*mut usize) -> *mut Failure;

/// The caller's store: three functions, each with the argument that it is given.
#[derive(Clone, Copy)]
pub(crate) struct Store {
    get: (Callback, usize),
    put: (Callback, usize),
    get_now: (Callback, usize),
}

impl Store {
    /// Fields of `PJRT_Client_Create`: those of the options, then get, put, the output, and try-get.
    pub(crate) fn of(arguments: Arguments) -> Option<Store> {
        let pair =
            |index| arguments.get::<Option<Callback>>(index).map(|callback| (callback, arguments.get(index + 1)));
        Some(Store { get: pair(2)?, put: pair(4)?, get_now: pair(7)? })
    }

    fn answer(self, request: &Value, raw: &[u8]) -> Result<Vec<u8>, Failure> {
        let (key, value) = raw.split_at(number(&request["key"]));
        let [address, length] = [key.as_ptr() as usize, key.len()];
        let report: extern "C" fn(i32, *const u8, usize) -> *mut Failure = make_error;
        let report = &raw const report as usize;
        match request["op"].as_str() {
            Some("put") => {
                let (put, argument) = self.put;
                let mut words = [64, 0, address, length, value.as_ptr() as usize, value.len(), report, argument];
                failed(put, &mut words).map(|()| Vec::new())
            }
            Some("get") => {
                let (get, argument) = self.get;
                let wait_ms: i32 = number(&request["wait_ms"]);
                let mut words = [80, 0, address, length, wait_ms as usize, report, argument, 0, 0, 0];
                failed(get, &mut words).map(|()| taken(words[7], words[8], words[9]))
            }
            _ => {
                let (get_now, argument) = self.get_now;
                let mut words = [72, 0, address, length, report, argument, 0, 0, 0];
                failed(get_now, &mut words).map(|()| taken(words[6], words[7], words[8]))
            }
        }
    }
}

fn failed(callback: Callback, words: &mut [usize]) -> Result<(), Failure> {
    // SAFETY: the words are the structure of the function, and all that they point to is alive.
    let error = unsafe { callback(words.as_mut_ptr()) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: made by `make_error`, and taken once.
    Err(*unsafe { Box::from_raw(error) })
}

/// Copies a value and gives it back.
fn taken(address: usize, length: usize, free: usize) -> Vec<u8> {
    let value = slice(address as *const u8, length).to_vec();
    // SAFETY: the store gives a function, or null.
    let free: Option<unsafe extern "C" fn(usize)> = unsafe { std::mem::transmute(free) };
    if let Some(free) = free {
        // SAFETY: the store's own function for its value, once.
        unsafe { free(address) };
    }
    value
}

extern "C" fn make_error(code: i32, text: *const u8, length: usize) -> *mut Failure {
    made(Failure { code, message: String::from_utf8_lossy(slice(text, length)).into_owned() })
}

/// Answers the helper until it is dropped.
pub(crate) struct Desk {
    pub(crate) port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    pub(crate) fn open(store: Store) -> io::Result<Desk> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, door) = (listener.local_addr()?.port(), listener.try_clone()?);
        let connections: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let known = connections.clone();
        let thread = std::thread::spawn(move || {
            std::thread::scope(|threads| {
                while let Ok((mut stream, _)) = door.accept() {
                    let Ok(copy) = stream.try_clone() else { return };
                    known.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                    // An error is the helper's end.
                    threads.spawn(move || while serve(&mut stream, store).is_ok() {});
                }
            });
        });
        Ok(Desk { port, connections, listener, thread: Some(thread) })
    }
}

fn serve(stream: &mut TcpStream, store: Store) -> io::Result<()> {
    let (request, raw) = read_frame(stream)?;
    match store.answer(&request, &raw) {
        Ok(value) => write_frame(stream, &json!({"bytes": value.len()}), &[&value]),
        Err(failure) => {
            let text = failure.message;
            write_frame(stream, &json!({"code": failure.code, "error": text, "bytes": 0}), &[])
        }
    }
}

impl Drop for Desk {
    /// The store may be gone afterwards, so all that use it end first.
    fn drop(&mut self) {
        let listener: std::os::fd::BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&self.listener);
        rustix::net::shutdown(listener, rustix::net::Shutdown::Both).expect("a listener");
        for stream in self.connections.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // The helper may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no thread panics");
        }
    }
}
