//! The messages `Event` and `Summary` of TensorFlow: <https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto>.

use super::message::Message;

/// The first event of a file.
pub(super) fn version(wall_time: f64) -> Vec<u8> {
    Message::default().double(1, wall_time).text(3, "brain.Event:2").finish()
}

/// An event with one value of a summary.
pub(super) fn summary(wall_time: f64, step: u64, value: &[u8]) -> Vec<u8> {
    let summary = Message::default().bytes(1, value);
    Message::default().double(1, wall_time).int(2, step).message(5, summary).finish()
}

/// The value of a scalar. TensorBoard stores the value in 32 bits.
pub(super) fn scalar(tag: &str, value: f64) -> Vec<u8> {
    Message::default().text(1, tag).float(2, value as f32).finish()
}
