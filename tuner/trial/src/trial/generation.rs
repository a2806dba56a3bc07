//! A checkpoint file: safetensors with a checksum over every byte of it. A file is written completely or not at all,
//! and is on disk when the call returns.

use crc32fast::Hasher;
use ferrotune_space::checkpoint::{LONGEST_HEADER_BYTES, STEP};
use ferrotune_state::{BoxError, Pack, Shared};
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const CHECKSUM: &str = "ferrotune:crc";
const VERSION: &str = "ferrotune:version";
/// The version of the checkpoint format, in addition to safetensors.
const CURRENT: u64 = 1;
/// The placeholder for the checksum while it is computed.
const BLANK: &str = "00000000";

/// The reason why a checkpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The file is damaged; an earlier checkpoint must be used.
    #[error("{0}")]
    Damaged(String),
    /// The file is whole, but from a later version of Ferrotune.
    #[error("it was written by checkpoint version {found}, this one reads up to {CURRENT}; update ferrotune")]
    Newer { found: u64 },
    /// The system cannot read the file, so its content may still be good.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

/// The error of damaged content, for `map_err`.
fn damaged(error: impl std::fmt::Display) -> OpenError {
    OpenError::Damaged(error.to_string())
}

/// Writes the packed state of `step` into a checkpoint file.
pub(super) fn write(mut pack: Pack, step: u64, path: &Path) -> Result<(), BoxError> {
    pack.text(VERSION, CURRENT.to_string());
    write_texts(pack, step, path)
}

fn write_texts(mut pack: Pack, step: u64, path: &Path) -> Result<(), BoxError> {
    pack.text(STEP, step.to_string());
    pack.text(CHECKSUM, BLANK.to_owned());
    let partial = path.with_extension("partial");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&partial)?;
    let mut summing = Summing { file, hasher: Hasher::new() };
    pack.write_to(&mut summing)?;
    let Summing { mut file, hasher } = summing;
    file.rewind()?;
    let (place, _) = checksum(&header(&mut file)?).ok_or("its header has no place for a checksum")?;
    file.write_all_at(format!("{:08x}", hasher.finalize()).as_bytes(), place as u64)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    let folder = path.parent().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// Opens a checkpoint, checks its checksum, and returns its step. Does not map the file: if the file is shortened or
/// its disk disappears, a read fails, but a mapping would kill the process.
pub(super) fn open(path: &Path) -> Result<(Shared, u64), OpenError> {
    let mut file = File::open(path)?;
    let mut header = header(&mut file)?;
    let (place, written) = checksum(&header).ok_or_else(|| damaged("its header has no checksum"))?;
    header[place..place + BLANK.len()].copy_from_slice(BLANK.as_bytes());
    let mut summing = Summing { file: io::sink(), hasher: Hasher::new() };
    summing.write_all(&header)?;
    io::copy(&mut file, &mut summing)?;
    let found = format!("{:08x}", summing.hasher.finalize());
    if found != written {
        return Err(damaged(format!("its checksum is {written} but its bytes have {found}")));
    }
    let saved = Shared::in_file(file, &header).map_err(damaged)?;
    let number = |name| saved.text(name).map_err(damaged)?.parse::<u64>().map_err(damaged);
    let found = number(VERSION)?;
    if found > CURRENT {
        return Err(OpenError::Newer { found });
    }
    let step = number(STEP)?;
    Ok((saved, step))
}

/// The header of a file, with the eight bytes of its length.
fn header(file: &mut impl Read) -> Result<Vec<u8>, OpenError> {
    let mut header = Vec::new();
    file.by_ref().take(8).read_to_end(&mut header)?;
    let length = header.as_slice().try_into().map_err(|_| damaged("it ends in its header"))?;
    let bytes = u64::from_le_bytes(length);
    if bytes > LONGEST_HEADER_BYTES {
        return Err(damaged(format!("its header is said to have {bytes} bytes")));
    }
    let read = file.take(bytes).read_to_end(&mut header)? as u64;
    if read < bytes { Err(damaged("it ends in its header")) } else { Ok(header) }
}

/// The position and the value of the checksum in the header. A quote within a text has a backslash before it, so no text of the
/// user looks like the checksum's key.
fn checksum(header: &[u8]) -> Option<(usize, String)> {
    let key = format!("\"{CHECKSUM}\":\"");
    let place = header.windows(key.len()).position(|window| window == key.as_bytes())? + key.len();
    let written = header.get(place..place + BLANK.len())?;
    Some((place, String::from_utf8_lossy(written).into_owned()))
}

/// A writer that passes bytes to a file and computes their checksum.
struct Summing<W> {
    file: W,
    hasher: Hasher,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_state::Share;

    fn small(path: &Path) -> Result<Vec<u8>, BoxError> {
        let mut pack = Pack::new();
        pack.add("weights", &vec![1.5_f32, -2.5])?;
        pack.add("note", &"\"ferrotune:crc\":\"12345678\"".to_owned())?;
        write(pack, 7, path)?;
        Ok(fs::read(path)?)
    }

    #[test]
    fn checkpoint_is_a_safetensors_file_with_its_step() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("it.safetensors");
        let bytes = small(&path)?;
        assert_eq!(safetensors::SafeTensors::deserialize(&bytes)?.tensor("weights")?.shape(), [2]);
        let (saved, step) = open(&path)?;
        assert_eq!((Vec::<f32>::unpack("weights", &saved)?, step), (vec![1.5, -2.5], 7));
        assert_eq!(fs::read_dir(folder.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn later_version_is_told_from_damage() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("it.safetensors");
        small(&path)?;
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        assert!(text.contains("\"ferrotune:version\":\"1\""), "{text}");
        // A later version writes such a file, with a correct checksum.
        let mut pack = Pack::new();
        pack.text(VERSION, "2".to_owned());
        write_texts(pack, 7, &path)?;
        let error = open(&path).err().ok_or("it was opened")?;
        assert!(matches!(error, OpenError::Newer { found: 2 }), "{error}");
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_is_not_damaged() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        // A folder can be opened but not read.
        for path in [folder.path().to_path_buf(), folder.path().join("none.safetensors")] {
            assert!(matches!(open(&path), Err(OpenError::Unreadable(_))), "{}", path.display());
        }
        Ok(())
    }

    #[test]
    fn any_changed_byte_and_any_cut_is_seen() -> Result<(), BoxError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("it.safetensors");
        let bytes = small(&path)?;
        for position in 0..bytes.len() {
            for change in [0x01, 0x20, 0xff] {
                let mut damaged = bytes.clone();
                damaged[position] ^= change;
                fs::write(&path, damaged)?;
                assert!(matches!(open(&path), Err(OpenError::Damaged(_))), "byte {position} with {change:#x}");
            }
            fs::write(&path, &bytes[..position])?;
            assert!(matches!(open(&path), Err(OpenError::Damaged(_))), "cut at {position}");
        }
        Ok(())
    }
}
