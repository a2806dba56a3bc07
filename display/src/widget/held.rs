//! The widgets that variables of this process hold. The kernel closes others when their cells run again.
//!
//! It is the memory of the process that says so, and no message for each handle that is dropped: a snapshot has the list that
//! belongs to its variables, and a handle that a crash takes along is in no list.

use crate::comm::Comm;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

static HELD: Mutex<Held> = Mutex::new(Held { ids: BTreeSet::new(), is_used: false, reported: None });

struct Held {
    /// The ids of the comms.
    ids: BTreeSet<String>,
    /// There has been a widget.
    is_used: bool,
    /// The process that has reported just these ids. A woken snapshot is another process: the kernel may know later ids.
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

/// Reports the widgets to the kernel, unless it knows them.
pub(super) fn report() {
    let mut held = held();
    let own = Some(std::process::id());
    if !held.is_used || held.reported == own {
        return;
    }
    // Where it fails, the next cell reports. Until then the kernel keeps widgets that it could close.
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
        // No kernel listens to a test.
        report();
        assert!(ids.iter().all(|id| held().ids.contains(*id)) && held().reported.is_none());
        held().reported = Some(std::process::id());
        remove(ids);
        assert!(ids.iter().all(|id| !held().ids.contains(*id)) && held().reported.is_none());
    }
}
