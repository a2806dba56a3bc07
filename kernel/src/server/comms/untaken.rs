//! The messages of front ends that no cell has taken, of all comms together and within one limit.

use std::collections::VecDeque;

use ferrotune_link::{CommMessage, wire};

/// The total size of the messages above which the oldest are dropped. The newest message is kept even if it alone is larger, up to
/// [`MESSAGE_BYTES`], so everything that a cell takes at once fits in a frame of the link.
const LIMIT_BYTES: usize = 64 << 20;
/// The size of the largest message that fits in a frame, with the frame's other fields.
const MESSAGE_BYTES: usize = wire::MAX_FRAME_BYTES as usize - 4096;
/// The memory that a message needs in addition to its own bytes.
const OVERHEAD_BYTES: usize = 1024;

/// The messages, oldest first.
#[derive(Default)]
pub(super) struct Untaken {
    queue: VecDeque<Entry>,
    bytes: usize,
}

struct Entry {
    comm: String,
    /// The target, if this is the first message of a comm that a front end has opened.
    opens: Option<String>,
    message: CommMessage,
    bytes: usize,
}

impl Untaken {
    /// Keeps a message of a comm. With `opens`, it is the first message of a comm with this target. Returns the comms that no cell
    /// can learn of any more, because their first messages are dropped.
    pub(super) fn keep(&mut self, comm: &str, opens: Option<&str>, message: CommMessage) -> Vec<String> {
        let bytes =
            OVERHEAD_BYTES + message.data.to_string().len() + message.buffers.iter().map(String::len).sum::<usize>();
        if bytes > MESSAGE_BYTES {
            tracing::warn!(comm, bytes, "a message of a comm is lost: it is too large for a cell");
            return opens.map(|_| comm.to_owned()).into_iter().collect();
        }
        self.bytes += bytes;
        self.queue.push_back(Entry { comm: comm.to_owned(), opens: opens.map(str::to_owned), message, bytes });
        let mut unknown = Vec::new();
        while self.bytes > LIMIT_BYTES && self.queue.len() > 1 {
            let Some(oldest) = self.queue.pop_front() else { break };
            self.bytes -= oldest.bytes;
            tracing::warn!(comm = oldest.comm, "a message of a comm is lost: no cell has taken it or those after it");
            if oldest.opens.is_some() {
                self.forget(&oldest.comm);
                unknown.push(oldest.comm);
            }
        }
        unknown
    }

    /// Takes the messages of a comm.
    pub(super) fn take(&mut self, comm: &str) -> Vec<CommMessage> {
        let entries = self.take_if(|entry| entry.opens.is_none() && entry.comm == comm);
        entries.into_iter().map(|entry| entry.message).collect()
    }

    /// Takes the comms that front ends have opened for a target, each with its first message.
    pub(super) fn take_opened(&mut self, target: &str) -> Vec<(String, CommMessage)> {
        let entries = self.take_if(|entry| entry.opens.as_deref() == Some(target));
        entries.into_iter().map(|entry| (entry.comm, entry.message)).collect()
    }

    /// Drops all messages of a comm.
    pub(super) fn forget(&mut self, comm: &str) {
        self.take_if(|entry| entry.comm == comm);
    }

    pub(super) fn has(&self, comm: &str) -> bool {
        self.queue.iter().any(|entry| entry.comm == comm)
    }

    /// Whether the first message of this comm is not taken, so that no cell knows of the comm yet.
    pub(super) fn has_first(&self, comm: &str) -> bool {
        self.queue.iter().any(|entry| entry.opens.is_some() && entry.comm == comm)
    }

    fn take_if(&mut self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let (taken, left) = std::mem::take(&mut self.queue).into_iter().partition::<VecDeque<_>, _>(is_wanted);
        self.queue = left;
        self.bytes = self.queue.iter().map(|entry| entry.bytes).sum();
        taken.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(megabytes: usize) -> CommMessage {
        CommMessage { data: json!(megabytes), buffers: vec!["A".repeat(megabytes << 20)], ..CommMessage::default() }
    }

    fn sizes(untaken: &mut Untaken, comm: &str) -> Vec<usize> {
        untaken.take(comm).iter().map(|message| message.buffers[0].len() >> 20).collect()
    }

    #[test]
    fn oldest_messages_of_all_comms_together_are_dropped_first() {
        let mut untaken = Untaken::default();
        for (comm, megabytes) in [("a", 30), ("b", 20), ("a", 10), ("b", 5)] {
            assert!(untaken.keep(comm, None, message(megabytes)).is_empty());
        }
        assert_eq!((sizes(&mut untaken, "a"), sizes(&mut untaken, "b")), (vec![10], vec![20, 5]));
        assert_eq!(untaken.bytes, 0);
        assert!(untaken.keep("a", None, message(1)).is_empty());
        assert!(untaken.keep("a", None, message(100)).is_empty());
        assert_eq!(sizes(&mut untaken, "a"), [100], "the newest one is kept");
        assert!(untaken.keep("a", None, message(256)).is_empty());
        assert!(!untaken.has("a"), "it does not fit in a frame");
    }

    #[test]
    fn comm_whose_first_message_is_dropped_is_forgotten_and_told() {
        let mut untaken = Untaken::default();
        assert!(untaken.keep("a", Some("target"), message(40)).is_empty());
        assert!(untaken.keep("a", None, message(1)).is_empty());
        assert!(untaken.has_first("a") && !untaken.has_first("b"));
        assert_eq!(untaken.keep("b", Some("target"), message(30)), ["a"]);
        assert!(!untaken.has("a"));
        let opened: Vec<_> = untaken.take_opened("target").into_iter().map(|(comm, _)| comm).collect();
        assert_eq!((opened, untaken.has_first("b")), (vec!["b".to_owned()], false));
        assert_eq!(untaken.keep("c", Some("target"), message(256)), ["c"]);
    }
}
