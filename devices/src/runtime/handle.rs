//! Values and programs in a device process, and questions about them.

use super::far::{Far, HAS_LOST};
use super::link::{Arrived, Link};
use crate::memory::Bytes;
use crate::pjrt::PjrtError;
use crate::process::protocol::{Answer, Id, Question};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A value or a program in a device process, which forgets it when this is dropped.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) far: Arc<Far>,
    pub(super) id: Id,
    pub(super) epoch: u64,
    /// Whether the device process still knows the value for this client.
    is_own: bool,
}

impl Handle {
    pub(super) fn new(far: Arc<Far>, id: Id, epoch: u64) -> Handle {
        Handle { far, id, epoch, is_own: true }
    }

    /// A new value of the same device process.
    pub(super) fn beside(&self) -> Handle {
        self.far.handle(self.epoch)
    }

    /// Whether the device process that has the value has not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.far.link_of(self.epoch).is_ok()
    }

    /// Whether both are in the same device process.
    pub(super) fn is_of(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.far, &other.far) && self.epoch == other.epoch
    }

    /// The device process has taken the value for a run.
    pub(super) fn give_away(mut self) {
        self.is_own = false;
    }

    pub(super) fn ask(&self, question: Question) -> Result<Answer, PjrtError> {
        self.far.begin(self.epoch, question)?.wait().map(|(answer, _)| answer)
    }

    pub(super) fn is(&self, question: Question) -> Result<bool, PjrtError> {
        match self.ask(question)? {
            Answer::Is(is) => Ok(is),
            other => Err(self.far.odd(&other)),
        }
    }

    pub(super) fn bytes(&self, question: Question) -> Result<Vec<u8>, PjrtError> {
        let ticket = self.far.begin(self.epoch, question)?;
        let (answer, bytes) = ticket.wait()?;
        self.far.bytes_of(answer, bytes)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A device process that has ended has nothing to forget.
        if self.is_own {
            let current = self.far.current();
            if current.epoch == self.epoch {
                current.link.free(self.id);
            }
        }
    }
}

/// A question whose reply is awaited.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) far: Arc<Far>,
    link: Arc<Link>,
    number: u64,
}

impl Ticket {
    pub(super) fn new(far: Arc<Far>, link: Arc<Link>, number: u64) -> Ticket {
        Ticket { far, link, number }
    }

    pub(super) fn is_answered(&self) -> Result<bool, PjrtError> {
        self.link.has_arrived(self.number).map_err(|broken| self.far.broken(broken))
    }

    /// Waits for the reply, once.
    pub(super) fn wait(&self) -> Result<(Answer, io::Result<Bytes>), PjrtError> {
        let Arrived { answer, bytes } = self.link.wait(self.number).map_err(|broken| self.far.broken(broken))?;
        if answer.is_err() {
            HAS_LOST.store(true, Ordering::Relaxed);
        }
        Ok((answer?, bytes))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.link.forget(self.number);
    }
}
