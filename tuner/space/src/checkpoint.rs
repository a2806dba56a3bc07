//! The names of a trial's checkpoints, and the header of a checkpoint file, which holds the step after which it was made.
//! Reads no weights.

use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The key in a checkpoint's header whose value is the step after which the checkpoint was made.
pub const STEP: &str = "ferrotune:step";
/// The largest length of a checkpoint's header; a larger one means that the file is damaged.
pub const LONGEST_HEADER_BYTES: u64 = 100 << 20;

/// The file name of a trial's checkpoint of this generation, in the trial's folder.
pub fn checkpoint_file(generation: u64) -> String {
    format!("checkpoint-{generation:06}.safetensors")
}

/// The generation of a checkpoint from its file name; `None` if the file is no checkpoint.
pub fn checkpoint_generation(file: &str) -> Option<u64> {
    generation_in(file, ".safetensors")
}

/// Whether a file name is that of a checkpoint that is still being written, copied or linked.
pub fn is_partial_checkpoint(file: &str) -> bool {
    [".partial", ".safetensors.partial", ".link"].iter().any(|ending| generation_in(file, ending).is_some())
}

fn generation_in(file: &str, ending: &str) -> Option<u64> {
    let digits = file.strip_prefix("checkpoint-")?.strip_suffix(ending)?;
    // A file of the user may have a similar name.
    digits.parse().ok().filter(|generation| format!("{generation:06}") == digits)
}

/// The step after which a checkpoint was made, read from its header alone:
/// <https://github.com/huggingface/safetensors#format>. `None` if the file is not a checkpoint of Ferrotune, or if its
/// header is damaged.
///
/// # Errors
/// Fails if the file cannot be read, which means nothing for the file's content.
pub fn step_of(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let mut length = Vec::new();
    file.by_ref().take(8).read_to_end(&mut length)?;
    let length = length.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
    if length > LONGEST_HEADER_BYTES {
        return Ok(None);
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let Ok(header) = serde_json::from_slice::<Value>(&header) else { return Ok(None) };
    Ok(header["__metadata__"][STEP].as_str().and_then(|step| step.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn step_is_read_from_the_head_and_no_other_file_has_one() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("it.safetensors");
        let file = |head: &str, length: u64| [&length.to_le_bytes()[..], head.as_bytes(), &[0; 4]].concat();
        let head = r#"{"__metadata__":{"ferrotune:step":"7"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let whole = file(head, head.len() as u64);
        fs::write(&path, &whole)?;
        assert_eq!(step_of(&path)?, Some(7));
        let others = [Vec::new(), vec![1, 2, 3], whole[..40].to_vec(), file(head, u64::MAX), file("{}", 2)];
        for bytes in others {
            fs::write(&path, &bytes)?;
            assert_eq!(step_of(&path)?, None, "{bytes:?}");
        }
        fs::remove_file(&path)?;
        assert!(step_of(&path).is_err());
        Ok(())
    }
}
