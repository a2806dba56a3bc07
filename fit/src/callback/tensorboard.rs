//! Event files for TensorBoard.

use super::{Callback, Control};
use crate::history::{Logs, of_training};
use ferrotune_display::tensorboard::{framed, scalar, summary, version};
use ferrotune_state::Result;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the metrics of each epoch for TensorBoard, as Keras' callback does: two runs, `train` and `validation`, with the tags
/// `epoch_loss`, `epoch_accuracy` and so on, so that a chart shows both curves. `tensorboard --logdir FOLDER` shows them.
///
/// Each training has files of its own in these runs, so give each a folder of its own, such as `logs/2`. An epoch is on disk before the
/// next one begins.
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    train: Option<File>,
    validation: Option<File>,
}

impl TensorBoard {
    /// Runs in this folder, which is made if it does not exist.
    pub fn new(folder: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard { folder: folder.into(), train: None, validation: None }
    }
}

impl Callback for TensorBoard {
    fn on_epoch_end(&mut self, epoch: usize, logs: &Logs, _control: &mut Control) -> Result<()> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (valid, train): (Vec<_>, Vec<_>) = logs.iter().partition(|(name, _)| name.starts_with("val_"));
        for (run, values, file) in [("train", train, &mut self.train), ("validation", valid, &mut self.validation)] {
            if values.is_empty() {
                continue;
            }
            let folder = self.folder.join(run);
            let failed = |error: std::io::Error| format!("cannot write into {}: {error}", folder.display());
            let mut bytes = Vec::new();
            let file = match file {
                Some(file) => file,
                none => {
                    fs::create_dir_all(&folder).map_err(failed)?;
                    let name = format!("events.out.tfevents.{}.{}.ferrotune", seconds as u64, process::id());
                    bytes = framed(&version(seconds));
                    none.insert(new_file(&folder.join(name)).map_err(failed)?)
                }
            };
            for (name, value) in values {
                let tag = format!("epoch_{}", of_training(name));
                bytes.extend(framed(&summary(seconds, epoch as u64, &scalar(&tag, *value))));
            }
            file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed)?;
        }
        Ok(())
    }
}

/// A new file with this name and a number after it.
fn new_file(name: &Path) -> io::Result<File> {
    let mut number = 0_u64;
    loop {
        let path = format!("{}.{number}", name.display());
        match File::options().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened,
        }
    }
}
