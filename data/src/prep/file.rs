//! The file of a `Prep`: JSON with a version of its own. A file is whole or absent, also after a loss of power.

use super::Prep;
use super::encoder::Encoder;
use super::target::Target;
use crate::{DataError, Result};
use candle_core::{Device, Tensor};
use ferrotune_state::{Pack, Share, ShareError, Shared};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// The name and the version of the format.
const FORMAT: &str = "ferrotune prep";
const VERSION: u32 = 1;

/// A `Prep` as it is in files and messages.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    format: String,
    version: u32,
    columns: Vec<Encoder>,
    target: Option<Target>,
}

impl From<Prep> for Saved {
    fn from(prep: Prep) -> Saved {
        Saved { format: FORMAT.to_owned(), version: VERSION, columns: prep.encoders, target: prep.target }
    }
}

impl TryFrom<Saved> for Prep {
    type Error = String;

    fn try_from(Saved { format, version, columns, target }: Saved) -> std::result::Result<Prep, String> {
        if format != FORMAT {
            return Err(format!("it is of the format `{format}` and not `{FORMAT}`"));
        }
        if version != VERSION {
            return Err(format!(
                "it has version {version}, and this Ferrotune reads version {VERSION}; update Ferrotune, or fit again"
            ));
        }
        Ok(Prep::of(columns, target))
    }
}

impl Prep {
    /// Saves all that was fitted in a file of JSON, such as beside the weights of a model. An earlier file is replaced at once.
    ///
    /// Fails if the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let saved = || -> io::Result<()> { replace(path, &serde_json::to_vec_pretty(self)?) };
        saved().map_err(|error| DataError::table(path.display().to_string(), format!("cannot save the Prep: {error}")))
    }

    /// Loads a file of [`Prep::save`]. Fails if the file does not exist, is damaged, or is of a later version.
    ///
    /// ```
    /// use ferrotune_data::{Prep, Table};
    /// let table = Table::from_columns([("rooms", vec![3.into(), 5.into()])])?;
    /// let prep = Prep::fit(&table)?;
    /// let file = std::env::temp_dir().join(format!("prep-{}.json", std::process::id()));
    /// prep.save(&file)?;
    /// assert_eq!(Prep::load(&file)?, prep);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(path: impl AsRef<Path>) -> Result<Prep> {
        let path = path.as_ref();
        let failed =
            |reason: String| DataError::table(path.display().to_string(), format!("cannot load the Prep: {reason}"));
        let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
    }
}

/// Writes a file under another name, and renames it once it is on the disk.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Err(io::Error::other("the path has no name of a file")) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut unfinished = name.to_owned();
    unfinished.push(format!(".{}.unfinished", std::process::id()));
    let unfinished = folder.join(unfinished);
    let written = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(folder)?.sync_all()
    };
    written().inspect_err(|_| {
        // The error of the write is the one to report.
        fs::remove_file(&unfinished).ok();
    })
}

/// A `Prep` travels to trials and into checkpoints.
impl Share for Prep {
    fn pack(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        // A tensor, because texts are in the header of the shared data, whose size is limited.
        let bytes = serde_json::to_vec(self).map_err(|error| failed(candle_core::Error::wrap(error)))?;
        let length = bytes.len();
        Tensor::from_vec(bytes, length, &Device::Cpu).map_err(failed)?.pack(name, pack)
    }

    fn unpack(name: &str, shared: &Shared) -> std::result::Result<Prep, ShareError> {
        let failed = |source| ShareError::Tensor { name: name.to_owned(), source };
        let bytes = Tensor::unpack(name, shared)?.to_vec1::<u8>().map_err(failed)?;
        serde_json::from_slice(&bytes).map_err(|error| failed(candle_core::Error::wrap(error)))
    }
}
