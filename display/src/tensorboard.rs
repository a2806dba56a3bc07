//! TensorBoard's event files: messages of TensorFlow in frames.
//! <https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto>
//!
//! ```
//! use ferrotune_display::tensorboard::{framed, scalar, summary, version};
//! let begun = 1_700_000_000.0;        // in seconds
//! let mut file = framed(&version(begun));
//! file.extend(framed(&summary(begun + 1.0, 0, &scalar("loss", 0.5))));
//! ```

mod message;
mod record;

pub use message::Message;
pub use record::framed;

/// The first event of a file.
pub fn version(wall_time: f64) -> Vec<u8> {
    Message::default().double(1, wall_time).text(3, "brain.Event:2").finish()
}

/// An event with one value of a summary, at a time in seconds since 1970.
pub fn summary(wall_time: f64, step: u64, value: &[u8]) -> Vec<u8> {
    let summary = Message::default().bytes(1, value);
    Message::default().double(1, wall_time).int(2, step).message(5, summary).finish()
}

/// The value of a scalar. TensorBoard stores the value in 32 bits.
pub fn scalar(tag: &str, value: f64) -> Vec<u8> {
    Message::default().text(1, tag).float(2, value as f32).finish()
}
