//! What cells print and show: in order, live, and no faster than a front end can take it.

use super::markers::Piece;
use super::streams::read_available;
use super::{CellConnection, Supervisor, accept, markers};
use anyhow::Result;
use ferrotune_link::{Answer, KernelFrame, Stream, wire};

/// How much of the standard error is kept, to name the error at which a cell ended.
const KEPT_ERROR_BYTES: usize = 4096;

impl Supervisor {
    /// Passes on all that has been printed so far.
    pub(super) fn drain(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        read_available(&self.streams.stdout, &mut bytes)?;
        let pieces = self.markers.push(&bytes);
        self.allowance -= bytes.len() as f64;
        bytes.clear();
        read_available(&self.streams.stderr, &mut bytes)?;
        self.allowance -= bytes.len() as f64;
        let text = self.stderr_text.push(&bytes);
        // Known before the marker of an error that it explains.
        self.remember_error(&text);
        self.pass_on(pieces)?;
        self.print(Stream::Stderr, text)
    }

    /// Passes on also what might have become a marker: the cell has written all that it meant to by now.
    pub(super) fn drain_whole(&mut self) -> Result<()> {
        self.drain()?;
        let pieces = self.markers.release();
        self.pass_on(pieces)
    }

    pub(super) fn remember_error(&mut self, text: &str) {
        self.last_error.push_str(text);
        if self.last_error.len() > KEPT_ERROR_BYTES {
            let excess = self.last_error.len() - KEPT_ERROR_BYTES;
            let cut = self.last_error.ceil_char_boundary(excess);
            self.last_error.drain(..cut);
        }
    }

    pub(super) fn pass_on(&mut self, pieces: Vec<Piece>) -> Result<()> {
        for piece in pieces {
            // Between cells evcxr does not listen, and what it has not read could fill the way to it.
            if let Some(line) = markers::line_for_evcxr(&piece).filter(|_| self.running) {
                self.say(line)?;
            }
            self.failed |= matches!(piece, Piece::Failed | Piece::Panicked);
            match piece {
                Piece::Text(bytes) => {
                    let text = self.stdout_text.push(&bytes);
                    self.print(Stream::Stdout, text)?;
                }
                Piece::Failed => {
                    let message = self.last_error.trim().lines().next_back().unwrap_or("an error").to_owned();
                    self.tell(&KernelFrame::Failed { message })?;
                }
                Piece::Panicked => self.tell(&KernelFrame::Panicked)?,
                Piece::Changed(name) => self.changed.push(name),
                Piece::Line(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn finish_streams(&mut self) -> Result<()> {
        let pieces = self.markers.finish();
        self.pass_on(pieces)?;
        let rest = self.stdout_text.finish();
        self.print(Stream::Stdout, rest)?;
        let rest = self.stderr_text.finish();
        self.print(Stream::Stderr, rest)
    }

    pub(super) fn print(&mut self, stream: Stream, text: String) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.tell(&KernelFrame::Stream { stream, text })
    }

    pub(super) fn accept_link(&mut self) -> Result<()> {
        if let Some(stream) = accept(&self.listeners.link)? {
            self.next_link += 1;
            self.links.push(CellConnection { number: self.next_link, stream, bytes: Vec::new() });
        }
        Ok(())
    }

    pub(super) fn take_link(&mut self, number: usize) -> Result<()> {
        let Some(position) = self.links.iter().position(|link| link.number == number) else { return Ok(()) };
        let link = &mut self.links[position];
        let before = link.bytes.len();
        let open = read_available(&link.stream, &mut link.bytes)?;
        self.allowance -= (link.bytes.len() - before) as f64;
        let frame = wire::take::<KernelFrame>(&mut link.bytes);
        match frame {
            Ok(Some(frame)) => {
                self.drain_whole()?;
                self.tell(&frame)?;
                if matches!(frame, KernelFrame::Input { .. } | KernelFrame::Tune { .. }) {
                    self.waiting = Some(number);
                } else {
                    self.answer(number, &Answer::Done)?;
                }
            }
            Ok(None) if open => {}
            Ok(None) | Err(_) => {
                self.links.remove(position);
            }
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, number: usize, answer: &Answer) -> Result<()> {
        let Some(link) = self.links.iter_mut().find(|link| link.number == number) else { return Ok(()) };
        link.stream.set_nonblocking(false)?;
        if let Err(error) = wire::write(&mut link.stream, answer) {
            tracing::debug!("the cell does not wait for its answer: {error}");
        }
        link.stream.set_nonblocking(true)?;
        Ok(())
    }
}
