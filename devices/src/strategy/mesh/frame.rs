//! The frames between two workers, each of a head and a content. The content has at most [`LONGEST`] bytes, so that a worker that
//! fails can soon send its farewell after the current frame.

use super::super::StrategyError;
use serde::{Deserialize, Serialize};

/// The length of a head in bytes: kind, phase, bytes of a value, an unused byte, length of the content, step, and number of all values.
pub(super) const HEAD_BYTES: usize = 24;
/// The longest content of a frame, in bytes.
pub(super) const LONGEST: usize = 64 << 10;

const VALUES: u8 = 1;
const FAREWELL: u8 = 2;

/// The head of a frame, without the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    kind: u8,
    phase: u8,
    element_bytes: u8,
    step: u64,
    total: u64,
}

/// The last frame of a worker: the worker that failed first, which may be the sender, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Farewell {
    pub(super) culprit: usize,
    pub(super) reason: String,
}

impl Head {
    pub(super) fn new(step: u64, phase: u8, element_bytes: usize, total: usize) -> Head {
        Head { kind: VALUES, phase, element_bytes: element_bytes as u8, step, total: total as u64 }
    }

    pub(super) fn is_farewell(self) -> bool {
        self.kind == FAREWELL
    }

    /// The number of values that the worker reduces.
    pub(super) fn total(self) -> usize {
        usize::try_from(self.total).unwrap_or(usize::MAX)
    }

    /// Whether the head has the kind, phase and step of another head.
    pub(super) fn is_of(self, other: Head) -> bool {
        (self.kind, self.phase, self.step) == (other.kind, other.phase, other.step)
    }

    pub(super) fn has_type_of(self, other: Head) -> bool {
        self.element_bytes == other.element_bytes
    }

    /// Parses the bytes of a head; also returns the length of the frame's content.
    pub(super) fn read(bytes: &[u8; HEAD_BYTES]) -> (Head, usize) {
        let (length, rest) = (&bytes[4..8], &bytes[8..]);
        let long = |at: usize| rest[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let length = length.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
        let [kind, phase, element_bytes, ..] = *bytes;
        (Head { kind, phase, element_bytes, step: long(0), total: long(8) }, length)
    }

    /// The bytes of the head, for a content of this length.
    fn bytes(self, length: usize) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..3].copy_from_slice(&[self.kind, self.phase, self.element_bytes]);
        bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.step.to_le_bytes());
        bytes[16..].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    /// The frame with this index among the frames of `values`: the bytes of its head, and its content.
    pub(super) fn frame(self, values: &[u8], index: usize) -> ([u8; HEAD_BYTES], &[u8]) {
        let content = values.chunks(LONGEST).nth(index).unwrap_or_default();
        (self.bytes(content.len()), content)
    }
}

/// The length of all frames for so many bytes of values; with no values there is one empty frame.
pub(super) fn bytes_of_frames(values: usize) -> usize {
    values + values.div_ceil(LONGEST).max(1) * HEAD_BYTES
}

impl Farewell {
    /// The farewell after an error of worker `own`: it names the worker that caused the error, or `own`.
    pub(super) fn of(error: &StrategyError, own: usize) -> Farewell {
        let (culprit, reason) = match error {
            StrategyError::Gone { worker, reason, .. } => (*worker, reason.clone()),
            StrategyError::Missing { worker, seconds, .. } => (*worker, format!("it did not come within {seconds} s")),
            other => (own, other.to_string()),
        };
        Farewell { culprit, reason }
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        if text.len() > LONGEST {
            text.clear();
        }
        let head = Head { kind: FAREWELL, phase: 0, element_bytes: 0, step: 0, total: 0 };
        [&head.bytes(text.len())[..], &text].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let head = Head::new(u64::MAX - 3, 1, 8, 1 << 40);
        let (bytes, content) = head.frame(&[7; 300], 0);
        let (back, length) = Head::read(&bytes);
        assert_eq!((back, length, content), (head, 300, &[7; 300][..]));
        assert!(!back.is_farewell() && back.total() == 1 << 40);
        let farewell = Farewell { culprit: 2, reason: "it is gone".into() };
        let bytes = farewell.frame();
        let (head, length) = Head::read(bytes.first_chunk().expect("a head"));
        assert!(head.is_farewell());
        assert_eq!(serde_json::from_slice::<Farewell>(&bytes[HEAD_BYTES..][..length]).expect("JSON"), farewell);
    }

    #[test]
    fn frames_have_all_values_once() {
        let values = vec![1; 2 * LONGEST + 5];
        let frames = [0, 1, 2].map(|index| Head::new(0, 0, 4, 9).frame(&values, index).1.len());
        assert_eq!(frames, [LONGEST, LONGEST, 5]);
        assert_eq!(bytes_of_frames(values.len()), values.len() + 3 * HEAD_BYTES);
        assert_eq!((bytes_of_frames(0), bytes_of_frames(LONGEST)), (HEAD_BYTES, HEAD_BYTES + LONGEST));
    }
}
