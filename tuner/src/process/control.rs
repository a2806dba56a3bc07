//! The control socket between a supervisor and a resident worker. For each trial the supervisor sends two file descriptors:
//! the socket for the trial's requests, and the pipe for its output. The worker sends a status back when the trial is over.

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The length of a status message.
const STATUS_BYTES: usize = size_of::<i32>();

/// The supervisor's end of the control socket.
#[derive(Debug)]
pub(super) struct Control {
    /// The stream; `None` once the worker has closed it.
    stream: Option<UnixStream>,
    is_closed: bool,
    inbox: Vec<u8>,
}

impl Control {
    pub(super) fn new(stream: UnixStream) -> io::Result<Control> {
        stream.set_nonblocking(true)?;
        Ok(Control { stream: Some(stream), is_closed: false, inbox: Vec::new() })
    }

    /// Gives a trial to the worker. A worker that has exited is not an error here: its exit is noticed elsewhere.
    pub(super) fn hand_over(&self, requests: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        let ends = [requests, output];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        if !message.push(SendAncillaryMessage::ScmRights(&ends)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match sendmsg(stream, &[IoSlice::new(b"t")], &mut message, SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.stream.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN))
    }

    /// The status of the worker's trial, once the trial is over. Never blocks.
    pub(super) fn status(&mut self) -> Option<i32> {
        let mut chunk = [0; STATUS_BYTES];
        while let Some(stream) = self.stream.as_mut()
            && self.inbox.len() < STATUS_BYTES
        {
            match stream.read(&mut chunk[self.inbox.len()..]) {
                Ok(length) if length > 0 => {
                    let start = self.inbox.len();
                    self.inbox.extend_from_slice(&chunk[start..start + length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The worker has exited, and its exit status says why.
                Ok(_) | Err(_) => self.stream = None,
            }
        }
        let status = self.inbox.first_chunk().copied().map(i32::from_le_bytes)?;
        self.inbox.clear();
        Some(status)
    }

    /// Signals to the worker that there are no more trials. The status of the running trial may still arrive.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if let Some(Err(error)) = self.stream.as_ref().map(|stream| stream.shutdown(Shutdown::Write)) {
            tracing::debug!(%error, "the worker has left before it was asked to");
        }
    }

    /// Whether [`close`](Self::close) was called.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// The worker's end of the control socket.
#[derive(Debug)]
pub(super) struct Trials {
    stream: UnixStream,
}

/// The descriptors of one trial in its worker.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) requests: OwnedFd,
    pub(super) output: OwnedFd,
}

impl Trials {
    pub(super) fn over(control: BorrowedFd<'_>) -> io::Result<Trials> {
        Ok(Trials { stream: UnixStream::from(control.try_clone_to_owned()?) })
    }

    /// Waits for the next trial; none if there are no more trials, or a signal has arrived.
    pub(super) fn next(&self) -> io::Result<Option<Ends>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let data = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(self.stream.as_fd(), data, &mut message, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) if received.bytes == 0 => return Ok(None),
            Ok(_) => {}
            Err(Errno::INTR | Errno::CONNRESET) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let ends = message.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(ends) => Some(ends),
            _ => None,
        });
        let mut ends = ends.flatten();
        let (requests, output) = ends.next().zip(ends.next()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Ends { requests, output }))
    }

    /// Reports to the supervisor that the trial is over.
    pub(super) fn end(&mut self, status: i32) -> io::Result<()> {
        self.stream.write_all(&status.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn a_trials_ends_and_its_status_cross_until_one_side_leaves() -> TestResult {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut control, mut trials) = (Control::new(ours)?, Trials::over(theirs.as_fd())?);
        drop(theirs);
        for status in [0, -7] {
            let (mut request_reader, request_writer) = io::pipe()?;
            let (mut output_reader, output_writer) = io::pipe()?;
            control.hand_over(request_writer.as_fd(), output_writer.as_fd())?;
            drop((request_writer, output_writer));
            let ends = trials.next()?.ok_or("no trial")?;
            File::from(ends.requests).write_all(b"request")?;
            File::from(ends.output).write_all(b"output")?;
            let (mut request, mut output) = (String::new(), String::new());
            request_reader.read_to_string(&mut request)?;
            output_reader.read_to_string(&mut output)?;
            assert_eq!((request.as_str(), output.as_str()), ("request", "output"));
            assert_eq!(control.status(), None);
            trials.end(status)?;
            assert_eq!((control.status(), control.status()), (Some(status), None));
        }
        control.close();
        assert!(trials.next()?.is_none());
        let (ours, theirs) = UnixStream::pair()?;
        let control = Control::new(ours)?;
        drop(theirs);
        control.hand_over(std::io::stdin().as_fd(), std::io::stdin().as_fd())?;
        Ok(())
    }
}
