//! Keeps what the device process holds within the memory that there is.

use super::Server;
use super::session::Session;
use crate::pjrt::{Code, PjrtError};
use ferrotune_machine::format::precise_bytes;
use ferrotune_machine::memory::available_bytes;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The memory that stays free on a machine whose memory is the device's.
const RESERVE_BYTES: u64 = 512 << 20;

/// How long a reading of the machine's memory counts.
const FRESH: Duration = Duration::from_millis(200);

/// The memory for arrays and running programs.
#[derive(Debug)]
pub(super) enum Limit {
    /// The device has so many bytes.
    OfDevice(u64),
    /// The device's memory is the machine's. The bytes that were free at the last reading, and its time.
    OfMachine(Mutex<Option<(u64, Instant)>>),
    /// The plugin does not report its memory.
    Unknown,
}

impl Limit {
    pub(super) fn new(platform: &str, reported: Option<u64>) -> Limit {
        match (reported, platform) {
            (_, "cpu") => Limit::OfMachine(Mutex::default()),
            (Some(bytes), _) => Limit::OfDevice(bytes),
            (None, _) => Limit::Unknown,
        }
    }

    /// The bytes that are free where `held` bytes are in use.
    pub(super) fn free(&self, held: u64) -> Option<u64> {
        match self {
            Limit::OfDevice(bytes) => Some(bytes.saturating_sub(held)),
            Limit::OfMachine(reading) => {
                let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
                if reading.is_none_or(|(_, at)| at.elapsed() > FRESH) {
                    *reading = Some((available_bytes().ok()?.saturating_sub(RESERVE_BYTES), Instant::now()));
                }
                reading.map(|(free, _)| free)
            }
            Limit::Unknown => None,
        }
    }

    /// Whether the device's memory is the machine's.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(self, Limit::OfMachine(_))
    }

    /// Makes the next look at the machine's memory a new reading.
    fn read_again(&self) {
        if let Limit::OfMachine(reading) = self {
            *reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Makes sure that a client may use so many bytes more, and that they are free. Where they are not, the oldest generations are dropped.
///
/// # Errors
/// If the client's budget does not suffice, or if the bytes are not free and no generation is left.
pub(super) fn make_room(server: &Server, session: &Session, bytes: u64) -> Result<(), PjrtError> {
    check_budget(server, session, bytes)?;
    make_free(server, bytes)
}

/// Makes sure that the client may use so many bytes more.
///
/// # Errors
/// If the client's budget does not suffice.
pub(super) fn check_budget(server: &Server, session: &Session, bytes: u64) -> Result<(), PjrtError> {
    if let Some(budget) = session.budget {
        let own = session.objects().bytes().0;
        if own.saturating_add(bytes) > budget {
            return Err(exhausted(
                server,
                format!(
                    "{} more are needed beside {} in use, and {} may use {} of the device's memory; make the model or the batch smaller, or \
                 let fewer trials run side by side",
                    precise_bytes(bytes),
                    precise_bytes(own),
                    session.name,
                    precise_bytes(budget),
                ),
            ));
        }
    }
    Ok(())
}

/// Makes sure that so many bytes are free. Where they are not, the oldest generations are dropped.
fn make_free(server: &Server, bytes: u64) -> Result<(), PjrtError> {
    // A small array does not decide whether memory suffices.
    const SMALL: u64 = 1 << 20;
    if bytes < SMALL {
        return Ok(());
    }
    loop {
        let held = server.held.load(Ordering::Relaxed);
        let Some(free) = server.limit.free(held) else { return Ok(()) };
        if bytes <= free {
            return Ok(());
        }
        server.limit.read_again();
        if server.drop_oldest_generation() {
            continue;
        }
        if server.limit.free(held).is_none_or(|free| bytes <= free) {
            return Ok(());
        }
        return Err(exhausted(
            server,
            format!(
                "{} are needed, {} are free, and the tensors there have {}; make tensors or batches smaller, or drop some",
                precise_bytes(bytes),
                precise_bytes(free),
                precise_bytes(held),
            ),
        ));
    }
}

fn exhausted(server: &Server, message: String) -> PjrtError {
    PjrtError::Refused { function: server.name.clone(), code: Code::RESOURCE_EXHAUSTED, message }
}
