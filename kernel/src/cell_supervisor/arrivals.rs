//! Finds which of a cell's two output streams had bytes first. Neither the pipes nor `poll` give the order of the writes, but
//! `epoll` lists its descriptors in the order in which they became ready.

use anyhow::Result;
use ferrotune_link::Stream;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

/// The numbers of the streams in the events of `epoll`.
const STDOUT: u64 = 0;
const STDERR: u64 = 1;

/// An `epoll` that watches both output streams.
pub(super) struct Arrivals {
    epoll: OwnedFd,
    /// An order that was taken and put back unused.
    kept: Option<[Stream; 2]>,
}

impl Arrivals {
    pub(super) fn of(stdout: &OwnedFd, stderr: &OwnedFd) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (fd, name) in [(stdout, STDOUT), (stderr, STDERR)] {
            // With edge triggering, the place of a stream in the list is that of its first byte since the last `take`.
            epoll::add(&epoll, fd, EventData::new_u64(name), EventFlags::IN | EventFlags::ET)?;
        }
        Ok(Self { epoll, kept: None })
    }

    /// The streams in the order in which their bytes arrived since the last call; none if no bytes have arrived.
    pub(super) fn take(&mut self) -> Result<Option<[Stream; 2]>> {
        if let Some(order) = self.kept.take() {
            return Ok(Some(order));
        }
        let mut places = [const { MaybeUninit::<Event>::uninit() }; 2];
        let (events, _) = epoll::wait(&self.epoll, &mut places, Some(&Timespec::default()))?;
        Ok(events.first().map(|event| match event.data.u64() {
            STDERR => [Stream::Stderr, Stream::Stdout],
            _ => [Stream::Stdout, Stream::Stderr],
        }))
    }

    /// Keeps an order for the next call of [`take`](Self::take), because the bytes that arrived in this order are not read yet.
    pub(super) fn keep(&mut self, order: [Stream; 2]) {
        self.kept = Some(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write, pipe};

    #[test]
    fn the_stream_with_the_first_bytes_comes_first() {
        let ((mut stdout, mut to_stdout), (mut stderr, mut to_stderr)) = (pipe().unwrap(), pipe().unwrap());
        let (out, err) = (stdout.try_clone().unwrap().into(), stderr.try_clone().unwrap().into());
        let mut arrivals = Arrivals::of(&out, &err).unwrap();
        let both_orders = [Stream::Stderr, Stream::Stdout, Stream::Stdout, Stream::Stderr];
        for order in both_orders.chunks(2).cycle().take(10) {
            assert_eq!(arrivals.take().unwrap(), None);
            for stream in order {
                match stream {
                    Stream::Stdout => to_stdout.write_all(b"a").unwrap(),
                    Stream::Stderr => to_stderr.write_all(b"b").unwrap(),
                }
            }
            assert_eq!(arrivals.take().unwrap().as_ref().map(|order| &order[..]), Some(order));
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            stderr.read_exact(&mut byte).unwrap();
        }
        to_stdout.write_all(b"a").unwrap();
        arrivals.keep([Stream::Stderr, Stream::Stdout]);
        assert_eq!(arrivals.take().unwrap(), Some([Stream::Stderr, Stream::Stdout]));
        assert_eq!(arrivals.take().unwrap(), Some([Stream::Stdout, Stream::Stderr]));
    }
}
