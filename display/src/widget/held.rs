//! The widgets that variables of this process hold. The kernel closes others when their cells run again.
//!
//! The list is in the process' memory, and no message is sent for each dropped handle. So a snapshot has the list that
//! belongs to its variables, and a handle that is lost in a crash is in no list.

use crate::comm::Comm;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

static HELD: Mutex<Held> = Mutex::new(Held { ids: BTreeSet::new(), is_used: false, reported: None });

struct Held {
    /// The ids of the held widgets' comms.
    ids: BTreeSet<String>,
    /// Whether a widget has existed.
    is_used: bool,
    /// The process that has reported exactly these ids. A woken snapshot is another process: the kernel may know later ids.
    reported: Option<u32>,
}

pub(super) fn add(ids: [&str; 3]) {
    let mut held = held();
    held.ids.extend(ids.map(str::to_owned));
    held.is_used = true;
    held.reported = None;
}

pub(super) fn remove(ids: [&str; 3]) {
    let mut held = held();
    for id in ids {
        held.ids.remove(id);
    }
    held.reported = None;
}

/// Reports the held widgets to the kernel, unless the kernel knows them.
pub(super) fn report() {
    let mut held = held();
    let own = Some(std::process::id());
    if !held.is_used || held.reported == own {
        return;
    }
    // If this fails, the next cell reports. Until then the kernel keeps widgets that it could close.
    if Comm::report_held(&held.ids).is_ok() {
        held.reported = own;
    }
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_kernel_has_heard_of_is_reported_again() {
        let ids = ["layout", "style", "model"];
        add(ids);
        // A test has no kernel.
        report();
        assert!(ids.iter().all(|id| held().ids.contains(*id)) && held().reported.is_none());
        held().reported = Some(std::process::id());
        remove(ids);
        assert!(ids.iter().all(|id| !held().ids.contains(*id)) && held().reported.is_none());
    }
}
