//! What clients of the device process have: buffers, programs and runs by their ids, and how much memory they hold.

use super::programs::Program;
use super::protocol::Id;
use crate::pjrt::{Buffer, Ends, Input, PjrtError};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a client has under an id.
#[derive(Clone, Debug)]
pub(super) enum Object {
    Array(Arc<Array>),
    Program(Arc<Program>),
    Run(Ends),
    /// The request that would have made the object has failed.
    Failed(PjrtError),
}

/// A buffer whose bytes count as held.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) buffer: Buffer,
    pub(super) held: Held,
}

/// Bytes that count as held until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: u64,
    all: Arc<AtomicU64>,
}

impl Held {
    pub(super) fn new(bytes: u64, all: &Arc<AtomicU64>) -> Held {
        all.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, all: all.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The objects of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    by_id: HashMap<Id, Object>,
    bytes: u64,
    peak_bytes: u64,
}

impl Objects {
    pub(super) fn put(&mut self, id: Id, object: Object) {
        if let Object::Array(array) = &object {
            self.bytes += array.held.bytes;
            self.peak_bytes = self.peak_bytes.max(self.bytes);
        }
        if let Some(before) = self.by_id.insert(id, object) {
            self.count_out(&before);
        }
    }

    pub(super) fn take(&mut self, id: Id) -> Option<Object> {
        let object = self.by_id.remove(&id)?;
        self.count_out(&object);
        Some(object)
    }

    fn count_out(&mut self, object: &Object) {
        if let Object::Array(array) = object {
            self.bytes -= array.held.bytes;
        }
    }

    pub(super) fn get(&self, id: Id) -> Result<&Object, PjrtError> {
        match self.by_id.get(&id) {
            Some(Object::Failed(error)) => Err(error.clone()),
            Some(object) => Ok(object),
            None => Err(unknown(id)),
        }
    }

    pub(super) fn array(&self, id: Id) -> Result<&Arc<Array>, PjrtError> {
        match self.get(id)? {
            Object::Array(array) => Ok(array),
            _ => Err(unknown(id)),
        }
    }

    pub(super) fn program(&self, id: Id) -> Result<&Arc<Program>, PjrtError> {
        match self.get(id)? {
            Object::Program(program) => Ok(program),
            _ => Err(unknown(id)),
        }
    }

    /// The bytes of all arrays, and the greatest number of them so far.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.bytes, self.peak_bytes)
    }

    /// The arrays, programs and failures, without the runs: what a generation keeps.
    pub(super) fn lasting(&self) -> Objects {
        let mut objects = self.clone();
        objects.by_id.retain(|_, object| !matches!(object, Object::Run(_)));
        objects
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Arc<Array>> {
        self.by_id.values().filter_map(|object| if let Object::Array(array) = object { Some(array) } else { None })
    }
}

/// An input of a run: a buffer that others may have, too, or one that the program may use.
pub(super) struct Given {
    shared: Option<Result<Arc<Array>, PjrtError>>,
    own: Option<Array>,
}

impl Given {
    pub(super) fn of(objects: &mut Objects, (id, is_given_away): (Id, bool)) -> Given {
        if !is_given_away {
            return Given { shared: Some(objects.array(id).cloned()), own: None };
        }
        let failure = objects.get(id).err();
        match (objects.take(id), failure) {
            (Some(Object::Array(array)), _) => match Arc::try_unwrap(array) {
                Ok(own) => Given { shared: None, own: Some(own) },
                Err(array) => Given { shared: Some(Ok(array)), own: None },
            },
            (_, failure) => Given { shared: Some(Err(failure.unwrap_or_else(|| unknown(id)))), own: None },
        }
    }

    /// The bytes that the program may use.
    pub(super) fn donated_bytes(&self) -> u64 {
        self.own.as_ref().map_or(0, |own| own.held.bytes)
    }

    pub(super) fn input(&mut self) -> Result<Input<'_>, PjrtError> {
        match (self.own.take(), &self.shared) {
            (Some(array), _) => Ok(Input::Donate(array.buffer)),
            (None, Some(Ok(array))) => Ok(Input::Keep(&array.buffer)),
            (None, Some(Err(error))) => Err(error.clone()),
            (None, None) => Err(PjrtError::Mismatch { what: "an input is used twice".to_owned() }),
        }
    }
}

pub(super) fn unknown(id: Id) -> PjrtError {
    PjrtError::Mismatch { what: format!("the device process knows no object {id} of this client; please report this") }
}
