//! One frame on a stream: its length in four bytes, least significant first, then one JSON object.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// No frame is larger; a longer length means that the two sides do not understand each other.
pub const MAX_FRAME_BYTES: u32 = 256 << 20;

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

    #[test]
    fn absurd_lengths_are_refused_before_any_allocation() {
        let error = read::<KernelFrame>(&mut [0xff, 0xff, 0xff, 0xff, 0].as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
