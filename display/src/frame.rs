//! The frames between a cell process, its supervisor and the kernel: a length and one JSON object each.

use crate::Bundle;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// No frame is larger; a longer length means that the two sides do not understand each other.
pub const MAX_FRAME_BYTES: u32 = 256 << 20;

/// What a cell process, or its supervisor on its behalf, tells the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Frame {
    /// A supervisor's first frame: this connection takes orders.
    Supervisor,
    /// The first frame of what compiles a cell: of all orders, this connection takes [`Order::Interrupt`].
    Compiler,
    /// Text that the cell, or a thread of an earlier cell, wrote.
    Stream {
        /// Where it was written.
        stream: Stream,
        /// The text; bytes that are not UTF-8 have been replaced.
        text: String,
    },
    /// Show something.
    Display {
        /// What to show.
        bundle: Bundle,
        /// Name under which it can be updated.
        display_id: Option<String>,
        /// Whether it replaces what was shown under that name.
        update: bool,
    },
    /// The value of the cell's last expression.
    Result {
        /// The value.
        bundle: Bundle,
    },
    /// Clear the cell's output.
    Clear {
        /// Only when the next output comes.
        wait: bool,
    },
    /// Ask the user for a line; answered by [`Answer::Line`].
    Input {
        /// What to ask.
        prompt: String,
        /// Whether what is typed must not be shown.
        password: bool,
    },
    /// Begin a search; answered once its supervisor holds everything it needs, or has refused.
    Tune {
        /// The cell process that holds the shared data.
        pid: u32,
        /// Path of the shared object with the objective.
        library: String,
        /// The objective's entry point.
        symbol: String,
        /// File descriptor of the shared data, in the cell process.
        shared_fd: Option<i32>,
        /// The device that is connected.
        device: String,
    },
    /// A panic began on the cell's thread; the cell may yet catch it.
    Panic {
        /// The panic's message.
        message: String,
        /// `file:line:column` in the generated source.
        location: Option<String>,
    },
    /// The cell ended by a panic: the last [`Frame::Panic`], or one of another thread that was passed on.
    Panicked,
    /// The cell ended at a `?`, or could not be run.
    Failed {
        /// The error's text.
        message: String,
    },
    /// The cell was not run: the user had stopped it before.
    Cancelled,
    /// The answer to [`Order::Sync`].
    Synced {
        /// The number that it came with.
        number: u64,
    },
    /// The process that ran the cell has ended, and its snapshot has taken its place.
    Restored {
        /// Its exit status, where it exited.
        exit_code: Option<i32>,
        /// The signal that ended it, where one did.
        signal: Option<i32>,
    },
    /// The cell runs without a snapshot: there is not enough memory for one.
    Unguarded,
    /// The cell process has ended. Sent by the supervisor, last.
    Died {
        /// Its exit status, where it exited.
        exit_code: Option<i32>,
        /// The signal that ended it, where one did.
        signal: Option<i32>,
    },
}

/// One of the two text streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What comes back for a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It has been passed on; all that was printed before it has been, too.
    Done,
    /// What the user typed; `None` where there is no one to ask.
    Line {
        /// The line, without its end.
        text: Option<String>,
    },
    /// It could not be done.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
}

/// What the kernel tells a cell's supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// The answer to an [`Frame::Input`] or [`Frame::Tune`].
    Answer {
        /// The answer.
        answer: Answer,
    },
    /// A new cell begins: an earlier interrupt is none of its business.
    Begin,
    /// Pass on all that has been printed, then answer with [`Frame::Synced`].
    Sync {
        /// Comes back with the answer.
        number: u64,
    },
    /// Stop the running cell: ask it, and end it if it does not listen. One that does not run yet never will.
    Interrupt,
}

/// Writes one frame.
///
/// # Errors
/// Those of the writer; also a frame of more than [`MAX_FRAME_BYTES`].
pub fn write(writer: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(frame)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|length| *length <= MAX_FRAME_BYTES)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an output of more than 256 MiB cannot be shown"))?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&body);
    writer.write_all(&bytes)?;
    writer.flush()
}

/// Reads one frame; `None` at the end of the stream.
///
/// # Errors
/// Those of the reader; a frame that is too long, cut off, or not what was expected.
pub fn read<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {length} bytes")));
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Takes the first whole frame out of bytes that have arrived so far; `None` while it is not whole.
///
/// # Errors
/// A frame that is too long or not what was expected.
pub fn take<T: DeserializeOwned>(bytes: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) else {
        return Ok(None);
    };
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {length} bytes")));
    }
    let end = 4 + length as usize;
    if bytes.len() < end {
        return Ok(None);
    }
    let frame = serde_json::from_slice(&bytes[4..end])?;
    bytes.drain(..end);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire_in_pieces() {
        let frame = Frame::Stream { stream: Stream::Stdout, text: "tenth 0.1 \u{1f980}".into() };
        let mut wire = Vec::new();
        write(&mut wire, &frame).unwrap();
        let mut arrived = Vec::new();
        for byte in &wire[..wire.len() - 1] {
            arrived.push(*byte);
            assert_eq!(take::<Frame>(&mut arrived).unwrap(), None);
        }
        arrived.push(wire[wire.len() - 1]);
        assert_eq!(take::<Frame>(&mut arrived).unwrap(), Some(frame.clone()));
        assert_eq!(read::<Frame>(&mut wire.as_slice()).unwrap(), Some(frame));
    }

    #[test]
    fn absurd_lengths_are_refused_before_any_allocation() {
        let error = read::<Frame>(&mut [0xff, 0xff, 0xff, 0xff, 0].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
