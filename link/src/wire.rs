//! The encoding of a frame on a stream: the length in four bytes, least significant first, then one JSON object.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The largest length of a frame in bytes. A greater length means that the two sides use different protocols.
pub const MAX_FRAME_BYTES: u32 = 256 << 20;

/// The size of the first read of a frame. Each later read is as large as all bytes that have arrived, so that a false length
/// in a damaged stream reserves no memory.
const FIRST_PIECE_BYTES: usize = 1 << 20;

/// Writes one frame.
///
/// # Errors
/// An error of the writer, or a frame of more than [`MAX_FRAME_BYTES`].
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
/// An error of the reader; a frame that is too long, cut off, or of another type.
pub fn read<T: DeserializeOwned>(reader: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    // Unlike `read`, `read_exact` goes on after a signal.
    match reader.read_exact(&mut length[..1]) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    reader.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {length} bytes")));
    }
    let mut body = Vec::new();
    while body.len() < length as usize {
        let arrived = body.len();
        body.resize((length as usize).min(2 * arrived.max(FIRST_PIECE_BYTES / 2)), 0);
        reader.read_exact(&mut body[arrived..])?;
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Removes the first whole frame from the bytes that have arrived; `None` while the frame is incomplete.
///
/// # Errors
/// A frame that is too long or of another type.
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
    use crate::{KernelFrame, Stream};

    #[test]
    fn frames_survive_the_wire_in_pieces() {
        let frame = KernelFrame::Stream { stream: Stream::Stdout, text: "tenth 0.1 \u{1f980}".into() };
        let mut wire = Vec::new();
        write(&mut wire, &frame).unwrap();
        let mut arrived = Vec::new();
        for byte in &wire[..wire.len() - 1] {
            arrived.push(*byte);
            assert_eq!(take::<KernelFrame>(&mut arrived).unwrap(), None);
        }
        arrived.push(wire[wire.len() - 1]);
        assert_eq!(take::<KernelFrame>(&mut arrived).unwrap(), Some(frame.clone()));
        assert_eq!(read::<KernelFrame>(&mut wire.as_slice()).unwrap(), Some(frame));
    }

    /// A pseudo-random number below `bound` (SplitMix64), so that a failure repeats.
    fn random(state: &mut u64, bound: usize) -> usize {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    #[test]
    fn damaged_frames_are_errors_and_never_panics() {
        let mut whole = Vec::new();
        write(&mut whole, &KernelFrame::Stream { stream: Stream::Stderr, text: "a \u{1f980} \"b\"".into() }).unwrap();
        let mut state = 13;
        let (mut accepted, mut refused, mut unfinished) = (0, 0, 0);
        for _ in 0..50_000 {
            let mut wire = whole.clone();
            for _ in 0..=random(&mut state, 3) {
                let at = if random(&mut state, 8) == 0 {
                    random(&mut state, 4)
                } else {
                    4 + random(&mut state, wire.len() - 4)
                };
                match random(&mut state, 3) {
                    0 => wire[at] = random(&mut state, 256) as u8,
                    1 if at > 4 => wire.truncate(at),
                    _ if at >= 4 => wire.insert(at, b"{}[]\"\\\xff0"[random(&mut state, 8)]),
                    _ => wire[at] = wire[at].wrapping_add(1),
                }
            }
            let read = read::<KernelFrame>(&mut wire.as_slice());
            let arrived = wire.len();
            match take::<KernelFrame>(&mut wire) {
                Ok(Some(frame)) => {
                    assert_eq!(read.unwrap(), Some(frame));
                    assert!(wire.len() < arrived);
                    accepted += 1;
                }
                Ok(None) => {
                    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                    unfinished += 1;
                }
                Err(_) => {
                    assert!(read.is_err());
                    refused += 1;
                }
            }
        }
        assert!(accepted > 100 && refused > 100 && unfinished > 100, "{accepted} {refused} {unfinished}");
    }

    /// A stream that ends after some bytes, and the largest read that was asked of it.
    struct Short<'a> {
        bytes: &'a [u8],
        most: usize,
    }

    impl Read for Short<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.most = self.most.max(buffer.len());
            self.bytes.read(buffer)
        }
    }

    #[test]
    fn a_length_takes_no_memory_before_its_bytes_arrive() {
        let mut wire = MAX_FRAME_BYTES.to_le_bytes().to_vec();
        wire.resize(FIRST_PIECE_BYTES + 100, b' ');
        let mut stream = Short { bytes: &wire, most: 0 };
        let error = read::<KernelFrame>(&mut stream).unwrap_err();
        assert_eq!((error.kind(), stream.most), (io::ErrorKind::UnexpectedEof, FIRST_PIECE_BYTES));

        let text = "x".repeat(5 * FIRST_PIECE_BYTES);
        let frame = KernelFrame::Stream { stream: Stream::Stdout, text };
        let mut wire = Vec::new();
        write(&mut wire, &frame).unwrap();
        assert_eq!(read::<KernelFrame>(&mut wire.as_slice()).unwrap(), Some(frame));
    }

    #[test]
    fn absurd_lengths_are_refused_before_any_allocation() {
        let error = read::<KernelFrame>(&mut [0xff, 0xff, 0xff, 0xff, 0].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
