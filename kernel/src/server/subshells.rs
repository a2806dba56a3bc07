//! Subshells: ids under which a client sends requests that do not wait for a cell. In this kernel only cells wait, whatever
//! their shell, so a subshell is no thread: its id says which queued cells a failure aborts.
//!
//! See "Kernel subshells" (JEP 91), which comes with version 5.5 of the messaging protocol.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::wire::{self, Request};

/// The subshells that clients have made and not deleted.
#[derive(Default)]
pub(super) struct Subshells(Mutex<BTreeSet<String>>);

impl Subshells {
    pub(super) fn create(&self) -> Value {
        let id = wire::random_id();
        self.lock().insert(id.clone());
        json!({"status": "ok", "subshell_id": id})
    }

    pub(super) fn list(&self) -> Value {
        json!({"status": "ok", "subshell_id": &*self.lock()})
    }

    /// Deletes a subshell, and returns the content of the reply; none if there is no such subshell.
    pub(super) fn delete(&self, id: &str) -> Option<Value> {
        self.lock().remove(id).then(|| json!({"status": "ok"}))
    }

    /// The subshell id of a request, if there is no subshell with this id.
    pub(super) fn missing<'a>(&self, request: &'a Request) -> Option<&'a str> {
        request.subshell.as_deref().filter(|id| !self.lock().contains(*id))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
