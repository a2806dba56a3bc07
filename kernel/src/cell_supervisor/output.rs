//! Passes what cells print and show to the kernel: in order, at once, and no faster than a front end can process it.

use super::Supervisor;
use super::connections::AnswerFrom;
use super::markers::{self, Markers, Piece};
use super::phase::Event;
use super::streams::{Utf8, read_available};
use anyhow::Result;
use ferrotune_link::{Answer, KernelFrame, Stream};
use std::io;
use std::time::{Duration, Instant};

/// The limit of a cell's output. A cell that prints or shows more has to wait, as at a terminal: otherwise output that front
/// ends cannot process would fill the memory. The output of one second passes at once.
const OUTPUT_BYTES_PER_SECOND: f64 = 64e6;

/// The number of bytes within [`BURST`] above which a cell prints faster than a user reads. Passing such output on line by line
/// costs more than printing it, so the supervisor reads it in larger pieces, with [`PIECE`] between two reads.
const BURST_BYTES: usize = 64 << 10;
const BURST: Duration = Duration::from_millis(50);
const PIECE: Duration = Duration::from_millis(5);

/// How often one [`drain`](Supervisor::drain) reads the streams while more bytes arrive. A cell that prints without end must not
/// block the supervisor.
const MOST_LOOKS: usize = 4;

/// Incomplete markers and characters that were read from the cell's two streams, and the limits of the output's rate.
#[derive(Default)]
pub(super) struct Output {
    pub(super) markers: Markers,
    stdout_text: Utf8,
    stderr_text: Utf8,
    pub(super) allowance: Allowance,
    pub(super) pace: Pace,
}

/// How many bytes of output may be passed on now. Below zero, output is left unread until the allowance has grown again.
pub(super) struct Allowance {
    bytes: f64,
    updated_at: Instant,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { bytes: OUTPUT_BYTES_PER_SECOND, updated_at: Instant::now() }
    }
}

impl Allowance {
    fn spend(&mut self, bytes: usize) {
        self.bytes -= bytes as f64;
    }

    /// Adds the bytes by which the allowance has grown since the last call. If the allowance is still below zero, returns how long to wait.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let earned = OUTPUT_BYTES_PER_SECOND * now.duration_since(self.updated_at).as_secs_f64();
        // After one large picture the cell waits for a second at most.
        self.bytes = (self.bytes.max(-OUTPUT_BYTES_PER_SECOND) + earned).min(OUTPUT_BYTES_PER_SECOND);
        self.updated_at = now;
        (self.bytes < 0.0).then(|| Duration::from_secs_f64(-self.bytes / OUTPUT_BYTES_PER_SECOND))
    }
}

/// How many bytes have been read in the present burst, and when.
pub(super) struct Pace {
    bytes: usize,
    began_at: Instant,
    read_at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Self { bytes: 0, began_at: now, read_at: now }
    }
}

impl Pace {
    fn read(&mut self, bytes: usize, now: Instant) {
        if now.duration_since(self.began_at) > BURST {
            (self.bytes, self.began_at) = (0, now);
        }
        self.bytes += bytes;
        self.read_at = now;
    }

    /// How long to wait before more is read; none if more may be read at once.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let left = (self.read_at + PIECE).saturating_duration_since(now);
        (self.bytes > BURST_BYTES && !left.is_zero()).then_some(left)
    }
}

impl Supervisor {
    /// Passes on what the cell has printed so far, the stream with the earliest bytes first.
    pub(super) fn drain(&mut self) -> Result<()> {
        let mut order = self.streams.arrivals.take()?;
        for _ in 0..MOST_LOOKS {
            for stream in order.unwrap_or([Stream::Stdout, Stream::Stderr]) {
                self.drain_stream(stream)?;
            }
            // This order is for bytes that arrived since the last read, or for bytes that were read already. The next order must not
            // count bytes that were read.
            order = self.streams.arrivals.take()?;
            if order.is_none() {
                return Ok(());
            }
        }
        if let Some(order) = order {
            self.streams.arrivals.keep(order);
        }
        Ok(())
    }

    fn drain_stream(&mut self, stream: Stream) -> Result<()> {
        let mut bytes = Vec::new();
        let fd = match stream {
            Stream::Stdout => &self.streams.stdout,
            Stream::Stderr => &self.streams.stderr,
        };
        read_available(fd, &mut bytes)?;
        self.output.allowance.spend(bytes.len());
        self.output.pace.read(bytes.len(), Instant::now());
        match stream {
            Stream::Stdout => {
                let pieces = self.output.markers.push(bytes);
                self.pass_on(pieces)
            }
            Stream::Stderr => {
                let text = self.output.stderr_text.push(bytes);
                self.print(Stream::Stderr, text)
            }
        }
    }

    /// Passes on what the cell has printed, also an unfinished marker: the cell has written everything that precedes a frame.
    pub(super) fn drain_whole(&mut self) -> Result<()> {
        self.drain()?;
        let pieces = self.output.markers.release();
        self.pass_on(pieces)
    }

    /// Passes on everything after the end of a cell, also lines and characters that are not complete.
    pub(super) fn drain_to_end(&mut self) -> Result<()> {
        self.drain()?;
        let pieces = self.output.markers.finish();
        self.pass_on(pieces)?;
        let rest = self.output.stdout_text.finish();
        self.print(Stream::Stdout, rest)?;
        let rest = self.output.stderr_text.finish();
        self.print(Stream::Stderr, rest)
    }

    fn pass_on(&mut self, pieces: Vec<Piece>) -> Result<()> {
        for piece in pieces {
            if let Some(line) = markers::line_for_evcxr(&piece).filter(|_| self.protocol.evcxr_listens()) {
                self.evcxr.say(line)?;
            }
            match piece {
                Piece::Text(bytes) => {
                    let text = self.output.stdout_text.push(bytes);
                    self.print(Stream::Stdout, text)?;
                }
                // The cell itself has sent its error to the kernel.
                Piece::Failed => self.raise(Event::CellFailed)?,
                Piece::Panicked => {
                    self.kernel.tell(&KernelFrame::Panicked)?;
                    self.raise(Event::CellFailed)?;
                }
                Piece::Changed(name) => self.raise(Event::TypeChanged(name))?,
                Piece::Line(_) => {}
            }
        }
        Ok(())
    }

    fn print(&mut self, stream: Stream, text: String) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.kernel.tell(&KernelFrame::Stream { stream, text })
    }

    /// Passes a frame of a cell on to the kernel, after the text that the cell has printed before.
    pub(super) fn take_frame(&mut self, number: usize) -> Result<()> {
        let (count, frame) = self.connections.read(number)?;
        self.output.allowance.spend(count);
        let Some(frame) = frame else { return Ok(()) };
        self.drain_whole()?;
        let from = match frame {
            KernelFrame::Input { .. } | KernelFrame::Tune { .. } => AnswerFrom::User,
            KernelFrame::Comm { .. } => AnswerFrom::Kernel,
            _ => {
                self.kernel.tell(&frame)?;
                return self.connections.answer(number, &Answer::Done);
            }
        };
        let question = self.connections.await_answer(number, from);
        match self.kernel.tell(&KernelFrame::Asked { number: question, question: Box::new(frame) }) {
            // With the number of its question, the frame is larger than the limit.
            Err(error) if is_too_large(&error) => {
                let reason = "a message of a cell is at most 256 MiB large".to_owned();
                self.connections.answer_question(question, &Answer::Refused { reason })
            }
            other => other,
        }
    }
}

fn is_too_large(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}
