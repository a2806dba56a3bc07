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
    /// The cell was not run: it means another type than that of some variables, which has been defined anew. They have
    /// been dropped.
    Changed {
        /// Names of the variables.
        names: Vec<String>,
    },
    /// The answer to an [`Order::Request`].
    Reply {
        /// The number that it came with.
        number: u64,
        /// The answer.
        reply: Reply,
    },
    /// The process that held the variables has ended, and its snapshot has taken its place.
    Restored {
        /// How it ended.
        ending: Ending,
        /// Names of the threads that did not come along: those that earlier cells had started.
        threads: Vec<String>,
        /// Whether a cell ran.
        running: bool,
    },
    /// No snapshot could be made of what the last cell has left.
    Unguarded {
        /// Why not.
        reason: String,
    },
    /// The process that held the variables has ended, and nothing could take its place: another one has been started,
    /// without variables.
    Died {
        /// How it ended.
        ending: Ending,
    },
}

/// How a process of cells ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    /// It exited.
    Exited {
        /// Its exit status.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// It held too much memory.
    OutOfMemory {
        /// The most that it was seen to hold, in bytes.
        peak_bytes: u64,
        /// The limit that it went over; none where the machine had no more to give.
        limit_bytes: Option<u64>,
    },
    /// It did not stop when it was asked to.
    Stopped,
    /// The cell failed and had moved variables, which the snapshot still has.
    TakenBack,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done,
    /// It could not be done.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
    /// It could not be done, and the variables are lost over it.
    Lost,
    /// What memory the cells hold.
    Report {
        /// The figures.
        report: Report,
    },
}

/// What memory a supervisor's processes hold. Bytes are private ones: what would come back if the process ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Process id of the supervisor.
    pub supervisor_pid: u32,
    /// Process id of the process that holds the variables.
    pub cells_pid: u32,
    /// What that process and its sleeping copies hold in the machine's memory, all together, in bytes.
    pub held_bytes: u64,
    /// The most that a cell may hold, if there is a limit.
    pub limit_bytes: Option<u64>,
    /// The sleeping copies, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One sleeping copy of the process that holds the variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// What it is kept for.
    pub place: Place,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it was made.
    pub age_s: f64,
    /// How long making it held up the process, in microseconds.
    pub cost_us: u64,
    /// What would come back if it were dropped, in bytes.
    pub private_bytes: u64,
    /// Its share of all the memory that it sees and that others may see, too, in bytes.
    pub share_bytes: u64,
}

/// A state to which the variables can be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum Place {
    /// As it is now: the net under the next cell.
    Now,
    /// As it was before a cell.
    Before {
        /// The cell's number.
        cell: u64,
    },
    /// As it was when this name was given.
    Named {
        /// The name.
        name: String,
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
    Begin {
        /// Number under which it can be undone; none for what is not a cell of the user's.
        cell: Option<u64>,
    },
    /// Stop the running cell: ask it, and end it if it does not listen. One that does not run yet never will.
    Interrupt,
    /// Something to be answered by a [`Frame::Reply`].
    Request {
        /// Comes back with the answer.
        number: u64,
        /// What is wanted.
        request: Request,
    },
}

/// What the kernel asks a cell's supervisor for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Pass on all that has been printed.
    Sync,
    /// Tell evcxr that its next cell has run, without running it: only its idea of the variables is to change.
    Skip,
    /// Keep the state as it is now under a name.
    Keep {
        /// The name; one that is taken is given anew.
        name: String,
    },
    /// Bring the variables back to an earlier state. evcxr connects anew afterwards.
    Return {
        /// To which.
        to: Place,
    },
    /// From now on a cell may hold so much memory.
    Limit {
        /// The most, in bytes; none for what the machine can spare.
        bytes: Option<u64>,
    },
    /// Have the process that holds the variables give back what it has freed.
    Trim {
        /// Whether the states for `%undo`, which share that memory, are to go as well.
        forget: bool,
    },
    /// Tell what memory is held.
    Report,
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
