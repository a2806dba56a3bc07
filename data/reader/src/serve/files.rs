//! Files by their patterns, and what is in compressed ones.

use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The files that match, in the order of their names.
pub(super) fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    if Path::new(pattern).is_file() {
        return Ok(vec![pattern.into()]); // its name may have brackets
    }
    let found = glob::glob(pattern).with_context(|| format!("`{pattern}` is no pattern for files"))?;
    let mut files = found.collect::<std::result::Result<Vec<PathBuf>, _>>().context("a folder cannot be searched")?;
    files.retain(|path| path.is_file());
    if files.is_empty() { bail!("there is no file `{pattern}`") } else { Ok(files) }
}

/// The bytes of a file, which are decompressed if its name ends in `.gz` or `.zst`.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))),
        Some("zst") => {
            let decoder = zstd::Decoder::new(file);
            Box::new(decoder.with_context(|| format!("cannot decompress {}", path.display()))?)
        }
        _ => Box::new(file),
    })
}
